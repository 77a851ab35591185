"""The SQL of the service: functions that take a transaction and never commit."""
