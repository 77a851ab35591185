"""Callbacks: a job that is enqueued when the last of some others has left, in the transaction in which that one leaves."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any

from sqlalchemy import Row, delete, insert, select, update

from queue_db.dialects.clock import moment
from queue_db.model import NewJob
from queue_db.store.base import Transaction


class Departure(StrEnum):
    """How a job left its queue."""

    COMPLETED = "completed"
    DEAD = "dead"
    CANCELLED = "cancelled"


def make(tx: Transaction, job: NewJob) -> int:
    """A callback that enqueues ``job``, for jobs that are yet to be counted; its id."""
    table = tx.tables.callbacks
    same = ("queue", "kind", "payload", "headers", "priority", "max_attempts")
    values = {name: getattr(job, name) for name in same} | {
        "size": 0,
        "pending": 0,
        "created_at": moment(tx.store.clock is not None),
    }
    made = tx.connection.execute(insert(table).values(values), tx.time())
    assert made.inserted_primary_key is not None  # noqa: S101 - of one row it is known
    return int(made.inserted_primary_key[0])


def expect(tx: Transaction, callback: int, jobs: int) -> list[NewJob]:
    """Say how many jobs it waits for; what is due when that is none."""
    table = tx.tables.callbacks
    tx.connection.execute(update(table).where(table.c.id == callback).values(size=jobs, pending=jobs))
    return _over(tx, [callback])


def count_down(tx: Transaction, left: Iterable[tuple[int, Departure]]) -> list[NewJob]:
    """So many jobs of these callbacks have left; the jobs that are due when a callback has none left."""
    table = tx.tables.callbacks
    departures = Counter(left)
    ids = sorted({callback for callback, _ in departures})
    for callback in ids:  # in one order, since each waits for others that count down the same one
        completed, dead, cancelled = (
            departures[callback, departure] for departure in (Departure.COMPLETED, Departure.DEAD, Departure.CANCELLED)
        )
        values = {
            "pending": table.c.pending - (completed + dead + cancelled),
            "dead": table.c.dead + dead,
            "cancelled": table.c.cancelled + cancelled,
        }
        tx.connection.execute(update(table).where(table.c.id == callback).values(values))
    return _over(tx, ids)


def find(tx: Transaction, callback: int) -> Row[Any] | None:
    """The row of a callback with jobs that have not left."""
    table = tx.tables.callbacks
    return tx.connection.execute(select(table).where(table.c.id == callback)).first()


def page(tx: Transaction, *, below: int | None, limit: int) -> Sequence[Row[Any]]:
    """Callbacks with jobs that have not left, newest first."""
    table = tx.tables.callbacks
    chosen = select(table).order_by(table.c.id.desc()).limit(limit)
    return tx.connection.execute(chosen if below is None else chosen.where(table.c.id < below)).all()


def _over(tx: Transaction, callbacks: list[int]) -> list[NewJob]:
    table = tx.tables.callbacks
    over = tx.connection.execute(select(table).where(table.c.id.in_(callbacks), table.c.pending <= 0).order_by(table.c.id)).all()
    if over:
        tx.connection.execute(delete(table).where(table.c.id.in_([row.id for row in over])))
    return [_job(row) for row in over]


def _job(row: Row[Any]) -> NewJob:
    """The job to enqueue; its headers say what became of the others."""
    headers: Mapping[str, Any] = json.loads(row.headers) if row.headers else {}
    became = {"id": row.id, "jobs": row.size, "dead": row.dead, "cancelled": row.cancelled}
    return NewJob(
        queue=row.queue,
        kind=row.kind,
        payload=row.payload,
        headers=json.dumps({**headers, "batch": became}, separators=(",", ":")),
        priority=row.priority,
        max_attempts=row.max_attempts,
    )
