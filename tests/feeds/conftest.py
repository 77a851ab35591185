"""Two processes, as far as the database can tell: two QueueDB objects with connections of their own."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from queue_db import QueueDB
from queue_db.store.feeds import orderings
from tests.feeds.orderings import Naive

ORDERINGS = ("counter", "ranked", "ticks")

#: Those whose messages can be claimed one by one.
CLAIMABLE = ("counter", "ranked")


@pytest.fixture
def naive(monkeypatch: pytest.MonkeyPatch) -> str:
    """The negative control."""
    monkeypatch.setitem(orderings.ORDERINGS, "naive", Naive())
    return "naive"


@pytest.fixture
def make_feed(db: QueueDB, name: str, differs: Callable[[str], None]) -> Callable[[str], str]:
    """Create a feed with an ordering; return its name."""

    def make(ordering: str) -> str:
        if ordering == "ticks":
            differs("no ticks")
        db.feeds.set(name, ordering=ordering)
        return name

    return make
