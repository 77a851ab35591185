"""Batches: jobs with one callback job, which is enqueued in the transaction in which the last of these jobs leaves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import Row, delete, insert, select, update

from queue_db.groups.tables import group_tables
from queue_db.model import NewJob
from queue_db.store.base import Transaction
from queue_db.store.on_leave import Departure
from queue_db.verbs.new_jobs import columns_of, job_of


def make(tx: Transaction, job: NewJob) -> int:
    """Insert a batch with ``job`` as its callback job; return its id. :func:`expect` then sets the number of its jobs."""
    table = group_tables(tx.tables).callbacks
    values = columns_of(job) | {"size": 0, "pending": 0, "created_at": tx.now}
    made = tx.connection.execute(insert(table).values(values), tx.time())
    assert made.inserted_primary_key is not None  # noqa: S101 - an INSERT of one row always has it
    return int(made.inserted_primary_key[0])


def expect(tx: Transaction, batch: int, jobs: int) -> list[NewJob]:
    """Set how many jobs the batch waits for; return the callback job if ``jobs`` is 0."""
    table = group_tables(tx.tables).callbacks
    tx.connection.execute(update(table).where(table.c.id == batch).values(size=jobs, pending=jobs))
    return _over(tx, [batch])


def count_down(tx: Transaction, left: Iterable[tuple[int, Departure]]) -> list[NewJob]:
    """Count down the batches of the jobs that have left; return the callback jobs of the batches with no jobs left."""
    table = group_tables(tx.tables).callbacks
    departures = Counter(left)
    ids = sorted({batch for batch, _ in departures})
    for batch in ids:  # in the order of ids, so that no two transactions wait for each other
        completed, dead, cancelled = (
            departures[batch, departure] for departure in (Departure.COMPLETED, Departure.DEAD, Departure.CANCELLED)
        )
        values = {
            "pending": table.c.pending - (completed + dead + cancelled),
            "dead": table.c.dead + dead,
            "cancelled": table.c.cancelled + cancelled,
        }
        tx.connection.execute(update(table).where(table.c.id == batch).values(values))
    return _over(tx, ids)


def find_batch(tx: Transaction, batch: int) -> Row[Any] | None:
    """The row of a batch; None: all its jobs have left."""
    table = group_tables(tx.tables).callbacks
    return tx.connection.execute(select(table).where(table.c.id == batch)).first()


def page_of_batches(tx: Transaction, *, below: int | None, limit: int) -> Sequence[Row[Any]]:
    """The rows of up to ``limit`` batches with jobs that have not left, newest first.

    :param below: return only batches with ids below this one; None: all.
    """
    table = group_tables(tx.tables).callbacks
    chosen = select(table).order_by(table.c.id.desc()).limit(limit)
    return tx.connection.execute(chosen if below is None else chosen.where(table.c.id < below)).all()


def _over(tx: Transaction, batches: list[int]) -> list[NewJob]:
    table = group_tables(tx.tables).callbacks
    over = tx.connection.execute(select(table).where(table.c.id.in_(batches), table.c.pending <= 0).order_by(table.c.id)).all()
    if over:
        tx.connection.execute(delete(table).where(table.c.id.in_([row.id for row in over])))
    return [job_of(row, {"batch": _outcome(row)}) for row in over]


def _outcome(row: Row[Any]) -> dict[str, int]:
    """The counts of a batch's jobs, for the headers of its callback job."""
    return {"id": row.id, "jobs": row.size, "dead": row.dead, "cancelled": row.cancelled}
