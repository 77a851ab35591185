"""Two processes, as far as the database can tell: two QueueDB objects with connections of their own."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from queue_db import QueueDB
from queue_db.feeds.store import orderings
from tests.feeds.orderings import Naive

ORDERINGS = ("counter", "ranked")


@pytest.fixture
def naive(monkeypatch: pytest.MonkeyPatch) -> str:
    """The negative control."""
    monkeypatch.setitem(orderings.ORDERINGS, "naive", Naive())
    return "naive"


@pytest.fixture
def make_feed(db: QueueDB, name: str) -> Callable[[str], str]:
    """Create a feed with an ordering; return its name."""

    def make(ordering: str) -> str:
        db.feeds.set(name, ordering=ordering)
        return name

    return make
