"""The SQL: messages by ranges of numbers, and loads of messages."""
