"""The conformance suite's tests of feeds, with the ordering that only PostgreSQL has."""

from __future__ import annotations

import pytest

from queue_db.testing.suite import (  # noqa: F401 - classes and fixtures that pytest finds here
    TestCursors,
    TestFailedMessages,
    TestFeeds,
    TestForward,
    TestMailboxes,
    TestPositions,
    TestRetention,
    TestSharedCursors,
    TestSpans,
    clock,
    db,
    feed,
    group,
    name,
    notes,
    rival,
    several_groups,
)

pytestmark = pytest.mark.parametrize("kind", ["postgresql"], scope="session")


@pytest.fixture
def ordering() -> str:
    return "ticks"
