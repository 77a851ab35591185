"""The behaviour that every dialect, strategy and removal must have, as plain pytest tests that you run against yours.

A test module imports all of it and defines the fixture ``open_db``, which opens a QueueDB of the combination under test on one
migrated database. The page Testing of the API reference has an example to copy, and how long the suite takes on each database.
"""

from queue_db.testing.suite import asserts  # noqa: F401 - first: it changes the import of the others
from queue_db.testing.suite.actions import TestActions
from queue_db.testing.suite.batches import TestBatches
from queue_db.testing.suite.claiming import TestClaim, TestOrder
from queue_db.testing.suite.completing_and_claiming import TestCompleteAndClaim
from queue_db.testing.suite.costs import TestStatements
from queue_db.testing.suite.cursors import TestCursors
from queue_db.testing.suite.dead import TestDead
from queue_db.testing.suite.enqueueing import TestEnqueue, TestEnqueueMany
from queue_db.testing.suite.failures import TestFailures
from queue_db.testing.suite.fairness import TestFairQueues, TestGroupLimits, TestPlacesOfGroups
from queue_db.testing.suite.feeds import TestFeeds, TestPositions, TestRetention, feed, ordering
from queue_db.testing.suite.fixtures import (
    Notes,
    OpenDB,
    Statements,
    clock,
    db,
    displacement,
    most_statements,
    name,
    no_lone_changes,
    notes,
    queue,
    rival,
    rival_queue,
)
from queue_db.testing.suite.forwarding import TestForward
from queue_db.testing.suite.graphs import TestGraphChanges, TestGraphFailures, TestGraphs
from queue_db.testing.suite.groups import TestGroups, TestGroupsAndKeys
from queue_db.testing.suite.lease_tokens import TestHandles
from queue_db.testing.suite.leases import TestExtend, TestLease, TestVanishedWorkers, TestVersions
from queue_db.testing.suite.listing import TestJobs
from queue_db.testing.suite.mailboxes import Group, TestMailboxes, group, several_groups
from queue_db.testing.suite.message_claims import TestClaimsThatEnd, TestMessageClaims, claimable
from queue_db.testing.suite.message_times import TestHiddenMessages, TestRetentionWithClaims, TestTimesOfTheFeed
from queue_db.testing.suite.metrics import TestMetrics
from queue_db.testing.suite.patterns import TestPatterns
from queue_db.testing.suite.reading import TestPurge, TestRead, TestSweep
from queue_db.testing.suite.rescheduling import TestReschedule
from queue_db.testing.suite.routes import TestConditions, TestKeyedCounts, TestLoops, TestRoutes, TestTopics, routed
from queue_db.testing.suite.settling import TestCancel, TestFail, TestFence, TestGiveBack, TestOutcomes, TestSettleMany
from queue_db.testing.suite.spans import TestFailedMessages, TestSharedCursors, TestSpans
from queue_db.testing.suite.steps import TestState, TestSteps, TestStepsOfLeftJobs
from queue_db.testing.suite.suspending import TestSignals, TestSleeps, TestStepLoops
from queue_db.testing.suite.tables import TestTables
from queue_db.testing.suite.tokens import TestTokens
from queue_db.testing.suite.transactions import TestCompleteUsing, TestEnqueueUsing
from queue_db.testing.suite.uniqueness import TestDebounce, TestRefusedLists, TestUniqueFor, TestUniqueKey, TestUniqueKeysOfMany

__all__ = [
    "Group",
    "Notes",
    "OpenDB",
    "Statements",
    "TestActions",
    "TestBatches",
    "TestCancel",
    "TestClaim",
    "TestClaimsThatEnd",
    "TestCompleteAndClaim",
    "TestCompleteUsing",
    "TestConditions",
    "TestCursors",
    "TestDead",
    "TestDebounce",
    "TestEnqueue",
    "TestEnqueueMany",
    "TestEnqueueUsing",
    "TestExtend",
    "TestFail",
    "TestFailedMessages",
    "TestFailures",
    "TestFairQueues",
    "TestFeeds",
    "TestFence",
    "TestForward",
    "TestGiveBack",
    "TestGraphChanges",
    "TestGraphFailures",
    "TestGraphs",
    "TestGroupLimits",
    "TestGroups",
    "TestGroupsAndKeys",
    "TestHandles",
    "TestHiddenMessages",
    "TestJobs",
    "TestKeyedCounts",
    "TestLease",
    "TestLoops",
    "TestMailboxes",
    "TestMessageClaims",
    "TestMetrics",
    "TestOrder",
    "TestOutcomes",
    "TestPatterns",
    "TestPlacesOfGroups",
    "TestPositions",
    "TestPurge",
    "TestRead",
    "TestRefusedLists",
    "TestReschedule",
    "TestRetention",
    "TestRetentionWithClaims",
    "TestRoutes",
    "TestSettleMany",
    "TestSharedCursors",
    "TestSignals",
    "TestSleeps",
    "TestSpans",
    "TestState",
    "TestStatements",
    "TestStepLoops",
    "TestSteps",
    "TestStepsOfLeftJobs",
    "TestSweep",
    "TestTables",
    "TestTimesOfTheFeed",
    "TestTokens",
    "TestTopics",
    "TestUniqueFor",
    "TestUniqueKey",
    "TestUniqueKeysOfMany",
    "TestVanishedWorkers",
    "TestVersions",
    "claimable",
    "clock",
    "db",
    "displacement",
    "feed",
    "group",
    "most_statements",
    "name",
    "no_lone_changes",
    "notes",
    "ordering",
    "queue",
    "rival",
    "rival_queue",
    "routed",
    "several_groups",
]
