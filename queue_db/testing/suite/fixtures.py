"""What the suite's tests ask for. Only ``open_db`` is yours to give; override the others where they do not fit."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import pytest
from sqlalchemy import Column, Engine, MetaData, String, Table, create_engine, delete, select

from queue_db.db import QueueDB
from queue_db.queue import Queue
from queue_db.testing.clock import SettableClock

__all__ = [
    "Notes",
    "OpenDB",
    "Statements",
    "clock",
    "db",
    "displacement",
    "most_statements",
    "name",
    "notes",
    "queue",
    "rival",
    "rival_queue",
]


class OpenDB(Protocol):
    """Opens the combination under test; ``options`` are those of QueueDB."""

    def __call__(self, **options: Any) -> QueueDB: ...


@dataclass(frozen=True)
class Statements:
    """How many statements a verb may take at most, whatever the number of jobs."""

    claim: int = 3  #: read the candidates, take them, read them back
    complete_one: int = 2  #: of a single job
    complete: int = 3  #: of several


class Notes:
    """A table of the user's own, beside the queue's, on a connection of the user's own making."""

    def __init__(self, db: QueueDB, owner: str) -> None:
        self._owner = owner
        self._table = Table(
            "conformance_notes",
            MetaData(),
            Column("id", String(36), primary_key=True),
            Column("owner", String(100), nullable=False),
            Column("text", String(100), nullable=False),
            mysql_engine="InnoDB",
            mariadb_engine="InnoDB",
        )
        #: As a user would make it, with the isolation level that the database has by default.
        self.engine: Engine = create_engine(db.database.engine.url)
        self._table.create(self.engine, checkfirst=True)

    def write(self, using: Any, text: str) -> None:
        """Write a row on a Connection or Session."""
        using.execute(self._table.insert().values(id=str(uuid.uuid4()), owner=self._owner, text=text))

    def read(self) -> list[str]:
        """What is committed."""
        with self.engine.connect() as connection:
            texts = select(self._table.c.text).where(self._table.c.owner == self._owner)
            return sorted(connection.execute(texts).scalars())

    def clear(self) -> None:
        """Remove what was written here."""
        with self.engine.begin() as connection:
            connection.execute(delete(self._table).where(self._table.c.owner == self._owner))

    def close(self) -> None:
        """Leave no rows and no connections."""
        self.clear()
        self.engine.dispose()


@pytest.fixture
def clock() -> SettableClock:
    """The time of a test: it passes only by ``clock.advance``."""
    return SettableClock()


@pytest.fixture
def db(open_db: OpenDB, clock: SettableClock) -> QueueDB:
    """The combination under test at the test's time."""
    return open_db(clock=clock, worker="first", retry_after=lambda attempt: 10.0 * attempt)


@pytest.fixture
def name(db: QueueDB) -> Iterator[str]:
    """A queue name that no other test uses, and a prefix for more; what is left in them is deleted after the test."""
    unique = f"conformance-{uuid.uuid4().hex[:12]}"
    yield unique
    with db.database.engine.begin() as connection:
        for table in (db.store.tables.jobs, db.store.tables.dead):
            connection.execute(delete(table).where(table.c.queue.between(unique, f"{unique}~")))


@pytest.fixture
def rival(open_db: OpenDB, clock: SettableClock) -> QueueDB:
    """The same as another process sees it."""
    return open_db(clock=clock, worker="rival")


@pytest.fixture
def queue(db: QueueDB, name: str) -> Queue:
    """An empty queue."""
    return db.queue(name)


@pytest.fixture
def rival_queue(rival: QueueDB, name: str) -> Queue:
    """The same queue in the other process."""
    return rival.queue(name)


@pytest.fixture
def notes(db: QueueDB, name: str) -> Iterator[Notes]:
    """The user's own table."""
    found = Notes(db, name)
    yield found
    found.close()


@pytest.fixture
def most_statements() -> Statements:
    """What the portable defaults of a dialect need. Override with what yours promises."""
    return Statements()


@pytest.fixture
def displacement() -> int:
    """How many better placed jobs a claim of one job may pass over while nobody races. Override for a strategy with a window."""
    return 0
