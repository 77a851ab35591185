"""Jobs by ranges of ids, for readers that share the work."""
