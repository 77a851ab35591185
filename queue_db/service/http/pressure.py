"""Too much at once: 429 beyond a rate of requests by token, or a number of waiting jobs by queue."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Mapping
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Self

from fastapi import Request

from queue_db.db import QueueDB
from queue_db.graphs.store import changing
from queue_db.service.http.refusals import RefusedError
from queue_db.service.live.incidents import IncidentType

# Seconds for which the numbers of the queues are remembered; a sample is taken every 10 s.
_REMEMBER = 5.0

# Seconds after which a queue that is full may be tried again: about when the next sample is there.
_FULL_FOR = 10

# Most tokens whose rates are remembered.
_MOST_TOKENS = 10_000


class Pressure:
    """Counts requests by token or address, and jobs by queue. Safe to share between threads.

    :param rate: most requests of one token in a second; as many may come at once. None: any number.
    :param depths: most waiting jobs of a queue, by glob pattern of its name; the first that matches counts.
    :param of: whose requests are counted together: those of a ``token``, or of an ``address``.
    """

    def __init__(self, db: QueueDB, rate: float | None, depths: Mapping[str, int], of: str = "token") -> None:
        self._db = db
        self._rate = rate
        self._of = of
        self._depths = dict(depths)
        self._lock = threading.Lock()
        # By token: requests that may come at once, and when that was so.
        self._left: dict[str, tuple[float, float]] = {}
        # Waiting jobs by queue as of the latest samples, when they were read, and jobs enqueued here since.
        self._waiting: dict[str, int] = {}
        self._read_at = -math.inf
        self._added: dict[str, int] = {}
        # The time of each queue's latest sample.
        self._sampled: dict[str, datetime] = {}

    def request(self, who: str) -> None:
        """Count a request. 429: the token or address sends too many."""
        if self._rate is None:
            return
        burst = max(1.0, self._rate)
        now = time.monotonic()
        with self._lock:
            if len(self._left) >= _MOST_TOKENS and who not in self._left:
                self._left.clear()
            left, at = self._left.get(who, (burst, now))
            left = min(burst, left + (now - at) * self._rate)
            allowed = left >= 1.0
            self._left[who] = (left - 1.0 if allowed else left), now
        if not allowed:
            wait = math.ceil((1.0 - left) / self._rate)
            raise RefusedError(
                429,
                "Too many requests",
                f"this {self._of} may send {self._rate:g} requests in a second",
                code="too_many_requests",
                retry_after=max(1, wait),
                incident=IncidentType.TOO_MANY_REQUESTS,
            )

    def check(self, queue: str, jobs: int) -> None:
        """Look whether as many jobs may be enqueued; :meth:`count` them after that. 429: too many jobs wait in this queue."""
        most = self._most(queue)
        if most is None:
            return
        self._refresh()
        with self._lock:
            waiting = self._waiting.get(queue, 0) + self._added.get(queue, 0)
        if waiting + jobs > most:
            raise RefusedError(
                429,
                "Too many jobs are waiting",
                f"queue {queue!r} may have {most:,} waiting jobs; it has about {waiting:,}, and this would add {jobs:,}",
                code="queue_full",
                retry_after=_FULL_FOR,
                incident=IncidentType.TOO_MANY_JOBS,
            )

    def limited(self) -> list[str]:
        """The queues with jobs, live or dead, that have a limit."""
        if not self._depths:
            return []
        self._refresh()
        with self._lock:
            return [queue for queue in self._waiting if self._most(queue) is not None]

    def count(self, queue: str, jobs: int) -> None:
        """Count jobs that were enqueued."""
        if self._most(queue) is not None:
            with self._lock:
                self._added[queue] = self._added.get(queue, 0) + jobs

    def _most(self, queue: str) -> int | None:
        return next((most for pattern, most in self._depths.items() if fnmatchcase(queue, pattern)), None)

    def _refresh(self) -> None:
        with self._lock:
            if time.monotonic() - self._read_at < _REMEMBER:
                return
            self._read_at = time.monotonic()
        waiting, ats = {}, {}
        for one in self._db.metrics.latest():
            waiting[one.queue], ats[one.queue] = one.available + one.scheduled + one.blocked, one.at
        with self._lock:
            # A new sample has what was enqueued here before it.
            for name in waiting:
                if self._sampled.get(name) != ats[name]:
                    self._added.pop(name, None)
            self._waiting, self._sampled = waiting, ats


class Admission:
    """The jobs that a request puts into queues: looked at before, and counted at the end, when they are there.

    ``with Admission(request) as admission: admission.check(…)``.
    """

    def __init__(self, request: Request) -> None:
        self.pressure: Pressure = request.app.state.pressure
        self._jobs: dict[str, int] = {}

    def dead(
        self, db: QueueDB, queue: str | None, *, kind: str | None, error_class: str | None, limit: int | None = None
    ) -> dict[str, int]:
        """How many dead jobs a redrive would return to each queue that has a limit, at most ``limit``. None: of all queues."""
        found = [one for one in self.pressure.limited() if queue is None or one == queue]
        numbers = {one: db.dead.count(one, kind=kind, error_class=error_class) for one in found}
        return {one: number if limit is None else min(number, limit) for one, number in numbers.items()}

    def graph(self, db: QueueDB, graph: int, node: str | None) -> Mapping[str, int]:
        """How many jobs a retry of a graph, or from one of its nodes on, would put into each queue."""
        return db.core.read("graphs.returning", changing.returning, graph, node)

    def check(self, jobs: Mapping[str, int]) -> None:
        """Look whether as many jobs may be put into each queue. 429: too many jobs wait in one of them."""
        for queue, number in jobs.items():
            self.pressure.check(queue, number)
        self._jobs = dict(jobs)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, failed: type[BaseException] | None, *_: object) -> None:
        for queue, number in {} if failed else self._jobs.items():
            self.pressure.count(queue, number)
