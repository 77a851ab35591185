"""Register the modules of the suite for assertion rewriting, so that a failed assert shows its values; imported before them."""

import pytest

pytest.register_assert_rewrite(
    "queue_db.testing.suite.actions",
    "queue_db.testing.suite.failures",
    "queue_db.testing.suite.metrics",
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
    "queue_db.testing.suite.handles",
    "queue_db.testing.suite.listing",
    "queue_db.testing.suite.feeds",
    "queue_db.testing.suite.forwarding",
    "queue_db.testing.suite.mailboxes",
    "queue_db.testing.suite.message_claims",
    "queue_db.testing.suite.message_times",
    "queue_db.testing.suite.spans",
    "queue_db.testing.suite.patterns",
    "queue_db.testing.suite.reading",
    "queue_db.testing.suite.rescheduling",
    "queue_db.testing.suite.routes",
    "queue_db.testing.suite.tables",
    "queue_db.testing.suite.tokens",
    "queue_db.testing.suite.costs",
)
