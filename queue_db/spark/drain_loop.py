"""The loop of a drain's task: claim a batch, settle it, until the queue is drained or a limit is reached.

Meanwhile it extends the leases of the jobs in flight and obeys the queue's pause, rate and concurrency.
"""

from __future__ import annotations

import contextlib
import logging
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from types import TracebackType
from typing import Any, Self

import pyarrow as pa
from sqlalchemy import BigInteger, literal, select

from queue_db import Counters, LeasedJob, Queue, QueueDBError, Strategy
from queue_db.database.transaction import Run
from queue_db.errors import ConfigurationError
from queue_db.limits.limiter import RateLimiter
from queue_db.model import Capability, ClaimRequest, ClaimResult
from queue_db.spark.target import Target
from queue_db.store import Transaction
from queue_db.store.schema import NEVER
from queue_db.strategies import strategy_for

log = logging.getLogger("queue_db.spark")

#: Seconds between two polls of a queue in which nothing is due: first and longest; doubling, with jitter.
FIRST_WAIT = 0.05
LONGEST_WAIT = 1.0

# Heartbeats in one lease: two may fail.
_BEATS = 3

#: What a task counts beside its Tally: the counters of its QueueDB.
COUNTERS = tuple(field.name for field in fields(Counters))

#: Everything that a task counts.
COUNTED = ("completed", "failed", "drained", *COUNTERS)


@dataclass(frozen=True)
class Limits:
    """When a task stops claiming."""

    batch: int  #: jobs in one claim
    lease: float  #: seconds
    #: Seconds; jobs that are due later than that from now are not waited for.
    within: float = 0.0
    kind: str | None = None  #: claim jobs of this kind only
    jobs: int | None = None  #: jobs to claim at most
    until: int | None = None  #: claim nothing after this time of the database's clock, microseconds

    def anything_left(self, queue: Queue) -> bool:
        """Whether a job is leased, due, or due soon enough to be waited for."""
        within = round(self.within * 1_000_000)
        return queue.core.run(Run("drain", write=False), _anything_left, queue.name, within=within, kind=self.kind)


def _anything_left(tx: Transaction, queue: str, within: int, kind: str | None = None) -> bool:
    """Whether ``queue`` has a job that is leased, or due at most ``within`` microseconds from now.

    A job that waits for others of its group does not count, since one of these does; nor one that a slice holds.

    :param kind: only jobs of this kind.
    """
    jobs = tx.tables.jobs
    near = jobs.c.available_at <= tx.now + literal(within, BigInteger)
    mine = [jobs.c.queue == queue, jobs.c.delete_mark == 0, jobs.c.available_at < NEVER, near | jobs.c.claim_token.is_not(None)]
    if kind is not None:
        mine.append(jobs.c.kind == kind)
    return tx.connection.execute(select(literal(1)).where(*mine).limit(1), tx.time()).first() is not None


@dataclass
class Tally:
    """The jobs of one task."""

    claimed: int = 0
    completed: int = 0
    failed: int = 0
    drained: bool = False  #: whether the queue was empty at the end; False: a limit ended the task


class Heartbeat:
    """Extends the leases of some jobs from a thread of its own while the block runs.

    Lost leases are skipped from then on. An extension that the database refuses is tried again at the next beat: a lease outlives
    two failures.
    """

    def __init__(self, queue: Queue, jobs: Sequence[LeasedJob], lease: float, allowance: RateLimiter | None = None) -> None:
        self._queue, self._jobs, self._lease, self._allowance = queue, list(jobs), lease, allowance
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="queue_db-heartbeat", daemon=True)
        #: Ids of the jobs whose leases were lost.
        self.lost: set[int] = set()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._ended.set()
        # An extension that is running changes the versions, and settling needs the new ones.
        self._thread.join()

    def beat(self) -> None:
        """Extend the leases now.

        :raises QueueDBError: the database refused; the leases are unchanged.
        """
        leased = [job for job in self._jobs if job.id not in self.lost]
        if leased:
            verdicts = self._queue.extend_many(leased, self._lease)
            self.lost |= {job.id for job, verdict in zip(leased, verdicts, strict=True) if not verdict}
        if self._allowance is not None:
            self._allowance.refresh()

    def _run(self) -> None:
        while not self._ended.wait(self._lease / _BEATS * random.uniform(0.8, 1.0)):
            try:
                self.beat()
            except QueueDBError as error:
                log.warning("could not extend the leases of %d jobs, will retry: %s", len(self._jobs), error)


class OfKind:
    """A strategy that claims jobs of one kind only.

    :param inner: the strategy that wins them.
    """

    def __init__(self, inner: Strategy, kind: str) -> None:
        self._inner, self._kind = inner, kind
        self.name = inner.name
        self.needs: frozenset[Capability] = inner.needs

    def claim(self, tx: Transaction, request: ClaimRequest) -> ClaimResult:
        """Claim as the inner strategy does."""
        return self._inner.claim(tx, replace(request, kind=self._kind))

    def observe(self, result: ClaimResult) -> None:
        """Let the inner strategy learn."""
        self._inner.observe(result)


