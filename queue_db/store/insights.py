"""Read one job, or the next jobs, without claims and locks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from operator import attrgetter
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Integer,
    Row,
    Select,
    Table,
    literal,
    null,
    select,
    union_all,
)

from queue_db.dialects.clock import moment
from queue_db.model import State
from queue_db.slices import holders
from queue_db.store.base import Store, Transaction
from queue_db.store.schema import BLOCKED

# The columns that are read of a job, from whichever table has its row.
_SHOWN = (
    *("id", "queue", "kind", "payload", "headers", "priority", "available_at", "died_at", "version", "attempts", "max_attempts"),
    *("unique_key", "claim_token", "worker", "created_at", "last_error", "group_key", "progress", "progress_note", "callback_id"),
)

# The columns from which a job's state is computed.
_STATED = ("available_at", "claim_token")


class _Table(IntEnum):
    """The tables that may have a row of a job. A held job with a unique key has a row in LIVE and a row in HELD."""

    LIVE = 0
    DEAD = 1
    HELD = 2
    FINISHED = 3


def find(tx: Transaction, queue: str | None, job_id: int) -> tuple[Row[Any], State] | None:
    """The row and state of one job that is live, dead or held by a slice.

    One statement reads all tables at one moment, so it also finds a job that is being moved from one table to another.

    :param queue: the queue of the job; None: any queue.
    """
    rows = tx.connection.execute(union_all(*_places(tx.store, queue, job_id, _SHOWN)), tx.time()).all()
    if not rows:
        return None
    row = min(rows, key=attrgetter("place"))
    return row, _state_at(row)


def state(tx: Transaction, job_id: int) -> State:
    """The state of a job that may have left its queue. It is read by one statement, as in :func:`find`."""
    finished = tx.tables.finished
    kept = _shown(_Table.FINISHED, tx.store, {}, _STATED)
    kept = kept.where(finished.c.id == job_id, finished.c.expires_at > tx.now)
    rows = tx.connection.execute(union_all(*_places(tx.store, None, job_id, _STATED), kept), tx.time()).all()
    return _state_at(min(rows, key=attrgetter("place"))) if rows else State.UNKNOWN


def _state_at(row: Row[Any]) -> State:
    match row.place:
        case _Table.LIVE:
            return state_of(row.available_at, row.claim_token, row.read_at)
        case _Table.DEAD:
            return State.DEAD
        case _Table.HELD:
            return State.RUNNING
    return State.COMPLETED


def _places(store: Store, queue: str | None, job_id: int, names: Sequence[str]) -> list[Select[Any]]:
    """The queries for a job in the tables of live, dead and held jobs."""
    jobs, dead = store.tables.jobs, store.tables.dead
    live = _shown(_Table.LIVE, store, {column.name: column for column in jobs.c}, names)
    live = live.where(jobs.c.id == job_id, *_in(jobs, queue), jobs.c.delete_mark == 0)
    died = _shown(_Table.DEAD, store, {column.name: column for column in dead.c}, names)
    died = died.where(dead.c.id == job_id, *_in(dead, queue))

    def shown(columns: Mapping[str, ColumnElement[Any]]) -> Select[Any]:
        return _shown(_Table.HELD, store, columns, names)

    return [live, died, *(holder.job(store, queue, job_id, shown) for holder in holders())]


def _shown(place: _Table, store: Store, columns: Mapping[str, ColumnElement[Any]], names: Sequence[str]) -> Select[Any]:
    """A SELECT of the columns ``names`` from one of the tables; NULL for a name that is not in ``columns``."""
    shown = [columns[name].label(name) if name in columns else null().label(name) for name in names]
    return select(literal(int(place), Integer).label("place"), moment(store.clock is not None).label("read_at"), *shown)


def _in(table: Table, queue: str | None) -> list[ColumnElement[bool]]:
    return [] if queue is None else [table.c.queue == queue]


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


def state_of(available_at: int, claim_token: str | None, now: int) -> State:
    """The state of a live job at ``now`` (microseconds)."""
    if available_at <= now:
        return State.AVAILABLE
    if available_at == BLOCKED:
        return State.BLOCKED
    return State.SCHEDULED if claim_token is None else State.RUNNING
