"""The SQL of groups and batches."""
