"""Processes that claim and complete with the statements of a layout."""

from __future__ import annotations

import multiprocessing
import random
import secrets
import time
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from benchmarks.layouts.portable import PortableStatements
from benchmarks.layouts.postgresql import PostgreSQLStatements
from benchmarks.layouts.server import QUEUE
from benchmarks.layouts.statements import BEGINNING, Claimed, Statements
from benchmarks.layouts.tables import LAYOUTS, WORKER, Layout
from queue_db import QueueDB
from queue_db.dialects import Dialect

LEASE = 600_000_000
#: Microseconds by which a low-water mark stays behind the clock: a transaction that inserts jobs may take as long.
_SLACK = 2_000_000
#: One claim in this many begins at the head of the queue.
_HEAD = 16
#: Jobs of one insert, and jobs that may wait, while jobs are enqueued and claimed at once.
_INSERTED, _BACKLOG = 500, 30_000


def statements(layout: Layout, dialect: Dialect) -> Statements:
    """The statements of a layout for this database."""
    return (PostgreSQLStatements if "postgresql" in dialect.names else PortableStatements)(layout, dialect)


class Task(NamedTuple):
    """What one process does.

    :param layout: key of ``LAYOUTS``.
    :param table: name of its tables.
    :param until: how many seconds it runs; None: until nothing is due.
    :param inserts: whether it enqueues instead.
    """

    layout: str
    table: str
    batch: int
    skip: bool
    number: int
    processes: int
    payload: str
    until: float | None = None
    inserts: bool = False


@dataclass
class Done:
    """What one process, or all of them, have done."""

    ids: list[int] = field(default_factory=list)
    claims: int = 0
    short: int = 0  #: claims that won fewer jobs than they asked for
    lost: int = 0  #: jobs whose completion had no effect
    cpu: float = 0.0
    ended: float = 0.0
    faults: int = 0

    def add(self, other: Done) -> None:
        """Add what another process has done."""
        self.ids += other.ids
        self.claims, self.short, self.lost = self.claims + other.claims, self.short + other.short, self.lost + other.lost
        self.cpu, self.ended, self.faults = self.cpu + other.cpu, max(self.ended, other.ended), self.faults + other.faults


