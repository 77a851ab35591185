"""The engine, its connections and transactions, and the version of the tables."""
