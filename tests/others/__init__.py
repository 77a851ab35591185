"""Test suites of other projects, run against the adapters in ``queue_db/contrib``."""
