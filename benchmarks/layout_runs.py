"""Processes that claim and complete with the statements of a layout, and what that costs the server."""

from __future__ import annotations

import multiprocessing
import random
import secrets
import time
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sqlalchemy import column, func, select, text

from benchmarks.filling import CHUNK, numbers
from benchmarks.layout_statements import BEGINNING, Claimed, Statements, fill, statements
from benchmarks.layout_tables import LAYOUTS, WORKER, Layout
from queue_db import QueueDB
from queue_db.compare.engines import autocommitting
from queue_db.compare.machine import server_clock

QUEUE = "race"
LEASE = 600_000_000
#: Microseconds by which a low-water mark stays behind the clock: a transaction that inserts jobs may take as long.
_SLACK = 2_000_000
#: Jobs of one insert, and jobs that may wait, while jobs are enqueued and claimed at once.
_INSERTED, _BACKLOG = 500, 30_000
#: Seconds for the purge of InnoDB, and how many of its changes may be left.
_PURGE, _UNPURGED = 30.0, 20


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
        return self.db.database.run(lambda connection: work(connection, *arguments, **named), name="layouts", direct=True)

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
            by_id = self.one.layout.order[0] == "id"
            behind = jobs[0].mark - 10_000 if by_id else min(jobs[0].mark, time.time_ns() // 1000 - _SLACK)
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
        # Each has a place of its own in the window of all, and a second one behind them, so that two seldom meet.
        place = 0 if task.skip else task.number + task.processes * random.randrange(2)
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
        if not db.database.run(lambda connection: one.due(connection, QUEUE), name="due", direct=True):
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


class Meter:
    """What the server has spent: processor seconds and bytes of its log (WAL, redo log)."""

    def __init__(self, db: QueueDB) -> None:
        self.db = db
        self._clock = server_clock(db.database.engine, db.database.dialect)
        self._began = (0.0, 0)
        self.postgresql = db.database.engine.dialect.name == "postgresql"

    def begin(self) -> None:
        """Begin to count."""
        self._began = self._now()

    def end(self) -> tuple[float, int]:
        """Processor seconds and bytes since :meth:`begin`."""
        cpu, log = self._now()
        return cpu - self._began[0], log - self._began[1]

    def _now(self) -> tuple[float, int]:
        with self.db.database.engine.connect() as connection:
            if self.postgresql:
                place = func.pg_wal_lsn_diff(func.pg_current_wal_insert_lsn(), "0/0")
                log = int(connection.execute(select(place)).scalar_one())
            else:
                names = "'Innodb_lsn_current', 'Innodb_redo_log_current_lsn'"
                found = connection.execute(text(f"SHOW GLOBAL STATUS WHERE Variable_name IN ({names})")).all()
                log = int(found[0][1])
        return (self._clock() or 0.0) if self._clock else float("nan"), log

    def rows(self, layout: Layout) -> Counter[str]:
        """Dead rows, updates and HOT updates of its tables; PostgreSQL only."""
        counted: Counter[str] = Counter()
        if self.postgresql:
            query = text(
                "SELECT n_dead_tup, n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables "
                "WHERE relid = to_regclass(:name) AND schemaname = current_schema()"
            )
            time.sleep(0.3)  # a session that ends reports what it has done
            with self.db.database.engine.connect() as connection:
                for table in layout.tables:
                    dead, updates, hot = connection.execute(query, {"name": table.name}).one()
                    counted.update(dead=dead, updates=updates, hot=hot)
        return counted

    def clean(self, layout: Layout) -> tuple[float, int]:
        """Let the server remove what claims and completions have left; return what that took, as :meth:`end`."""
        self.begin()
        if self.postgresql:
            maintain(self.db, layout)
        else:
            end = time.monotonic() + _PURGE
            while time.monotonic() < end and self._unpurged() > _UNPURGED:
                time.sleep(0.1)
        return self.end()

    def _unpurged(self) -> int:
        query = text("SELECT count FROM information_schema.innodb_metrics WHERE name = 'trx_rseg_history_len'")
        with self.db.database.engine.connect() as connection:
            return int(connection.execute(query).scalar_one())


def maintain(db: QueueDB, layout: Layout) -> None:
    """Vacuum and analyze its tables; on MySQL and MariaDB only analyze."""
    if db.database.engine.dialect.name == "postgresql":
        with autocommitting(db.database.engine.url.render_as_string(hide_password=False)) as engine, engine.connect() as connection:
            for table in layout.tables:
                connection.exec_driver_sql(f"VACUUM (ANALYZE) {table.name}")
        return
    with db.database.engine.connect() as connection:
        for table in layout.tables:
            db.database.dialect.analyze(connection, table)


@contextmanager
def tables(db: QueueDB, key: str, table: str, *, autovacuum: bool = False) -> Iterator[Layout]:
    """The layout ``key`` with new tables, which are dropped at the end; without autovacuum, which would run now and then."""
    layout = LAYOUTS[key](table)
    for one in layout.tables:
        options = one.dialect_options["postgresql"]
        options["with"] = {**(options["with"] or {}), "autovacuum_enabled": autovacuum}
    with db.database.engine.begin() as connection:
        layout.payloads.metadata.drop_all(connection)
        layout.payloads.metadata.create_all(connection)
    try:
        yield layout
    finally:
        with db.database.engine.begin() as connection:
            layout.payloads.metadata.drop_all(connection)


def refill(db: QueueDB, layout: Layout, size: int, payload: str, *, ago: int = 3600) -> None:
    """Empty the tables and insert ``size`` jobs, the first due ``ago`` seconds ago; vacuum and analyze."""
    with db.database.engine.begin() as connection:
        for table in layout.tables:
            connection.exec_driver_sql(f"TRUNCATE TABLE {table.name}")
    insert(db, layout, size, payload, ago=ago)
    maintain(db, layout)


def insert(db: QueueDB, layout: Layout, size: int, payload: str, *, ago: int) -> None:
    """Insert ``size`` jobs."""
    with db.database.engine.connect() as connection:
        first = connection.execute(db.database.dialect.clock_query()).scalar_one() - ago * 1_000_000
    for start in range(0, size, CHUNK):
        made = text(numbers(db.database.engine.dialect.name, min(CHUNK, size - start))).columns(column("n")).subquery("made")
        with db.database.engine.begin() as connection:
            fill(layout, connection, made, QUEUE, first + start, payload)
