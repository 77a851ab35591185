"""The engine, its connections and transactions, and the migrations of the tables."""
