"""The SQL of steps. Each change locks the row of the job first, so that a worker, a sender and a claim see one order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum, StrEnum
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Row, Select, Table, delete, insert, select, true

from queue_db.slices import holders, nodes
from queue_db.store import by_key, settle
from queue_db.store.base import Transaction
from queue_db.store.schema import NEVER


class What(StrEnum):
    """What a row is about."""

    STATE = "state"
    STEP = "step"
    SLEEP = "sleep"
    SIGNAL = "signal"
    CALLBACK = "callback"  #: the name is the SHA-256 of a token, the value the name of a signal


class Phase(IntEnum):
    """How far it is."""

    BEGUN = 0  #: a step that has a cursor, a sleep, a wait for a signal
    DONE = 1  #: a step that has a result, a signal that was sent
    EXPIRED = 2  #: a wait whose timeout has passed


class Key(NamedTuple):
    """The key of a row, beside the id of its job."""

    what: What
    name: str


class Record(NamedTuple):
    """What is stored under a key."""

    phase: Phase
    value: str | None = None
    #: When a sleep, or the timeout of a wait, ends: microseconds since 1970; None: no timeout.
    ends_at: int | None = None


class Job(NamedTuple):
    """The job that the rows belong to."""

    id: int
    #: Its ``created_at``.
    since: int


class Wait(NamedTuple):
    """Why a run ends: its job sleeps, or waits for a signal."""

    key: Key
    #: Microseconds from now; None: a wait without a timeout.
    micros: int | None


#: Microseconds after which a job that waits without a timeout runs again: a hundred years.
LONGEST = 100 * 365 * 86_400_000_000


def _table(tx: Transaction) -> Table:
    found: Table = tx.tables.slices["steps"]
    return found


def _where(job_id: int, key: Key) -> dict[str, Any]:
    return {"job_id": job_id, "what": key.what, "name": key.name}


# --- for the worker that has the job ------------------------------------------------------------------------------------


def records(tx: Transaction, job: Job) -> tuple[int, dict[Key, Record]]:
    """The time, and the records of a job."""
    return tx.read_clock(), {key: record for key, (record, _) in rows(tx, job).items()}


def rows(tx: Transaction, job: Job) -> dict[Key, tuple[Record, int]]:
    """The records of a job, each with the time of its last change, in the order of these."""
    table = _table(tx)
    query = select(table).where(table.c.job_id == job.id, table.c.since == job.since).order_by(table.c.changed_at, table.c.name)
    return {Key(What(row.what), row.name): (_record(row), row.changed_at) for row in tx.connection.execute(query)}


def fenced(tx: Transaction, pair: tuple[int, int], change: Callable[[Transaction], None]) -> bool:
    """Lock the row of the job if it still has this ``(id, version)``, and run ``change``; False: the lease is lost."""
    if not _held(tx, pair):
        return False
    change(tx)
    return True


def _held(tx: Transaction, pair: tuple[int, int]) -> bool:
    if not settle.lock(tx, [pair]):
        return False
    by_key.touch(tx, tx.tables.jobs, {"id": pair[0]}, "available_at")
    return True


def put(tx: Transaction, job: Job, key: Key, record: Record) -> None:
    """Insert or change a record. The caller has locked the row of the job."""
    table = _table(tx)
    values: dict[str, Any] = {"since": job.since, "phase": int(record.phase), "value": record.value, "ends_at": record.ends_at}
    values["changed_at"] = tx.now
    if not by_key.change(tx, table, _where(job.id, key), values):
        tx.connection.execute(insert(table).values(**_where(job.id, key), **values), tx.time())


def find(tx: Transaction, job: Job, key: Key) -> Record | None:
    """A record, under the lock of the job's row."""
    row = by_key.lock(tx, _table(tx), _where(job.id, key))
    return None if row is None or row.since != job.since else _record(row)


def look(tx: Transaction, job: Job, key: Key) -> Record | None:
    """A record, without a lock."""
    table = _table(tx)
    query = select(table).where(by_key.matches(table, {**_where(job.id, key), "since": job.since}))
    row = tx.connection.execute(query).first()
    return None if row is None else _record(row)


def suspend(tx: Transaction, pairs: list[tuple[int, int]], job: Job, wait: Wait) -> set[int]:
    """Write for what the job waits, and end its lease: the job is due when the wait ends. The attempt is not counted.

    A wait that has begun before goes on. The job is due at once if the signal has come meanwhile.
    """
    if not settle.lock(tx, pairs):
        return set()
    now = tx.read_clock()
    record = find(tx, job, wait.key)
    if record is None:
        record = Record(Phase.BEGUN, None, None if wait.micros is None else now + wait.micros)
        put(tx, job, wait.key, record)
    delay = LONGEST if record.ends_at is None else max(record.ends_at - now, 0)
    if record.phase is not Phase.BEGUN:
        delay = 0
    if not delay:
        tx.wake(*_queues_of(tx, job.id))
    return settle.requeue(tx, pairs, delays={job.id: delay}, attempted=False)


