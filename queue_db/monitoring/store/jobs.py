"""Read jobs, their failed attempts and their results, without claims and locks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Row, select

from queue_db.administration.job_rows import Place, first_place, places, selected
from queue_db.model import State
from queue_db.store.base import Transaction
from queue_db.store.portions import portions

# The columns from which a job's state is computed.
_STATED = ("available_at", "claim_token")


def state(tx: Transaction, job_id: int) -> State:
    """The state of a job that may have left its queue. One statement reads all tables at one moment."""
    table = tx.tables.finished
    retained = selected(Place.FINISHED, tx.store, {}, _STATED).where(table.c.id == job_id, table.c.expires_at > tx.now)
    found = first_place(tx, [*places(tx.store, None, job_id, _STATED), retained])
    return State.UNKNOWN if found is None else found[1]


def live(tx: Transaction, ids: Sequence[int]) -> set[int]:
    """Those of these jobs that are in a queue."""
    jobs = tx.tables.jobs
    found: set[int] = set()
    for some in portions(ids):
        query = select(jobs.c.id).where(jobs.c.id.in_(some), jobs.c.delete_mark == 0)
        found.update(tx.connection.execute(tx.dialect.by_id(query, jobs)).scalars())
    return found


def due_jobs(tx: Transaction, queue: str, limit: int) -> list[Row[Any]]:
    """The due jobs of ``queue`` in claim order."""
    jobs = tx.tables.jobs
    query = (
        select(jobs)
        .where(jobs.c.queue == queue, jobs.c.available_at <= tx.now, jobs.c.delete_mark == 0)
        .order_by(jobs.c.priority, jobs.c.available_at, jobs.c.id)
        .limit(limit)
    )
    return list(tx.connection.execute(query, tx.time()).all())


def errors_of(tx: Transaction, job_id: int) -> list[Row[Any]]:
    """The failed attempts of a job, oldest first."""
    errors = tx.tables.errors
    return list(tx.connection.execute(select(errors).where(errors.c.job_id == job_id).order_by(errors.c.version)))


def finished(tx: Transaction, job_id: int) -> Row[Any] | None:
    """The row of a finished job, unless it has expired."""
    table = tx.tables.finished
    query = select(table).where(table.c.id == job_id, table.c.expires_at > tx.now)
    return tx.connection.execute(query, tx.time()).first()


def finished_page(tx: Transaction, *, queue: str | None, kind: str | None, above: int, limit: int) -> list[Row[Any]]:
    """The rows of finished jobs with ids above ``above`` that have not expired, by id."""
    table = tx.tables.finished
    query = select(table).where(table.c.id > above, table.c.expires_at > tx.now)
    if queue is not None:
        query = query.where(table.c.queue == queue)
    if kind is not None:
        query = query.where(table.c.kind == kind)
    return list(tx.connection.execute(query.order_by(table.c.id).limit(limit), tx.time()))
