"""The interface of the laboratory: what a row of a comparison must provide. Start reading here.

A contestant declares how jobs are claimed, how finished jobs are removed and which index is used; it creates and fills its own
tables and processes their jobs in each worker. Start signal, clock, notes and end come from its :class:`WorkerContext`.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Protocol

from sqlalchemy import Engine, event
from sqlalchemy.engine import ExceptionContext

from queue_db.compare import nodes
from queue_db.compare.history import Notes
from queue_db.dialects import Dialect


@dataclass(frozen=True)
class Target:
    """Where a row runs: the database, and the schema that the laboratory created in it."""

    url: str = field(repr=False)
    schema: str | None
    #: Seconds of a lease, and of the article's ``retry_after``.
    lease: float = 4.0
    #: Number of worker processes or threads.
    workers: int = 10
    #: Number of nodes that the workers are spread over; 0: they are not spread.
    nodes: int = 0

    def of_worker(self, number: int) -> Target:
        """Return the target for a worker: its connections go to its own node."""
        return replace(self, url=nodes.of_worker(self.url, number)) if self.nodes else self


class Tally(Protocol):
    """Counters that all workers read. Each worker writes only its own, so no lock is needed."""

    def add(self, worker: int, *, begun: int = 0, left: int = 0, added: int = 0) -> None:
        """Count for ``worker``."""
        ...

    @property
    def over(self) -> bool:
        """Whether every job has left the queue, or the time limit has passed."""
        ...


@dataclass
class WorkerContext:
    """One worker's part of a run: it waits for the start, records what the worker does, and reports the end.

    :param number: number of the worker, from 0.
    :param start: blocks until the start signal and returns its time.
    :param work_seconds: duration of a job.
    :param clone: probability that a job enqueues another one.
    :param protocol: writes executions, jobs and their times, to the protocol table; None without one.
    """

    number: int
    tally: Tally
    start: Callable[[], float]
    work_seconds: float = 0.0
    clone: float = 0.0
    protocol: Callable[[Sequence[int], Sequence[float]], None] | None = None
    cpu_clock: Callable[[], float] = time.process_time
    idle: float = 0.001  #: pause after a claim without a job, seconds
    notes: Notes = field(init=False)

    def __post_init__(self) -> None:
        self.notes = Notes(self.number)
        self._cpu = 0.0

    def wait_for_start(self) -> float:
        """Wait for the start signal and return its time. Notes taken before it, during preparation, are discarded."""
        began = self.start()
        self.notes = Notes(self.number)
        self._cpu = self.cpu_clock()
        return began

    @property
    def over(self) -> bool:
        """Whether to stop: every job has left the queue, or the time limit has passed."""
        return self.tally.over

    def record_claim(self, asked: float, jobs: Sequence[int]) -> None:
        """Record a claim that began at ``asked`` (``time.monotonic()``) and won these job numbers, and do the work of the jobs."""
        now = time.monotonic()
        notes = self.notes
        notes.latencies.append(now - asked)
        notes.jobs.extend(jobs)
        if self.work_seconds or self.protocol is not None:
            times = []
            for _ in jobs:
                times.append(time.monotonic())
                if self.work_seconds:
                    time.sleep(self.work_seconds)
            notes.times.extend(times)
            if self.protocol is not None:
                self.protocol(jobs, times)
        else:
            notes.times.extend([now] * len(jobs))
        self.tally.add(self.number, begun=len(jobs))

    def record_empty_claim(self) -> None:
        """Record a claim that found no job, and pause, a millisecond, so that the other workers are not slowed down."""
        self.notes.empty += 1
        time.sleep(self.idle)

    def record_removal(self, jobs: int) -> None:
        """Record that ``jobs`` jobs have left the queue permanently."""
        self.notes.left += jobs
        self.notes.last = time.monotonic()
        self.tally.add(self.number, left=jobs)

    def enqueue_clones(self, jobs: int, enqueue: Callable[[int], object]) -> None:
        """Enqueue another job for each of ``jobs`` finished jobs, with the probability of the run."""
        count = sum(random.random() < self.clone for _ in range(jobs))
        if count:
            # Counted before they can be claimed; otherwise the run could end too early.
            self.notes.added += count
            self.tally.add(self.number, added=count)
            try:
                enqueue(count)
            except BaseException:
                self.notes.added -= count
                self.tally.add(self.number, added=-count)
                raise

    def finish(self) -> Notes:
        """Return the notes, with the processor time since the start signal."""
        self.notes.cpu = self.cpu_clock() - self._cpu
        return self.notes

    @contextmanager
    def counting(self, engine: Engine, dialect: Dialect) -> Iterator[None]:
        """Count the statements and the driver errors of ``engine`` during the ``with`` block."""

        def statement(*_: object) -> None:
            self.notes.statements += 1

        def fault(context: ExceptionContext) -> None:
            if context.sqlalchemy_exception is not None:
                self.notes.faults[dialect.errors.fault(context.sqlalchemy_exception)] += 1

        event.listen(engine, "before_cursor_execute", statement)
        event.listen(engine, "handle_error", fault)
        try:
            yield
        finally:
            event.remove(engine, "before_cursor_execute", statement)
            event.remove(engine, "handle_error", fault)


class Contestant(Protocol):
    """One row of a comparison. It is sent to the worker processes, so it must be picklable."""

    @property
    def name(self) -> str:
        """Name of the row."""
        ...

    @property
    def family(self) -> str:
        """article, product or peer."""
        ...

    @property
    def batch(self) -> int:
        """Jobs per claim."""
        ...

    @property
    def claim(self) -> str:
        """How jobs are claimed, for people."""
        ...

    @property
    def removal(self) -> str:
        """How finished jobs are removed, for people."""
        ...

    @property
    def index(self) -> str:
        """Which index claims use."""
        ...

    def window(self, workers: int) -> float | None:
        """Width of the window that claims pick from, in jobs; None without a window or with a variable one."""
        ...

    def configuration(self) -> dict[str, str]:
        """Settings to print with the figures."""
        ...

    def refused(self, target: Target) -> str | None:
        """Why it cannot run on this database, for people; None if it can."""
        ...

    def set_up(self, target: Target, jobs: int) -> None:
        """Create tables with ``jobs`` due jobs, numbered from 0 in claim order."""
        ...

    def work(self, target: Target, context: WorkerContext) -> None:
        """Run in a worker: prepare, call ``context.wait_for_start()``, then claim and remove jobs until ``context.over``."""
        ...

    def tear_down(self, target: Target) -> None:
        """Remove what ``set_up`` created, also after a partial failure."""
        ...


__all__ = ["Contestant", "Tally", "Target", "WorkerContext"]
