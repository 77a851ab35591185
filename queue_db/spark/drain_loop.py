"""What a drain's task does between its claims: keep the leases of the jobs in hand, heed the queue's controls, find the end."""

from __future__ import annotations

import contextlib
import logging
import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Self

from sqlalchemy import Connection

from queue_db import LeasedJob, Queue, QueueDBError, Strategy
from queue_db.errors import ConfigurationError
from queue_db.model import Capability, ClaimRequest, ClaimResult
from queue_db.store import Store, upcoming
from queue_db.worker.controls import Allowance

log = logging.getLogger("queue_db.spark")

#: Seconds between two looks at a queue in which nothing is due: from … to, doubling, with jitter.
FIRST_WAIT = 0.05
LONGEST_WAIT = 1.0

# Heartbeats in one lease: two may fail.
_BEATS = 3


@dataclass(frozen=True)
class Limits:
    """When a task stops to claim."""

    batch: int  #: jobs in one claim
    lease: float  #: seconds
    #: A job that is due later than so many seconds from now is not waited for.
    within: float = 0.0
    kind: str | None = None  #: claim jobs of this kind only
    jobs: int | None = None  #: claim at most so many
    until: int | None = None  #: claim nothing after this moment of the database's clock, in microseconds

    def anything_left(self, queue: Queue) -> bool:
        """Whether a job is leased, due, or due soon enough to be waited for."""
        return queue.core.read(upcoming.anything_left, queue.name, within=round(self.within * 1_000_000), kind=self.kind)


@dataclass
class Tally:
    """What a task has done."""

    claimed: int = 0
    completed: int = 0
    failed: int = 0
    drained: bool = False  #: whether nothing was left; else a limit ended the task


class Heartbeat:
    """Extends the leases of some jobs from a thread of its own, as long as the block lasts.

    It goes on for the others when some leases are lost. What the database refuses is tried again at the next beat: the lease
    outlives two failures.
    """

    def __init__(self, queue: Queue, jobs: Sequence[LeasedJob], lease: float, allowance: Allowance | None = None) -> None:
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
        # A statement that is under way changes the versions: what settles the jobs must know them.
        self._thread.join()

    def beat(self) -> None:
        """Extend the leases now.

        :raises QueueDBError: the database refused; the leases are as they were.
        """
        kept = [job for job in self._jobs if job.id not in self.lost]
        if kept:
            verdicts = self._queue.extend_many(kept, self._lease)
            self.lost |= {job.id for job, verdict in zip(kept, verdicts, strict=True) if not verdict}
        if self._allowance is not None:
            self._allowance.refresh()

    def _run(self) -> None:
        while not self._ended.wait(self._lease / _BEATS * random.uniform(0.8, 1.0)):
            try:
                self.beat()
            except QueueDBError as error:
                log.warning("the leases of %d jobs were not extended, next try soon: %s", len(self._jobs), error)


class OfKind:
    """A strategy that leaves jobs of other kinds alone.

    :param inner: how the jobs are won.
    """

    def __init__(self, inner: Strategy, kind: str) -> None:
        self._inner, self._kind = inner, kind
        self.name = inner.name
        self.needs: frozenset[Capability] = inner.needs

    def claim(self, connection: Connection, store: Store, request: ClaimRequest) -> ClaimResult:
        """Claim as the inner strategy does."""
        return self._inner.claim(connection, store, replace(request, kind=self._kind))

    def observe(self, result: ClaimResult) -> None:
        """Let the inner strategy learn."""
        self._inner.observe(result)


Settle = Callable[[Queue, Sequence[LeasedJob], Heartbeat, Tally], None]


@dataclass
class DrainLoop:
    """Claims and settles until the queue is drained or a limit is reached.

    :param settle: works on a batch within the heartbeat's block, ends the heartbeat, and settles the jobs.
    """

    queue: Queue
    limits: Limits
    settle: Settle
    tally: Tally = field(default_factory=Tally)
    _in_hand: int = field(default=0, init=False)

    def run(self) -> Tally:
        """Return when this task is done.

        :raises StorageError: as a claim does.
        :raises ConfigurationError: the strategy claimed a job of another kind; it was given back.
        """
        queue, limits, tally = self.queue, self.limits, self.tally
        allowance = self._allowance()
        ends = self._ends()
        wait = FIRST_WAIT
        told = False
        try:
            while time.monotonic() < ends:
                room = limits.batch if limits.jobs is None else min(limits.batch, limits.jobs - tally.claimed)
                if room <= 0:
                    return tally
                jobs = self._claim(allowance, room)
                if jobs:
                    tally.claimed += len(jobs)
                    self._in_hand = len(jobs)
                    self.settle(queue, jobs, Heartbeat(queue, jobs, limits.lease, allowance), tally)
                    self._in_hand = 0
                    wait, told = FIRST_WAIT, False
                    continue
                if not limits.anything_left(queue):
                    tally.drained = True
                    return tally
                if allowance.paused(queue.name) and not told:
                    log.info("queue %r is paused: waiting", queue.name)
                    told = True
                # Others hold the rest. They may be dead: only the end of their leases tells.
                time.sleep(max(0.0, min(wait * random.uniform(0.5, 1.0), ends - time.monotonic())))
                wait = min(wait * 2, LONGEST_WAIT)
            return tally
        finally:
            with contextlib.suppress(QueueDBError):  # shares end by themselves
                allowance.leave()

    def once(self) -> Tally:
        """Claim and settle one batch, if anything is due. Raises what :meth:`run` does."""
        allowance = self._allowance()
        try:
            jobs = self._claim(allowance, self.limits.batch if self.limits.jobs is None else self.limits.jobs)
            if jobs:
                self.tally.claimed += len(jobs)
                self._in_hand = len(jobs)
                self.settle(self.queue, jobs, Heartbeat(self.queue, jobs, self.limits.lease, allowance), self.tally)
        finally:
            with contextlib.suppress(QueueDBError):  # shares end by themselves
                allowance.leave()
        return self.tally

    def _allowance(self) -> Allowance:
        queue, limits = self.queue, self.limits
        return Allowance(queue.db, [queue.name], limits.lease, most=lambda _: limits.batch, in_hand=lambda _: self._in_hand)

    def _claim(self, allowance: Allowance, room: int) -> list[LeasedJob]:
        queue = self.queue
        allowance.refresh()
        granted = allowance.spend(queue.name, room) if allowance.allows(queue.name) else 0
        if granted <= 0:
            return []
        jobs = queue.claim(granted, self.limits.lease)
        allowance.refund(queue.name, granted - len(jobs))
        if self.limits.kind is not None and any(job.kind != self.limits.kind for job in jobs):
            queue.release_many(jobs)
            raise ConfigurationError(
                f"strategy {queue.db.strategy.name!r} claims jobs of other kinds than {self.limits.kind!r}: kind= needs a strategy "
                "that makes its claim of queue_db.store.lease.claim"
            )
        return jobs

    def _ends(self) -> float:
        """The moment of this machine's monotonic clock at which the task claims no more."""
        if self.limits.until is None:
            return float("inf")
        return time.monotonic() + (self.limits.until - self.queue.core.now()) / 1_000_000
