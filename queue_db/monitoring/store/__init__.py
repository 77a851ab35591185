"""The SQL of monitoring: functions that take a transaction and never commit."""
