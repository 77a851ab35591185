"""Readers of a stream as Spark's driver is one, and all that the tables know of a queue and its streams."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, Row, delete, event, insert, select

from queue_db import QueueDB
from queue_db.spark.ranges.store import COLUMNS
from queue_db.spark.streams import store as streams
from queue_db.spark.streams.store import Offset, Part, Session
from queue_db.spark.tables import spark_tables
from queue_db.testing import SettableClock
from tests.handles import Handles

#: Microseconds without a reader after which a stream gives back what it holds.
RETENTION = 100_000_000

ID, VERSION, ATTEMPTS = COLUMNS.index("id"), COLUMNS.index("version"), COLUMNS.index("attempts")


def delivered_again(rows: list[list[tuple[Any, ...]]], times: int) -> list[list[tuple[Any, ...]]]:
    """The rows of each part some deliveries later: only the attempts differ."""
    return [[(*row[:ATTEMPTS], row[ATTEMPTS] + times, *row[ATTEMPTS + 1 :]) for row in part] for part in rows]


@pytest.fixture
def db(handles: Handles, url: str) -> QueueDB:
    return handles.get(url, "db")


@pytest.fixture
def ours(handles: Handles, url: str, clock: SettableClock) -> QueueDB:
    return handles.get(url, "ours", settable=True)


@pytest.fixture
def theirs(handles: Handles, url: str, clock: SettableClock) -> QueueDB:
    return handles.get(url, "theirs", settable=True)


@dataclass
class Reader:
    """One process that reads a stream. The functions are resolved at each call: negative controls replace them."""

    db: QueueDB
    session: Session

    def _run(self, work: Any, *, write: bool = True) -> Any:
        return self.db.database.run(work, store=self.db.store, name="stream", write=write, repeatable=True)

    # --- work for a transaction of one's own ------------------------------------------------------------------------

    def allocating(self, start: Offset, limit: int = 100, ceiling: int | None = None, partitions: int = 4) -> Any:
        return lambda tx: streams.allocate(tx, self.session, start, limit=limit, ceiling=ceiling, partitions=partitions)

    def completing(self, end: Offset) -> Any:
        return lambda tx: streams.complete(tx, self.session, end)

    # --- transactions -----------------------------------------------------------------------------------------------

    def initial(self) -> Offset:
        return self._run(lambda tx: streams.initial(tx, self.session))

    def allocate(self, start: Offset, limit: int = 100, ceiling: int | None = None, partitions: int = 4) -> Offset:
        return self._run(self.allocating(start, limit, ceiling, partitions))

    def partition(self, start: Offset, end: Offset, most: int | None = None) -> list[Part]:
        return self._run(lambda tx: streams.partition(tx, self.session, start, end, most=most))

    def complete(self, end: Offset) -> None:
        self._run(self.completing(end))

    def touch(self) -> None:
        self._run(lambda tx: streams.keep_alive(tx, self.session))

    def read(self, part: Part, page: int = 1000) -> list[tuple[Any, ...]]:
        """All rows of a part, in pages."""
        rows: list[Any] = []
        after = part.low - 1
        while True:
            read = partial(streams.read_part, stream=self.session.stream, part=part, after=after, limit=page)
            some = self._run(read, write=False)
            if not some:
                return rows
            rows += [tuple(row) for row in some]
            after = some[-1][ID]

    def rows(self, start: Offset, end: Offset) -> list[list[tuple[Any, ...]]]:
        """The rows of each part."""
        parts = self.partition(start, end)
        rows = [self.read(part) for part in parts]
        assert [len(some) for some in rows] == [part.jobs for part in parts], "a part has another number of jobs than recorded"
        return rows

    def ids(self, start: Offset, end: Offset) -> list[int]:
        return [row[ID] for rows in self.rows(start, end) for row in rows]

    def mark_dead(self, reasons: Mapping[tuple[int, int], str]) -> int:
        return self._run(partial(streams.mark_dead, stream=self.session.stream, reasons=reasons))


def open_stream(db: QueueDB, queue: str, stream: str | None = None, retention: int = RETENTION) -> Reader:
    """Open a stream, by default of the queue's name."""
    work = partial(streams.open_stream, name=stream or queue, queue=queue, holder=db.worker, retention=retention)
    return Reader(db, db.database.run(work, store=db.store, name="open stream", repeatable=True))


