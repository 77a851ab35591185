"""Counts of the jobs by queue and state. One process counts at a time, and at most one percent of the time.

Each state of a queue is counted up to :data:`MOST` jobs, so that a queue of millions does not delay the counts of other queues. The
result is a row that all processes of the database read. For the history, another thread also counts the larger queues whole, which
takes seconds for a million jobs. This thread has its own rest between counts.
"""

from __future__ import annotations

import json
import logging
import random
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

from sqlalchemy import Row
from sqlalchemy.exc import IntegrityError

from queue_db.core import ONCE, Core
from queue_db.errors import QueueDBError, StorageError, TransientStorageError
from queue_db.monitoring import operations
from queue_db.monitoring.model import QueueStats
from queue_db.monitoring.operations import Operations
from queue_db.monitoring.store import counts, metrics, samples
from queue_db.store import Transaction

log = logging.getLogger("queue_db.monitoring.sampling")

#: Fewest seconds between two samples. After a sample that took s seconds, the rest is at least s times ``REST_TIMES``.
REST = 10.0
REST_TIMES = 100

#: The lease of the counting process, after which another process may count: ``LEASE_TIMES`` times the duration of the last count,
#: at least ``SHORTEST_LEASE`` and at most ``LONGEST_LEASE`` seconds.
LEASE_TIMES = 10
SHORTEST_LEASE = 60.0
LONGEST_LEASE = 3600.0

# Seconds for which a reader waits for a sample that is due. Most take milliseconds.
_PATIENCE = 1.0

# How often a write to rows that other processes also write is tried, and the longest pause between two tries, seconds.
_TRIES = 5
_LONGEST_PAUSE = 0.05

#: At most this many jobs are counted for each queue and state.
MOST = 10_000

_NAME = "depth"
_WHOLE = "whole"

# Seconds for summing and deleting old rows after a count; after a longer count, as many seconds as the count took. So the upkeep
# also suffices when counts are rare. _PRUNED: rows deleted in one statement.
_UPKEEP = 1.0
_PRUNED = 1000

# A queue without jobs is still listed for this many microseconds.
_SEEN = 86_400_000_000

#: The states that are counted.
STATES = ("available", "scheduled", "blocked", "running", "dead")


@dataclass(frozen=True, slots=True)
class Depths:
    """The counts of all queues at one moment."""

    #: The number of jobs by queue and state.
    jobs: Mapping[str, Mapping[str, int]]
    #: By queue, how many seconds the oldest due job had been due; 0: no job was due.
    oldest: Mapping[str, float]
    #: Seconds since the count.
    age: float
    #: By queue, the states whose count in ``jobs`` was cut off: there may be more jobs.
    capped: Mapping[str, Sequence[str]] = field(default_factory=dict)
    #: By queue, how many jobs wait because no worker has had a handler for their kind.
    unknown: Mapping[str, int] = field(default_factory=dict)
    operations: Operations = field(default_factory=Operations)


