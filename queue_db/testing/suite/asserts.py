"""Ask pytest to rewrite the suite's asserts, so that a failed one tells its values; imported before the modules that it names."""

import pytest

pytest.register_assert_rewrite(
    "queue_db.testing.suite.batches",
    "queue_db.testing.suite.fixtures",
    "queue_db.testing.suite.enqueueing",
    "queue_db.testing.suite.uniqueness",
    "queue_db.testing.suite.claiming",
    "queue_db.testing.suite.leases",
    "queue_db.testing.suite.settling",
    "queue_db.testing.suite.transactions",
    "queue_db.testing.suite.dead",
    "queue_db.testing.suite.groups",
    "queue_db.testing.suite.reading",
    "queue_db.testing.suite.tables",
    "queue_db.testing.suite.costs",
)