def enqueue(db: QueueDB, queue: str, count: int, **options: Any) -> list[int]:
    """So many jobs; their payloads are their numbers."""
    ids = db.queue(queue).enqueue_many([("kind", number, options) for number in range(count)])
    return [job_id for job_id in ids if job_id is not None]


@dataclass
class Snapshot:
    """All that the database knows of a queue and of the streams that read it."""

    jobs: list[Row[Any]]
    dead: list[Row[Any]]
    streams: list[Row[Any]]
    batches: list[Row[Any]]
    held: list[Row[Any]]

    @property
    def places(self) -> list[tuple[int, str]]:
        """Each job and where it is; one with a key that a stream holds stands in two tables and is in one place."""
        held = {(row.id, row.version) for row in self.held}
        return sorted(
            [(row.id, "queue") for row in self.jobs if (row.id, row.version) not in held]
            + [(row.id, "held") for row in self.held]
            + [(row.id, "dead") for row in self.dead]
        )


def snapshot(db: QueueDB, queue: str) -> Snapshot:
    tables = db.store.tables
    ours = spark_tables(tables)
    mine = select(ours.streams.c.id).where(ours.streams.c.queue == queue)
    parts = {
        tables.jobs: tables.jobs.c.queue == queue,
        tables.dead: tables.dead.c.queue == queue,
        ours.streams: ours.streams.c.queue == queue,
        ours.batches: ours.batches.c.stream.in_(mine),
        ours.held: ours.held.c.stream.in_(mine),
    }
    queries = [select(table).where(where).order_by(*table.primary_key.columns) for table, where in parts.items()]
    return db.database.run(
        lambda connection: Snapshot(*(list(connection.execute(query).all()) for query in queries)), name="snapshot", write=False
    )


def restore(db: QueueDB, queue: str, saved: Snapshot) -> None:
    """Put everything back as a backup knows it."""
    tables = db.store.tables
    ours = spark_tables(tables)
    now = snapshot(db, queue)
    numbers = {row.id for row in [*now.streams, *saved.streams]}

    def work(connection: Connection) -> None:
        for table in (ours.held, ours.batches):
            connection.execute(delete(table).where(table.c.stream.in_(numbers)))
        for table in (ours.streams, tables.jobs, tables.dead):
            connection.execute(delete(table).where(table.c.queue == queue))
        for name in ("jobs", "dead", "streams", "batches", "held"):
            rows: Sequence[Row[Any]] = getattr(saved, name)
            table = getattr(tables if name in ("jobs", "dead") else ours, name)
            kept = [column.name for column in table.c if column.computed is None]  # the database computes the others
            if rows:
                connection.execute(insert(table), [{name: row._mapping[name] for name in kept} for row in rows])

    db.database.run(work, name="restore")
    assert snapshot(db, queue) == saved


class Cut(Exception):
    """What a process died of."""


@contextmanager
def cut_at(engine: Engine, at: int) -> Iterator[list[str]]:
    """Die instead of the ``at``-th statement in the block; it is in the list then. Begin and end are not counted."""
    sent: list[str] = []
    cut: list[str] = []

    def before(connection: Any, cursor: Any, statement: str, *_: Any) -> None:
        if statement.startswith(("BEGIN", "SAVEPOINT", "RELEASE", "ROLLBACK", "COMMIT")):
            return
        sent.append(statement)
        if len(sent) == at:
            cut.append(statement)
            raise Cut

    event.listen(engine, "before_cursor_execute", before)
    try:
        yield cut
    finally:
        event.remove(engine, "before_cursor_execute", before)
