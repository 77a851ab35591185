"""How many jobs wait in each queue, counted by one process at a time and at most one percent of the time.

Counting reads whole queues, seconds for a million jobs. The counts are kept in a row that all processes of the database read.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from sqlalchemy import Row

from queue_db.db import QueueDB
from queue_db.errors import QueueDBError
from queue_db.store import samples

log = logging.getLogger("queue_db.instrumentation.sampling")

#: Seconds between two samples at least; and after one that took s seconds, s times this.
REST = 10.0
REST_TIMES = 100

#: The process that counts has so many times as long as the last count took before another process may count,
#: and at least and at most so many seconds.
LEASE_TIMES = 10
SHORTEST_LEASE = 60.0
LONGEST_LEASE = 3600.0

# Seconds for which a reader waits for a sample that is due: most take milliseconds.
_PATIENCE = 1.0

_NAME = "depth"

#: Which jobs are counted.
STATES = ("available", "scheduled", "blocked", "running", "dead")


@dataclass(frozen=True, slots=True)
class Depths:
    """The counts of all queues at one moment."""

    #: How many jobs are in each state, by queue.
    jobs: Mapping[str, Mapping[str, int]]
    #: How long the longest waiting due job had been due, by queue, seconds; 0: nothing was due.
    oldest: Mapping[str, float]
    #: Seconds since that moment.
    age: float


class Sampling:
    """The counts of one database's queues. Safe to share between threads.

    :param timer: seconds, to measure how long a sample takes.
    """

    def __init__(self, db: QueueDB, timer: Callable[[], float] = time.perf_counter) -> None:
        self._db = db
        self._timer = timer
        self._lock = threading.Lock()
        self._taking: threading.Thread | None = None

    def depths(self) -> Depths | None:
        """The latest counts; None as long as there are none. Takes new ones, in the background, if it is time and nobody else does.

        :raises StorageError: the database does not answer.
        """
        row = self._latest()
        if row is None or row.next_at <= row.now:
            self._take_soon(row).join(_PATIENCE)
            row = self._latest()
        if row is None or row.data is None:
            return None
        data = json.loads(row.data)
        return Depths(data["jobs"], data["oldest"], max(0.0, (row.now - row.taken_at) / 1_000_000))

    def take(self, version: int | None, lasted: float = 0.0) -> bool:
        """Take the sample after ``version``, unless another process does; whether it was taken here.

        :param lasted: how long the last count took, seconds; 0: unknown.
        :raises StorageError: the count failed. The next one may begin after a rest.
        """
        database, store = self._db.database, self._db.store
        lease = min(LONGEST_LEASE, max(SHORTEST_LEASE, LEASE_TIMES * lasted))
        begin = partial(samples.begin, store=store, name=_NAME, version=version, lasts=round(lease * 1e6))
        try:
            if not database.run(begin, name="begin sample", attempts=1):
                return False
        except QueueDBError as error:
            log.debug("another process takes the sample, or the database does not answer: %s", error)
            return False
        mine = (version or 0) + 1
        try:
            self._count(mine)
        except Exception as error:
            self._give_up(mine, max(REST, REST_TIMES * lasted), error)
            raise
        return True

    def _count(self, version: int) -> None:
        began = self._timer()
        stats = [self._db.queue(name).stats() for name in self._db.queues()]
        took = self._timer() - began
        data = json.dumps(
            {
                "jobs": {one.queue: {state: getattr(one, state) for state in STATES} for one in stats},
                "oldest": {one.queue: one.oldest_available_age or 0.0 for one in stats},
                "lasted": took,
            }
        )
        finish = partial(
            samples.finish,
            store=self._db.store,
            name=_NAME,
            version=version,
            data=data,
            took=round(took * 1e6),
            rest=round(max(REST, REST_TIMES * took) * 1e6),
        )
        self._db.database.run(finish, name="sample")

    def _give_up(self, version: int, rest: float, error: Exception) -> None:
        """Let the next count begin after ``rest`` seconds, the rest after a count that succeeds, and not when the lease ends."""
        log.warning("counting the jobs of all queues failed; the next count is due in about %.0f s: %s", rest, error)
        give_up = partial(samples.give_up, store=self._db.store, name=_NAME, version=version, rest=round(rest * 1e6))
        # Where the database is away, the lease ends by itself.
        with suppress(QueueDBError):
            self._db.database.run(give_up, name="give up sample", attempts=1)

    def _latest(self) -> Row[Any] | None:
        self._db.ready()
        return self._db.database.run(partial(samples.latest, store=self._db.store, name=_NAME), name="latest sample", write=False)

    def _take_soon(self, row: Row[Any] | None) -> threading.Thread:
        with self._lock:
            if self._taking is None or not self._taking.is_alive():
                self._taking = threading.Thread(target=self._take, args=(row,), name="queue_db sampling", daemon=True)
                self._taking.start()
            return self._taking

    def _take(self, row: Row[Any] | None) -> None:
        version = None if row is None else row.version
        lasted = 0.0 if row is None or row.data is None else json.loads(row.data).get("lasted", 0.0)
        # It is logged, and the next one is begun when it is due.
        with suppress(QueueDBError):
            self.take(version, lasted)
