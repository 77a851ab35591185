"""Finds the row of a job in the tables of live, dead, held and finished jobs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from operator import attrgetter
from typing import Any

from sqlalchemy import ColumnElement, Integer, Row, Select, Table, literal, null, select, union_all

from queue_db.dialects.clock import moment
from queue_db.model import State
from queue_db.slices import holders
from queue_db.store import Store, Transaction
from queue_db.store.schema import BLOCKED

# The columns that :func:`find` reads, from each table that may have the row of the job.
_SHOWN = (
    *("id", "queue", "kind", "payload", "headers", "priority", "available_at", "died_at", "version", "attempts", "max_attempts"),
    *("unique_key", "claim_token", "worker", "created_at", "last_error", "group_key", "progress", "progress_note", "callback_id"),
)


class Place(IntEnum):
    """The tables that may have a row of a job.

    A held job with a unique key has a row in LIVE and a row in HELD. If a job has several rows, the lowest place counts.
    """

    LIVE = 0
    DEAD = 1
    HELD = 2
    FINISHED = 3


def find(tx: Transaction, queue: str | None, job_id: int) -> tuple[Row[Any], State] | None:
    """The row and the state of a live, dead or held job; None: there is no such job."""
    return first_place(tx, places(tx.store, queue, job_id, _SHOWN))


def first_place(tx: Transaction, queries: Iterable[Select[Any]]) -> tuple[Row[Any], State] | None:
    """The row of a job in the first of its places, and the state of the job; None: there is no such job.

    One statement reads all tables at one moment, so it also finds a job that is being moved from one table to another.
    """
    rows = tx.connection.execute(union_all(*queries), tx.time()).all()
    if not rows:
        return None
    row = min(rows, key=attrgetter("place"))
    match row.place:
        case Place.LIVE:
            return row, state_of(row.available_at, row.claim_token, row.read_at)
        case Place.DEAD:
            return row, State.DEAD
        case Place.HELD:
            return row, State.RUNNING
    return row, State.COMPLETED


def places(store: Store, queue: str | None, job_id: int, names: Sequence[str]) -> list[Select[Any]]:
    """The queries for the columns ``names`` of a job in the tables of live, dead and held jobs."""

    def of(place: Place, table: Table) -> Select[Any]:
        found = selected(place, store, {column.name: column for column in table.c}, names).where(table.c.id == job_id)
        return found if queue is None else found.where(table.c.queue == queue)

    def held(columns: Mapping[str, ColumnElement[Any]]) -> Select[Any]:
        return selected(Place.HELD, store, columns, names)

    jobs, dead = store.tables.jobs, store.tables.dead
    live = of(Place.LIVE, jobs).where(jobs.c.delete_mark == 0)
    return [live, of(Place.DEAD, dead), *(holder.job(store, queue, job_id, held) for holder in holders())]


def selected(place: Place, store: Store, columns: Mapping[str, ColumnElement[Any]], names: Sequence[str]) -> Select[Any]:
    """A SELECT of the columns ``names`` from one of the tables; NULL for a name that is not in ``columns``."""
    shown = [columns[name].label(name) if name in columns else null().label(name) for name in names]
    return select(literal(int(place), Integer).label("place"), moment(store.clock is not None).label("read_at"), *shown)


def state_of(available_at: int, claim_token: str | None, now: int) -> State:
    """The state of a live job at ``now`` (microseconds)."""
    if available_at <= now:
        return State.AVAILABLE
    if available_at == BLOCKED:
        return State.BLOCKED
    return State.SCHEDULED if claim_token is None else State.RUNNING
