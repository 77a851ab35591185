"""Hints to waiting workers that there are new jobs, and to a worker that one of its jobs was cancelled.

Workers of this process are rung, others are told through the database.

A hint may get lost, come late, or come for nothing: workers look by themselves too. So it may be rare: PostgreSQL lets one
notifying transaction after the other commit, and one hint for each job would cost more than the job.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from sqlalchemy import Connection

from queue_db.store import Store

#: Seconds between two hints about one queue that go through the database. A worker that was just told looks again by itself in
#: pauses shorter than this.
EVERY = 0.02

#: Begins a hint about a job that was cancelled, before its id; no queue's name has such a character.
CANCELLED = "\x18"

# As long as a hint about the highest id. Anybody may notify anything: Python refuses to read a number of some thousand digits.
_LONGEST = len(CANCELLED) + len(str(2**63))

Ring = Callable[[str], None]
"""Called with the name of the queue, or with a cancelled job, from any thread; must return at once."""


def cancelled_in(heard: Iterable[str]) -> set[int]:
    """The ids of the cancelled jobs that hints name; other texts, of whatever kind, name none."""
    return {
        int(text[len(CANCELLED) :])
        for text in heard
        if text.startswith(CANCELLED) and len(text) <= _LONGEST and text[len(CANCELLED) :].isdecimal()
    }


class Hints:
    """The hints of one queue store in one process."""

    def __init__(self, store: Store, clock: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._clock = clock
        self._told: dict[str, float] = {}
        self._rings: tuple[Ring, ...] = ()

    def tell(self, connection: Connection, queue: str) -> None:
        """In the transaction that adds jobs: when it commits, waiting workers anywhere hear of it, if the database can do that."""
        if not self._store.dialect.notifies:
            return
        now = self._clock()
        if now - self._told.get(queue, -EVERY) >= EVERY:
            self._told[queue] = now
            self._store.dialect.notify(connection, self.channel, queue)

    def tell_cancelled(self, connection: Connection, job_id: int) -> None:
        """In the transaction that cancels a job which some worker has: :meth:`tell` that worker, wherever it is."""
        if self._store.dialect.notifies:
            self._store.dialect.notify(connection, self.channel, f"{CANCELLED}{job_id}")

    def ring_cancelled(self, job_id: int) -> None:
        """After the commit: workers of this process hear of it."""
        self.ring(f"{CANCELLED}{job_id}")

    def ring(self, queue: str) -> None:
        """After the commit: waiting workers of this process hear of it."""
        for ring in self._rings:
            ring(queue)

    @property
    def channel(self) -> str:
        """Where the database lets these hints be heard. Two names that are cut to one would only be heard too often."""
        return f"queue_db.{self._store.tables.jobs.fullname}"[:63]

    def add(self, ring: Ring) -> None:
        """Let a worker of this process be rung."""
        self._rings = (*self._rings, ring)

    def remove(self, ring: Ring) -> None:
        """Ring it no more."""
        self._rings = tuple(one for one in self._rings if one != ring)
