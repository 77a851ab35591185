"""Bulk loads by hand: the task's part, the driver's part, and the contents of the tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
from sqlalchemy import func, select

from queue_db import QueueDB
from queue_db.spark.staging import store as staging
from queue_db.spark.staging.chunks import pack
from queue_db.spark.staging.store import Load, Published
from queue_db.spark.tables import spark_tables
from queue_db.store import Transaction
from queue_db.store.enqueue import OnDuplicate
from tests.handles import Handles


@dataclass(frozen=True)
class Attempt:
    """A task's message to the driver."""

    number: int
    chunks: int
    jobs: int


@pytest.fixture
def db(handles: Handles, url: str) -> QueueDB:
    return handles.get(url, "db")


@pytest.fixture
def ours(handles: Handles, url: str) -> QueueDB:
    return handles.get(url, "ours")


@pytest.fixture
def theirs(handles: Handles, url: str) -> QueueDB:
    return handles.get(url, "theirs")


def load(queue: str, app: str, version: int = 1, *, kept: bool = True, policy: str = "raise", **more: Any) -> Load:
    """An entry of the ledger. ``fields``: what the chunks have besides payloads; the rest are defaults of the jobs."""
    fields = ("payload", *more.pop("fields", ()))
    return Load(queue, app, version, fields, {**staging.DEFAULTS, **more}, OnDuplicate(policy), kept)


def chunk_of(given: Mapping[str, Sequence[Any]] | Sequence[str]) -> tuple[int, str]:
    """Payloads, or field → values, as a task stages them."""
    columns = given if isinstance(given, Mapping) else {"payload": given}
    return len(columns["payload"]), pack(columns)


def new_number(db: QueueDB) -> int:
    """A new attempt's number."""
    return db.core.write("staging.new_attempt", staging.new_attempt)


def stage(db: QueueDB, *chunks: Mapping[str, Sequence[Any]] | Sequence[str], number: int | None = None) -> Attempt:
    """What one task attempt stages."""
    attempt = new_number(db) if number is None else number
    work = partial(staging.stage, attempt=attempt, chunks=[chunk_of(chunk) for chunk in chunks])
    return Attempt(attempt, *db.database.run(work, store=db.store, name="stage", attempts=1))


def publishing(entry: Load, *attempts: Attempt) -> Callable[[Transaction], Published | None]:
    """The publication of these attempts, for a transaction of one's own."""
    # Resolved when it runs: the negative controls replace it.
    return lambda tx: staging.publish(
        tx,
        entry,
        {attempt.number: attempt.chunks for attempt in attempts},
        sum(attempt.jobs for attempt in attempts),
    )


def publish(db: QueueDB, entry: Load, *attempts: Attempt) -> Published | None:
    """As the driver does it."""
    return db.database.run(publishing(entry, *attempts), store=db.store, name="publish", repeatable=True)


def discarding(*attempts: Attempt) -> Callable[[Transaction], int]:
    return partial(staging.discard, attempts=[attempt.number for attempt in attempts])


def discard(db: QueueDB, *attempts: Attempt) -> int:
    return db.database.run(discarding(*attempts), store=db.store, name="discard", repeatable=True)


def load_at_once(db: QueueDB, entry: Load, rows: Mapping[str, Sequence[Any]] | Sequence[str]) -> int:
    """As a task does it that stages nothing."""
    columns = rows if isinstance(rows, Mapping) else {"payload": rows}
    return db.core.write("staging.load_at_once", staging.load_at_once, load=entry, columns=columns)


def ledger(db: QueueDB, entry: Load) -> Published | None:
    work = partial(staging.ledger, app=entry.app, version=entry.version, queue=entry.queue)
    return db.database.run(work, store=db.store, name="ledger", write=False)


def staged(db: QueueDB, *attempts: Attempt) -> int:
    """The number of their staged chunks."""
    table = spark_tables(db.store.tables).staged
    query = select(func.count()).where(table.c.attempt.in_([attempt.number for attempt in attempts]))
    return db.database.run(lambda connection: connection.execute(query).scalar_one(), name="staged", write=False)


def jobs_of(db: QueueDB, queue: str) -> list[Any]:
    """The rows of a queue, by id."""
    jobs = db.store.tables.jobs
    query = select(jobs).where(jobs.c.queue == queue).order_by(jobs.c.id)
    return db.database.run(lambda connection: list(connection.execute(query).all()), name="jobs", write=False)


def payloads(db: QueueDB, queue: str) -> list[str]:
    return sorted(row.payload for row in jobs_of(db, queue))


def nothing_was_published(db: QueueDB, entry: Load) -> None:
    assert payloads(db, entry.queue) == [], "some of it was published"
    assert ledger(db, entry) is None, "the ledger has it as published"
