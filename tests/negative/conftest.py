"""Fixtures that run a check of another suite twice: on the library as it is, and with a part of it removed."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from queue_db import Queue, QueueDB
from queue_db.testing import SettableClock


@dataclass(frozen=True)
class Stage:
    """Two QueueDB objects with one clock on an empty queue."""

    clock: SettableClock
    queue: Queue
    rival: Queue


@pytest.fixture
def stage(open_db: Callable[..., QueueDB]) -> Callable[..., Stage]:
    """Open a stage; ``options`` are those of QueueDB."""

    def make(**options: object) -> Stage:
        clock = SettableClock()
        name = f"negative-{uuid.uuid4().hex[:12]}"
        own = open_db(**{"strategy": "optimistic", "clock": clock, "worker": "first"} | options)
        other = open_db(**{"strategy": "optimistic", "clock": clock, "worker": "rival"} | options)
        return Stage(clock, own.queue(name), other.queue(name))

    return make
