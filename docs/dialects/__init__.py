"""Dialects for databases on which the tests of queue_db do not run. Copy one, and import it before you open its URL."""
