"""Finds a job by its id, changes a job unless another transaction was faster, and converts rows to :class:`~queue_db.Job`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import IntEnum
from operator import attrgetter
from typing import Any

from sqlalchemy import ColumnElement, Integer, Row, Select, Table, literal, null, select, union_all

from queue_db import arguments
from queue_db.codecs import Codec, decoded_or_text
from queue_db.core import Core
from queue_db.database.transaction import Run
from queue_db.dialects.clock import moment
from queue_db.errors import JobDeadError, JobNotFoundError
from queue_db.leased_job import decode_headers
from queue_db.model import MOST_VERSION, ClaimedRow, Job, State, Verdict, from_micros
from queue_db.slices import holders
from queue_db.store import Store, Transaction
from queue_db.store.schema import BLOCKED

_GET = Run("get", write=False)

# The most tries to change a job that other transactions change between our read and our write.
_CHANGE_ATTEMPTS = 5

# The columns that :func:`find_job` reads, from each table that may have the row of the job.
_SHOWN = (
    *("id", "queue", "kind", "payload", "headers", "priority", "available_at", "died_at", "version", "attempts", "max_attempts"),
    *("unique_key", "claim_token", "worker", "created_at", "last_error", "group_key", "progress", "progress_note", "callback_id"),
)


def find_job(core: Core, job_id: int, queue: str | None = None) -> Job:
    """The job with this id.

    :param queue: the job's queue; None: any queue.
    :raises JobNotFoundError: there is no such job, live or dead.
    """
    arguments.whole("job_id", job_id, 0, 2**63 - 1)
    found = core.run(_GET, _find, queue, job_id)
    if found is None:
        raise JobNotFoundError(job_id, "any queue" if queue is None else f"queue {queue!r}")
    row, state = found
    return job_from_row(row, state, core.codec)


def change_job(core: Core, queue: str | None, job_id: int, version: int | None, change: Callable[[Job], bool]) -> Verdict:
    """Read a live job and call ``change`` with the job. Try again while ``change`` returns False.

    False means that another transaction has changed the job since the read.

    :param version: change the job only if it still has this version.
    :return: LOST: the job has another version, or it was changed during each of five tries.
    :raises JobNotFoundError: there is no such live job.
    """
    if version is not None:
        arguments.whole("version", version, 0, MOST_VERSION)
    for _ in range(_CHANGE_ATTEMPTS):
        job = find_job(core, job_id, queue)
        if job.state is State.DEAD:
            raise JobDeadError(job_id)
        if version is not None and job.version != version:
            return Verdict.LOST
        if change(job):
            return Verdict.APPLIED
    return Verdict.LOST


def job_from_row(row: Any, state: State, codec: Codec) -> Job:
    """A stored row as a :class:`Job`. A payload that the codec cannot decode is shown as its stored text."""
    return Job(
        id=row.id,
        queue=row.queue,
        kind=row.kind,
        payload=decoded_or_text(codec, row.payload),
        headers=decode_headers(row.headers),
        priority=row.priority,
        state=state,
        available_at=from_micros(row.died_at if state is State.DEAD else row.available_at),
        version=row.version,
        attempts=row.attempts,
        max_attempts=row.max_attempts,
        unique_key=row.unique_key,
        worker=row.worker,
        created_at=from_micros(row.created_at),
        last_error=row.last_error,
        group=row.group_key,
        progress=getattr(row, "progress", None),
        progress_note=getattr(row, "progress_note", None),
        batch=getattr(row, "callback_id", None),
    )


# Functions for the fields of a popped job that are not plain columns of its row, by field. ``queue`` and ``worker`` are missing:
# they are the same for all jobs of a call.
_MADE: dict[str, Callable[[ClaimedRow, Codec], Any]] = {
    "payload": lambda row, codec: decoded_or_text(codec, row.payload),
    "headers": lambda row, _: decode_headers(row.headers),
    "state": lambda row, _: State.RUNNING,
    "available_at": lambda row, _: from_micros(row.available_at),
    "created_at": lambda row, _: from_micros(row.created_at),
    "group": lambda row, _: row.group_key,
    "batch": lambda row, _: row.callback_id,
    "progress": lambda row, _: None,
    "progress_note": lambda row, _: None,
}


def popped(rows: Iterable[ClaimedRow], codec: Codec, *, queue: str, worker: str) -> list[Job]:
    """Claimed and deleted jobs as :class:`Job` objects, as in :func:`job_from_row`. Each field is made at its first use."""
    same = {"queue": queue, "worker": worker}

    def read(row: ClaimedRow, name: str) -> Any:
        if name in same:
            return same[name]
        made = _MADE.get(name)
        return getattr(row, name) if made is None else made(row, codec)

    return Job.late(rows, read)


# --- where the row of a job is ------------------------------------------------------------------------------------------


class Place(IntEnum):
    """The tables that may have a row of a job.

    A held job with a unique key has a row in LIVE and a row in HELD. If a job has several rows, the lowest place counts.
    """

    LIVE = 0
    DEAD = 1
    HELD = 2
    FINISHED = 3


def _find(tx: Transaction, queue: str | None, job_id: int) -> tuple[Row[Any], State] | None:
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