class Consumer:
    """Claims and completes through one :class:`QueueDB`, with a low-water mark."""

    def __init__(self, db: QueueDB, one: Statements, *, skip: bool, queue: str = QUEUE) -> None:
        self.db, self.one, self.skip, self.queue = db, one, skip, queue
        self.floor = BEGINNING

    def run(self, work: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """Run statements in one transaction, and again after a deadlock."""
        return self.db.database.run(lambda connection: work(connection, *arguments, **named), name="layouts", lazy=True)

    def claim(self, batch: int, start: int = 0, *, lease: int = LEASE) -> list[Claimed]:
        """Claim up to ``batch`` jobs, ``start`` jobs behind the first."""
        values = {
            "in_queue": self.queue,
            "floor": self.floor,
            "limit": batch,
            "start": start,
            "lease": lease,
            "token": secrets.token_hex(16),
            "by_worker": WORKER,
        }
        jobs: list[Claimed] = self.run(self.one.claim, values, skip=self.skip)
        if jobs and start == 0:
            # The order of ids has no clock: its mark is right while no job is enqueued.
            by_id = self.one.layout.order[0] == "id"
            behind = jobs[0].mark if by_id else min(jobs[0].mark, time.time_ns() // 1000 - _SLACK)
            self.floor = max(self.floor, behind)
        return jobs

    def complete(self, jobs: Sequence[Claimed]) -> int:
        """Complete; return how many leases still held."""
        return int(self.run(self.one.complete, [(job.id, job.version) for job in jobs]))


def consume(db: QueueDB, task: Task, one: Statements, wait: Callable[[], object], counts: Any) -> Done:
    """Claim and complete until nothing is due, or the time is over."""
    done, consumer = Done(), Consumer(db, one, skip=task.skip)
    # Statements are compiled and prepared before the time begins.
    consumer.queue = "none"
    consumer.claim(task.batch)
    consumer.complete([Claimed(-1, 0, "", 0)])
    consumer.queue = QUEUE
    ids = array("q")
    wait()
    spent, began = time.process_time(), time.monotonic()
    while task.until is None or time.monotonic() - began < task.until:
        # Each has a place of its own in the window of all, and a second one behind them, so that two seldom meet; now and then it
        # looks where the queue begins.
        head = task.skip or done.claims % _HEAD == 0
        place = 0 if head else task.number + task.processes * random.randrange(2)
        jobs = consumer.claim(task.batch, place * task.batch)
        if not jobs and place:
            jobs = consumer.claim(task.batch)
        done.claims += 1
        done.short += len(jobs) < task.batch
        if jobs:
            left = consumer.complete(jobs)
            done.lost += len(jobs) - left
            ids.extend([job.id for job in jobs])
            if task.until is not None:
                with counts.get_lock():
                    counts.value -= left
            continue
        consumer.floor = BEGINNING
        if not db.database.run(lambda connection: one.due(connection, QUEUE), name="due", lazy=True):
            if task.until is None:
                break
            time.sleep(0.002)
    done.cpu, done.ended = time.process_time() - spent, time.monotonic()
    done.ids = list(ids)
    return done


def produce(db: QueueDB, task: Task, one: Statements, wait: Callable[[], object], counts: Any) -> Done:
    """Enqueue until the time is over, while not too many jobs wait."""
    done, consumer = Done(), Consumer(db, one, skip=False)
    payloads = [task.payload] * _INSERTED
    wait()
    spent, began = time.process_time(), time.monotonic()
    while time.monotonic() - began < (task.until or 0.0):
        if counts.value > _BACKLOG:
            time.sleep(0.002)
            continue
        consumer.run(one.enqueue, QUEUE, payloads)
        with counts.get_lock():
            counts.value += _INSERTED
    done.cpu, done.ended = time.process_time() - spent, time.monotonic()
    return done


def _member(url: str, tasks: Any, results: Any, ready: Any, counts: Any) -> None:
    """A process: one task after the other."""
    for task in iter(tasks.get, None):
        with QueueDB(url, pool_size=1) as db:
            one = statements(LAYOUTS[task.layout](task.table), db.database.dialect)
            done = (produce if task.inserts else consume)(db, task, one, ready.wait, counts)
            counters = db.counters
            done.faults = counters.deadlocks + counters.serialization_failures + counters.lock_timeouts + counters.other_errors
        results.put(done)


class Gang:
    """Processes that are started once."""

    def __init__(self, url: str, processes: int) -> None:
        context = multiprocessing.get_context("spawn")
        self.processes = processes
        self._ready, self._results = context.Barrier(processes + 1), context.Queue()
        self.counts = context.Value("q", 0)
        self._tasks = [context.SimpleQueue() for _ in range(processes)]
        self._members = [
            context.Process(target=_member, args=(url, tasks, self._results, self._ready, self.counts), daemon=True)
            for tasks in self._tasks
        ]
        for member in self._members:
            member.start()

    def run(self, tasks: Sequence[Task], begin: Callable[[], None]) -> tuple[float, Done]:
        """Run a task in each process; ``begin`` is called when all are ready. Return the seconds and what was done."""
        self.counts.value = 0
        for queue, task in zip(self._tasks, tasks, strict=True):
            queue.put(task)
        while self._ready.n_waiting < self.processes:
            if not all(member.is_alive() for member in self._members):
                raise AssertionError("a process has ended")
            time.sleep(0.005)
        begin()
        began = time.monotonic()
        self._ready.wait()
        done = Done()
        for _ in tasks:
            done.add(self._results.get())
        return done.ended - began, done

    def close(self) -> None:
        """End the processes."""
        for queue in self._tasks:
            queue.put(None)
        for member in self._members:
            member.join(10)
            member.kill()