Settle = Callable[[Queue, Sequence[LeasedJob], Heartbeat, Tally], None]
"""Works on a batch while the heartbeat runs, ends the heartbeat, and settles the jobs."""


@dataclass
class DrainLoop:
    """Claims and settles batches until the queue is drained or a limit is reached."""

    queue: Queue
    limits: Limits
    settle: Settle
    tally: Tally = field(default_factory=Tally)
    _in_flight: int = field(default=0, init=False)

    def run(self) -> Tally:
        """Return when this task is done.

        :raises StorageError: as a claim does.
        :raises ConfigurationError: the strategy claimed a job of another kind; it was released.
        """
        limits, tally = self.limits, self.tally
        ends = self._ends()
        wait, logged = FIRST_WAIT, False
        with self._allowance() as allowance:
            while time.monotonic() < ends:
                room = limits.batch if limits.jobs is None else min(limits.batch, limits.jobs - tally.claimed)
                if room <= 0:
                    return tally
                if self._batch(allowance, room):
                    wait, logged = FIRST_WAIT, False
                    continue
                if not limits.anything_left(self.queue):
                    tally.drained = True
                    return tally
                if allowance.paused(self.queue.name) and not logged:
                    log.info("queue %r is paused: waiting", self.queue.name)
                    logged = True
                # Others hold the rest. If they are dead, it comes back when their leases end.
                time.sleep(max(0.0, min(wait * random.uniform(0.5, 1.0), ends - time.monotonic())))
                wait = min(wait * 2, LONGEST_WAIT)
        return tally

    def once(self) -> Tally:
        """Claim and settle one batch, if anything is due. Raises the errors of :meth:`run`."""
        with self._allowance() as allowance:
            self._batch(allowance, self.limits.batch if self.limits.jobs is None else self.limits.jobs)
        return self.tally

    def _batch(self, allowance: RateLimiter, room: int) -> bool:
        """Claim up to ``room`` jobs and settle them; False: there were none."""
        jobs = self._claim(allowance, room)
        if not jobs:
            return False
        self.tally.claimed += len(jobs)
        self._in_flight = len(jobs)
        self.settle(self.queue, jobs, Heartbeat(self.queue, jobs, self.limits.lease, allowance), self.tally)
        self._in_flight = 0
        return True

    @contextlib.contextmanager
    def _allowance(self) -> Iterator[RateLimiter]:
        """The task's share of the queue's rate and concurrency."""
        queue, limits = self.queue, self.limits
        allowance = RateLimiter(
            queue.db, [queue.name], limits.lease, most=lambda _: limits.batch, in_hand=lambda _: self._in_flight
        )
        try:
            yield allowance
        finally:
            allowance.return_all()

    def _claim(self, allowance: RateLimiter, room: int) -> list[LeasedJob]:
        queue = self.queue
        allowance.refresh()
        granted = allowance.take(queue.name, room)
        if not granted:
            return []
        jobs = queue.claim(granted, self.limits.lease)
        allowance.give_back(queue.name, granted - len(jobs))
        if self.limits.kind is not None and any(job.kind != self.limits.kind for job in jobs):
            queue.release_many(jobs)
            raise ConfigurationError(
                f"strategy {queue.core.strategy.name!r} claims jobs of other kinds than {self.limits.kind!r}: kind= needs a "
                "strategy that claims through queue_db.store.lease.claim"
            )
        return jobs

    def _ends(self) -> float:
        """When claiming ends, by this machine's monotonic clock."""
        if self.limits.until is None:
            return float("inf")
        return time.monotonic() + (self.limits.until - self.queue.core.now()) / 1_000_000


@dataclass(frozen=True)
class DrainTask:
    """What all tasks of one drain share. It is pickled into them.

    :param settings: keyword arguments of QueueDB.
    :param strategy: a name, or a function that makes a Strategy in each task.
    """

    target: Target
    settings: Mapping[str, Any]
    queue: str
    strategy: str | Callable[[], Strategy]
    limits: Limits

    def run(self, settle: Settle, *, jobs: int | None = None, once: bool = False) -> dict[str, int]:
        """Claim and settle; return what was counted, by :data:`COUNTED`.

        :param jobs: claim at most this many.
        :param once: claim one batch only.
        """
        limits = replace(self.limits, jobs=jobs)
        strategy = strategy_for(self.strategy if isinstance(self.strategy, str) else self.strategy())
        if limits.kind is not None:
            strategy = OfKind(strategy, limits.kind)
        with self.target.open(strategy=strategy, **self.settings) as db:
            loop = DrainLoop(db.queue(self.queue), limits, settle)
            tally = loop.once() if once else loop.run()
            counted = {"completed": tally.completed, "failed": tally.failed, "drained": int(tally.drained)}
            return counted | {name: getattr(db.counters, name) for name in COUNTERS}


def task_number(rows: Iterable[pa.RecordBatch]) -> int:
    """The number of a task, which is its only row. All input is read: Spark discards a Python process that leaves some unread."""
    (number,) = (number for batch in rows for number in batch.column(0).to_pylist())
    return int(number)


def share(jobs: int, partitions: int, number: int) -> int:
    """How many of ``jobs`` the task of this number may claim."""
    return jobs // partitions + (number < jobs % partitions)
