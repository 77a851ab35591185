"""The SQL of graphs."""