class Sampling:
    """The counts of one database's queues. Safe to share between threads.

    :param timer: a function that returns seconds, to measure how long a sample takes.
    """

    _name = _NAME

    def __init__(self, core: Core, timer: Callable[[], float] = time.perf_counter) -> None:
        self._core = core
        self._timer = timer
        self._lock = threading.Lock()
        self._taking: threading.Thread | None = None

    def depths(self) -> Depths | None:
        """The latest counts; None before the first count. Starts a new count in the background if it is due and no process counts.

        :raises StorageError: the database does not answer.
        """
        row = self._latest()
        if row is None or row.next_at <= row.now:
            self._take_soon(row).join(_PATIENCE)
            row = self._latest()
        if row is None or row.data is None:
            return None
        data = json.loads(row.data)
        return Depths(
            jobs=data["jobs"],
            oldest=data["oldest"],
            age=max(0.0, (row.now - row.taken_at) / 1_000_000),
            capped=data.get("capped", {}),
            unknown=data.get("unknown", {}),
            operations=Operations.of(data.get("operations", {})),
        )

    def latest(self) -> tuple[int, int, dict[str, Any]] | None:
        """The time of the latest sample and the present time, microseconds since 1970, and the sample; None: there is no sample."""
        row = self._latest()
        if row is None or row.data is None:
            return None
        return row.taken_at, row.now, json.loads(row.data)

    def take_if_due(self) -> bool:
        """Take the next sample if it is due; False: it is not, or another process takes it.

        :raises StorageError: the count failed.
        """
        row = self._latest()
        if row is not None and row.next_at > row.now:
            return False
        return self.take(None if row is None else row.version, _lasted(row))

    def take(self, version: int | None, lasted: float = 0.0) -> bool:
        """Take the sample after ``version``; False: another process takes it.

        :param lasted: how long the last count took, seconds; 0: unknown.
        :raises StorageError: the count failed. The next one may begin after a rest.
        """
        lease = min(LONGEST_LEASE, max(SHORTEST_LEASE, LEASE_TIMES * lasted))
        try:
            if not self._core.run(ONCE.named("monitoring.begin"), samples.begin, self._name, version, round(lease * 1e6)):
                return False
        except QueueDBError as error:
            log.debug("another process takes the sample, or the database does not answer: %s", error)
            return False
        mine = (version or 0) + 1
        began = self._timer()
        try:
            self._count(mine)
        except Exception as error:
            self._give_up(mine, max(REST, REST_TIMES * (self._timer() - began)), error)
            raise
        return True

    def counted(self) -> list[QueueStats]:
        """Count the jobs of all queues, up to :data:`MOST` of each state."""
        return [
            self._core.read("monitoring.stats", counts.stats, name, MOST)
            for name in self._core.read("monitoring.queues", counts.queues)
        ]

    def _count(self, version: int) -> None:
        before = self._latest()
        began, at = self._timer(), time.monotonic()
        stats = {one.queue: one for one in self.counted()}
        data = _data(stats, None if before is None or before.data is None else json.loads(before.data), self._core.now())
        data["operations"] = asdict(operations.look(self._core))
        self._record(data, max(_UPKEEP, time.monotonic() - at))
        self._finish(version, data, self._timer() - began)
        if data["capped"]:
            self._whole.begin(data["capped"])

    def _finish(self, version: int, data: dict[str, Any], took: float) -> None:
        data["lasted"] = took
        rest = max(REST, REST_TIMES * took)
        self._core.write(
            "monitoring.finish", samples.finish, self._name, version, json.dumps(data), round(took * 1e6), round(rest * 1e6)
        )

    def _record(self, data: Mapping[str, Any], upkeep: float) -> None:
        """Write the counts for the history. Then sum and delete old rows, for at most about ``upkeep`` seconds."""
        rows = {
            name: {
                **{state: number for state, number in states.items() if state not in data["capped"].get(name, ())},
                "held": data["held"][name],
                "oldest": round(data["oldest"][name] * 1e6) if states["available"] else None,
            }
            for name, states in data["jobs"].items()
        }
        try:
            if rows:
                write_rows(self._core, "monitoring.set_depths", metrics.set_depths, rows)
            until = time.monotonic() + upkeep
            while self._core.write("monitoring.roll_up", metrics.roll_up) and time.monotonic() < until:
                pass
            for width in metrics.KEPT:
                while self._core.write("monitoring.prune", metrics.prune, width, _PRUNED) >= _PRUNED and time.monotonic() < until:
                    pass
        except StorageError as error:
            log.warning("could not write the history of the counts: %s", error)

    def _give_up(self, version: int, rest: float, error: Exception) -> None:
        """Let the next count begin after ``rest`` seconds, not only when the lease expires."""
        if self._core.database.closed:
            log.debug("counting the jobs of queues was interrupted: %s", error)
            return
        log.warning("counting the jobs of queues failed; the next count is due in about %.0f s: %s", rest, error)
        # If the database does not answer, the next count begins when the lease expires.
        with suppress(QueueDBError):
            self._core.run(ONCE.named("monitoring.give_up"), samples.give_up, self._name, version, round(rest * 1e6))

    @cached_property
    def _whole(self) -> _WholeCounts:
        return _WholeCounts(self._core, self._timer)

    def _latest(self) -> Row[Any] | None:
        return self._core.read("monitoring.latest", samples.latest, self._name)

    def _take_soon(self, row: Row[Any] | None) -> threading.Thread:
        with self._lock:
            if self._taking is None or not self._taking.is_alive():
                self._taking = threading.Thread(target=self._take, args=(row,), name="queue_db sampling", daemon=True)
                self._taking.start()
            return self._taking

    def _take(self, row: Row[Any] | None) -> None:
        # _give_up has logged the error; the next count begins when it is due.
        with suppress(QueueDBError):
            self.take(None if row is None else row.version, _lasted(row))


