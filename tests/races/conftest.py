"""Two processes, as far as the database can tell: two QueueDB objects with connections of their own and one clock."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from queue_db import Queue, QueueDB
from queue_db.testing import SettableClock


@pytest.fixture
def clock() -> SettableClock:
    return SettableClock()


@pytest.fixture
def ours(open_db: Callable[..., QueueDB], clock: SettableClock, name: str) -> Queue:
    return open_db(strategy="optimistic", clock=clock, worker="ours").queue(name)


@pytest.fixture
def theirs(open_db: Callable[..., QueueDB], clock: SettableClock, name: str) -> Queue:
    return open_db(strategy="optimistic", clock=clock, worker="theirs").queue(name)
