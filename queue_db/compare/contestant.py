"""The seam of the laboratory: what a row has to say to be run. Start reading here.

A contestant is a small declaration (how jobs are won, how they leave, by which index) that makes its own tables, fills them, and
works them off in each worker. Gun, clock, notes and end are the laboratory's: the :class:`Desk` that each worker gets.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from sqlalchemy import Engine, event
from sqlalchemy.engine import ExceptionContext

from queue_db.compare.history import Notes
from queue_db.dialects import Dialect


@dataclass(frozen=True)
class Place:
    """Where a row runs: the database, and the schema that the laboratory made there for itself."""

    url: str = field(repr=False)
    schema: str | None
    #: Seconds of a lease, and of the article's ``retry_after``.
    lease: float = 4.0
    #: Processes or threads that will work.
    workers: int = 10


class Tally(Protocol):
    """Numbers that all workers see: each writes its own place only, so that nobody waits for a lock."""

    def add(self, worker: int, *, begun: int = 0, left: int = 0, added: int = 0) -> None:
        """Count for ``worker``."""
        ...

    @property
    def over(self) -> bool:
        """Whether every job has left, or the time is up."""
        ...


@dataclass
class Desk:
    """One worker's place in a run.

    :param number: of the worker, from 0.
    :param start: blocks until the gun, and returns its time.
    :param work_seconds: how long a job takes.
    :param clone: probability that a job enqueues another one.
    :param protocol: writes ``(job, when)`` into the protocol table, where there is one.
    """

    number: int
    tally: Tally
    start: Callable[[], float]
    work_seconds: float = 0.0
    clone: float = 0.0
    protocol: Callable[[Sequence[int], Sequence[float]], None] | None = None
    cpu_clock: Callable[[], float] = time.process_time
    notes: Notes = field(init=False)

    def __post_init__(self) -> None:
        self.notes = Notes(self.number)
        self._cpu = 0.0

    def ready(self) -> None:
        """Wait for the gun. Everything before it is preparation; what was noted there is forgotten."""
        self.start()
        self.notes = Notes(self.number)
        self._cpu = self.cpu_clock()

    @property
    def over(self) -> bool:
        """Whether to stop: every job has left, or the time is up."""
        return self.tally.over

    def claimed(self, asked: float, jobs: Sequence[int]) -> None:
        """A claim that was ``asked`` for (``time.monotonic()``) has won these jobs, by number; do their work."""
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

    def found_nothing(self) -> None:
        """A claim came back empty: step aside for a moment, so that others are not slowed down."""
        self.notes.empty += 1
        time.sleep(0.001)

    def left(self, jobs: int) -> None:
        """So many jobs have left the queue, for good."""
        self.notes.left += jobs
        self.notes.last = time.monotonic()
        self.tally.add(self.number, left=jobs)

    def copy(self, jobs: int, enqueue: Callable[[int], object]) -> None:
        """After the work on ``jobs`` jobs: enqueue another one for each, with the probability of the run."""
        count = sum(random.random() < self.clone for _ in range(jobs))
        if count:
            # Told before they can be claimed, or the end comes too early.
            self.notes.added += count
            self.tally.add(self.number, added=count)
            try:
                enqueue(count)
            except BaseException:
                self.notes.added -= count
                self.tally.add(self.number, added=-count)
                raise

    def finish(self) -> Notes:
        """The notes, with the processor time since the gun."""
        self.notes.cpu = self.cpu_clock() - self._cpu
        return self.notes

    @contextmanager
    def watched(self, engine: Engine, dialect: Dialect) -> Iterator[None]:
        """Count statements and the driver's errors on ``engine``."""

        def statement(*_: object) -> None:
            self.notes.statements += 1

        def fault(context: ExceptionContext) -> None:
            if context.sqlalchemy_exception is not None:
                self.notes.faults[dialect.fault(context.sqlalchemy_exception)] += 1

        event.listen(engine, "before_cursor_execute", statement)
        event.listen(engine, "handle_error", fault)
        try:
            yield
        finally:
            event.remove(engine, "before_cursor_execute", statement)
            event.remove(engine, "handle_error", fault)


class Contestant(Protocol):
    """One row of a comparison. Made once, sent to the worker processes: it must pickle."""

    @property
    def name(self) -> str:
        """What it is called."""
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
        """How jobs are won, in words."""
        ...

    @property
    def removal(self) -> str:
        """How finished jobs leave, in words."""
        ...

    @property
    def index(self) -> str:
        """By which index claims find jobs."""
        ...

    def window(self, workers: int) -> float | None:
        """Width of the window that claims draw from, in jobs; None if it has none or changes it."""
        ...

    @property
    def pick(self) -> str | None:
        """How one job is drawn from the window: head, uniform, geometric or slot; None without a window."""
        ...

    def configuration(self) -> dict[str, str]:
        """Settings that people should see beside the figures."""
        ...

    def refused(self, place: Place) -> str | None:
        """Why it cannot run here, in words; None if it can."""
        ...

    def set_up(self, place: Place, jobs: int) -> None:
        """Make fresh tables with ``jobs`` due jobs, numbered from 0 in the order in which they should be worked on."""
        ...

    def work(self, place: Place, desk: Desk) -> None:
        """In a worker: prepare, ``desk.ready()``, and claim, work, remove until ``desk.over``."""
        ...

    def tear_down(self, place: Place) -> None:
        """Remove what ``set_up`` made, also after it failed half-way."""
        ...


__all__ = ["Contestant", "Desk", "Place", "Tally"]
