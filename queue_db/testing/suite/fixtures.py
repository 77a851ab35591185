"""The fixtures of the suite. You define ``open_db``; override the others where they do not fit."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import pytest
from sqlalchemy import Column, Engine, MetaData, String, Table, create_engine, delete, select

from queue_db.database import addresses
from queue_db.db import QueueDB
from queue_db.errors import SchemaOutOfDateError
from queue_db.model import Capability
from queue_db.queue import Queue
from queue_db.strategies.adaptive import FIRST_WINDOW, Adaptive
from queue_db.testing.clock import SettableClock
from queue_db.testing.lone_changes import lone_changes

__all__ = [
    "Notes",
    "OpenDB",
    "Statements",
    "clock",
    "db",
    "displacement",
    "most_statements",
    "name",
    "no_lone_changes",
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
    """The most statements that a verb may send, for any number of jobs."""

    claim: int = 3  #: read the candidates, update them, read the updated rows
    complete_one: int = 2  #: of a single job
    complete: int = 3  #: of several


class Notes:
    """A table of the user, beside those of the queue, on an engine of the user."""

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
        #: With the default isolation level of the database, as a user would create it.
        self.engine: Engine = create_engine(db.database.engine.url)
        addresses.follow(self.engine, db.database.dialect)
        self._table.create(self.engine, checkfirst=True)

    def write(self, using: Any, text: str) -> None:
        """Write a row on a Connection or Session."""
        using.execute(self._table.insert().values(id=str(uuid.uuid4()), owner=self._owner, text=text))

    def read(self) -> list[str]:
        """The committed texts, sorted."""
        with self.engine.connect() as connection:
            texts = select(self._table.c.text).where(self._table.c.owner == self._owner)
            return sorted(connection.execute(texts).scalars())

    def clear(self) -> None:
        """Delete the rows of this owner."""
        with self.engine.begin() as connection:
            connection.execute(delete(self._table).where(self._table.c.owner == self._owner))

    def close(self) -> None:
        """Delete the rows and close the connections."""
        self.clear()
        self.engine.dispose()


@pytest.fixture(autouse=True)
def no_lone_changes() -> Iterator[None]:
    """Several changes of one transaction commit together: ``tx.begin()`` comes before them."""
    with lone_changes() as found:
        yield
    assert not found, "\n".join(["tx.begin() is missing before these statements of one transaction:", *found])


@pytest.fixture
def clock() -> SettableClock:
    """The clock of a test: it moves only by ``clock.advance``."""
    return SettableClock()


@pytest.fixture
def db(open_db: OpenDB, clock: SettableClock) -> QueueDB:
    """The combination under test, on the clock of the test."""
    opened = open_db(clock=clock, worker="first", retry_after=lambda attempt: 10.0 * attempt)
    try:
        opened.core.ready()
    except SchemaOutOfDateError as error:  # otherwise each of hundreds of tests would say so
        pytest.exit(f"open_db opens a database that is not migrated: {error}", returncode=pytest.ExitCode.USAGE_ERROR)
    return opened


@pytest.fixture
def name(db: QueueDB) -> Iterator[str]:
    """A unique queue name, and a prefix for more; jobs that are left in these queues are deleted after the test."""
    unique = f"conformance-{uuid.uuid4().hex[:12]}"
    yield unique
    with db.database.engine.begin() as connection:
        for table in (db.store.tables.jobs, db.store.tables.dead):
            connection.execute(delete(table).where(table.c.queue.between(unique, f"{unique}~")))


@pytest.fixture
def rival(open_db: OpenDB, clock: SettableClock) -> QueueDB:
    """A second QueueDB object on the same database, as another process would open it."""
    return open_db(clock=clock, worker="rival")


@pytest.fixture
def queue(db: QueueDB, name: str) -> Queue:
    """An empty queue."""
    return db.queue(name)


@pytest.fixture
def rival_queue(rival: QueueDB, name: str) -> Queue:
    """The queue of the test, opened by ``rival``."""
    return rival.queue(name)


@pytest.fixture
def notes(db: QueueDB, name: str) -> Iterator[Notes]:
    """A table of the user."""
    found = Notes(db, name)
    yield found
    found.close()


@pytest.fixture
def most_statements() -> Statements:
    """The bounds of the portable defaults of a dialect. Override them with those of yours."""
    return Statements()


@pytest.fixture
def displacement(db: QueueDB) -> int:
    """The most earlier jobs that a claim of one job may skip without a race. Override for a strategy with a window."""
    # In a cluster with several writers `adaptive` begins with a window: a race is lost only at the COMMIT, and costs a transaction.
    windowed = isinstance(db.strategy, Adaptive) and Capability.SEVERAL_WRITERS in db.database.capabilities
    return FIRST_WINDOW - 1 if windowed else 0