class _WholeCounts(Sampling):
    """Counts, for the history, all jobs of queues with more than :data:`MOST` jobs in a state; at most one percent of the time."""

    _name = _WHOLE

    def __init__(self, core: Core, timer: Callable[[], float] = time.perf_counter) -> None:
        super().__init__(core, timer)
        self._queues: Sequence[str] = ()

    def begin(self, queues: Iterable[str]) -> None:
        """Begin to count these queues in the background, if the count is due and no other process counts them."""
        row = self._latest()
        if row is None or row.next_at <= row.now:
            self._queues = sorted(queues)
            self._take_soon(row)

    def _count(self, version: int) -> None:
        began = self._timer()
        for name in self._queues:
            one = self._core.read("monitoring.stats", counts.stats, name)
            oldest = None if one.oldest_available_age is None else round(one.oldest_available_age * 1e6)
            depths = {**{state: getattr(one, state) for state in STATES}, "held": one.held, "oldest": oldest}
            write_rows(self._core, "monitoring.set_depths", metrics.set_depths, {name: depths})
        self._finish(version, {}, self._timer() - began)


def write_rows(core: Core, name: str, change: Callable[[Transaction, Any], None], rows: Any) -> None:
    """Run ``change``; repeat it if another process inserted the same rows or held their locks."""
    for tries in range(_TRIES):
        try:
            core.run(ONCE.named(name), change, rows)
        except StorageError as error:
            locked = isinstance(error, TransientStorageError) and not error.outcome_unknown and not error.server_away
            if tries == _TRIES - 1 or not (locked or isinstance(error.__cause__, IntegrityError)):
                raise
        else:
            return
        core.database.pause(random.uniform(0.0, _LONGEST_PAUSE))


def _lasted(row: Row[Any] | None) -> float:
    """How long the count of a sample took, seconds; 0: unknown."""
    return 0.0 if row is None or row.data is None else float(json.loads(row.data).get("lasted", 0.0))


def _data(stats: Mapping[str, QueueStats], before: Mapping[str, Any] | None, now: int) -> dict[str, Any]:
    """The data of a sample as stored. A queue that has become empty has zeros in one sample, and stays in ``seen`` for a day."""
    jobs = {name: {state: getattr(one, state) for state in STATES} for name, one in stats.items()}
    oldest = {name: one.oldest_available_age or 0.0 for name, one in stats.items()}
    held = {name: one.held for name, one in stats.items()}
    seen = {name: at for name, at in ((before or {}).get("seen") or {}).items() if at > now - _SEEN}
    for name, states in (before or {}).get("jobs", {}).items():
        if name not in jobs and (any(states.values()) or (before or {}).get("held", {}).get(name)):
            jobs[name], oldest[name], held[name] = dict.fromkeys(STATES, 0), 0.0, 0
    capped = {name: one.capped for name, one in stats.items() if one.capped}
    unknown = {name: one.unknown for name, one in stats.items() if one.unknown}
    of_queues = {"jobs": jobs, "oldest": oldest, "held": held, "capped": capped, "unknown": unknown}
    return {**of_queues, "seen": seen | dict.fromkeys(stats, now)}