def _queues_of(tx: Transaction, job_id: int) -> list[str]:
    jobs = tx.tables.jobs
    return list(tx.connection.execute(select(jobs.c.queue).where(jobs.c.id == job_id)).scalars())


def expire(tx: Transaction, job: Job, key: Key) -> Record:
    """Note that the timeout of a wait has passed, unless the signal has come; return the record."""
    record = find(tx, job, key)
    if record is None or record.phase is Phase.BEGUN:
        record = Record(Phase.EXPIRED, None, None if record is None else record.ends_at)
        put(tx, job, key, record)
    return record


# --- for those who send signals -------------------------------------------------------------------------------------------


def send(tx: Transaction, job_id: int, name: str, value: str, sha256: str | None = None) -> bool | None:
    """Store a signal, and make the job due if it waits for the signal.

    :param sha256: the hash of the token of the callback that sends it; this callback must be there.
    :return: False: the signal was sent before, or its wait has expired; None: there is no such job, or no such callback.
    """
    jobs, dead = tx.tables.jobs, tx.tables.dead
    live = by_key.lock(tx, jobs, {"id": job_id}, "version", "queue", "created_at", "claim_token", "available_at", "delete_mark")
    if live is not None and live.delete_mark:
        return None
    row = live or by_key.lock(tx, dead, {"id": job_id}, "created_at")
    if row is None:
        return None
    job, key = Job(job_id, row.created_at), Key(What.SIGNAL, name)
    if sha256 is not None and not by_key.delete(tx, _table(tx), {**_where(job_id, Key(What.CALLBACK, sha256)), "since": job.since}):
        return None
    by_key.touch(tx, jobs if live is not None else dead, {"id": job_id}, "available_at" if live is not None else "version")
    before = find(tx, job, key)
    if before is not None and before.phase is not Phase.BEGUN:
        return False
    put(tx, job, key, Record(Phase.DONE, value, None if before is None else before.ends_at))
    if before is not None and live is not None and live.claim_token is None and tx.read_clock() < live.available_at < NEVER:
        settle.requeue(tx, [(job_id, live.version)], delays={job_id: 0}, attempted=True)
        tx.wake(live.queue)
    return True


def signal_of(tx: Transaction, job_id: int, sha256: str) -> str | None:
    """The name of the signal that a callback sends; None: there is no such callback."""
    table = _table(tx)
    query = select(table.c.value).where(by_key.matches(table, _where(job_id, Key(What.CALLBACK, sha256))))
    found: str | None = tx.connection.execute(query).scalar()
    return found


# --- for those who look, and maintenance ----------------------------------------------------------------------------------


def of_job(tx: Transaction, job_id: int) -> dict[Key, tuple[Record, int]]:
    """:func:`rows` of a job, live or dead; empty: there is no such job."""
    jobs, dead = tx.tables.jobs, tx.tables.dead
    for table, present in ((jobs, jobs.c.delete_mark == 0), (dead, true())):
        since = tx.connection.execute(select(table.c.created_at).where(table.c.id == job_id, present)).scalar()
        if since is not None:
            return rows(tx, Job(job_id, since))
    return {}


def prune(tx: Transaction, limit: int) -> int:
    """Delete the steps of up to ``limit`` jobs that have left for good; return how many rows.

    A dead job keeps its steps, so that it goes on where it was when it is redriven, and so does a cancelled node of a
    graph, which a retry brings back under its id. One statement asks all tables that a job can be in, since a job moves between
    them: two statements could miss it twice. A job that is in none of them never returns.
    """
    table, jobs, dead = _table(tx), tx.tables.jobs, tx.tables.dead
    gone = select(table.c.job_id).distinct().limit(limit)
    gone = gone.where(~select(jobs.c.id).where(jobs.c.id == table.c.job_id, jobs.c.delete_mark == 0).exists())
    gone = gone.where(~select(dead.c.id).where(dead.c.id == table.c.job_id).exists())
    for holder in holders():
        gone = gone.where(~holder.job(tx.store, None, table.c.job_id, _id).exists())
    gone = gone.where(~nodes().kept(tx, table.c.job_id).exists())
    ids: Sequence[int] = tx.connection.execute(gone).scalars().all()
    return tx.connection.execute(delete(table).where(table.c.job_id.in_(ids))).rowcount if ids else 0


def _id(columns: Mapping[str, ColumnElement[Any]]) -> Select[Any]:
    return select(columns["id"])


def _record(row: Row[Any]) -> Record:
    return Record(Phase(row.phase), row.value, row.ends_at)
