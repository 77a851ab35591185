"""Reading without claiming: counts, one job, the next jobs. For people and monitors; nothing here locks."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from operator import attrgetter
from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Integer,
    Row,
    Select,
    String,
    Table,
    case,
    func,
    literal,
    null,
    or_,
    select,
    union_all,
)

from queue_db.dialects.clock import moment
from queue_db.model import KindStats, QueueStats, State
from queue_db.store.base import Store
from queue_db.store.schema import BLOCKED, NEVER


def stats(connection: Connection, store: Store, queue: str) -> QueueStats:
    """Count the jobs of ``queue`` by state and kind; reads the whole queue."""
    jobs, dead = store.tables.jobs, store.tables.dead
    now = moment(store.clock is not None)
    due = jobs.c.available_at <= now
    held = jobs.c.claim_token.is_not(None)
    blocked = jobs.c.available_at == BLOCKED
    live = connection.execute(
        select(
            jobs.c.kind,
            func.sum(case((due, 1), else_=0)).label("available"),
            func.sum(case((~due & ~held & ~blocked, 1), else_=0)).label("scheduled"),
            func.sum(case((blocked, 1), else_=0)).label("blocked"),
            func.sum(case((~due & held, 1), else_=0)).label("running"),
            # Subtracted here and not there: a due time of any client's, as old as a number can be, would be out of range.
            func.min(case((due, jobs.c.available_at), else_=None)).label("oldest"),
            func.max(now).label("read_at"),
            func.sum(case((~due & held, jobs.c.progress), else_=None)).label("progress"),
            func.sum(case((~due & held & jobs.c.progress.is_not(None), 1), else_=0)).label("progressing"),
        )
        # Those that a stream holds are counted with the stream.
        .where(jobs.c.queue == queue, jobs.c.delete_mark == 0, jobs.c.available_at != NEVER)
        .group_by(jobs.c.kind),
        store.time(),
    ).all()
    buried = connection.execute(
        select(dead.c.kind, func.count().label("dead")).where(dead.c.queue == queue).group_by(dead.c.kind)
    ).all()
    streams, batches = store.tables.streams, store.tables.batches
    of_queue = select(func.coalesce(func.sum(batches.c.size), 0)).join_from(batches, streams, batches.c.stream == streams.c.id)
    held = connection.execute(of_queue.where(streams.c.queue == queue)).scalar_one()
    deaths = {row.kind: int(row.dead) for row in buried}
    by_kind = {
        row.kind: KindStats(
            available=int(row.available),
            scheduled=int(row.scheduled),
            running=int(row.running),
            dead=deaths.pop(row.kind, 0),
            blocked=int(row.blocked),
        )
        for row in live
    }
    by_kind.update({kind: KindStats(dead=count) for kind, count in deaths.items()})
    progressing = sum(int(row.progressing) for row in live)
    ages = [int(row.read_at) - int(row.oldest) for row in live if row.oldest is not None]
    return QueueStats(
        queue=queue,
        available=sum(kind.available for kind in by_kind.values()),
        scheduled=sum(kind.scheduled for kind in by_kind.values()),
        running=sum(kind.running for kind in by_kind.values()),
        dead=sum(kind.dead for kind in by_kind.values()),
        oldest_available_age=max(ages) / 1_000_000 if ages else None,
        by_kind=dict(sorted(by_kind.items())),
        held=int(held),
        blocked=sum(kind.blocked for kind in by_kind.values()),
        progress=sum(row.progress or 0.0 for row in live) / progressing if progressing else None,
    )


# The columns of a job, wherever it stands.
_SHOWN = (
    *("id", "queue", "kind", "payload", "headers", "priority", "available_at", "died_at", "version", "attempts", "max_attempts"),
    *("unique_key", "claim_token", "worker", "created_at", "last_error", "group_key", "progress", "progress_note", "callback_id"),
)


class _Table(IntEnum):
    """The tables that may have a row of a job. A held job with a unique key has one in the first and one in the last."""

    LIVE = 0
    DEAD = 1
    HELD = 2


def find(connection: Connection, store: Store, queue: str | None, job_id: int) -> tuple[Row[Any], State] | None:
    """The row and state of one job, live, dead or held by a stream, of ``queue`` or of any.

    One statement, which sees one moment: a job that is moved from one table to another meanwhile stands in one of them.
    """
    jobs, dead = store.tables.jobs, store.tables.dead
    live = _shown(_Table.LIVE, store, {column.name: column for column in jobs.c})
    live = live.where(jobs.c.id == job_id, *_in(jobs, queue), jobs.c.delete_mark == 0)
    died = _shown(_Table.DEAD, store, {column.name: column for column in dead.c})
    died = died.where(dead.c.id == job_id, *_in(dead, queue))
    found = connection.execute(union_all(live, died, _held(store, queue, job_id)), store.time()).all()
    if not found:
        return None
    row = min(found, key=attrgetter("place"))
    if row.place == _Table.LIVE:
        return row, state_of(row.available_at, row.claim_token, row.read_at)
    return row, State.DEAD if row.place == _Table.DEAD else State.RUNNING


def _shown(place: _Table, store: Store, columns: Mapping[str, ColumnElement[Any]]) -> Select[Any]:
    """An arm of :func:`find`; its types are those of the first arm."""
    shown = [columns[name].label(name) if name in columns else null().label(name) for name in _SHOWN]
    return select(literal(int(place), Integer).label("place"), moment(store.clock is not None).label("read_at"), *shown)


def _held(store: Store, queue: str | None, job_id: int) -> Select[Any]:
    """The job of that id that a stream holds, as one that it holds and that has a unique key stands in the jobs table."""
    streams, batches, held = store.tables.streams, store.tables.batches, store.tables.held
    columns: dict[str, ColumnElement[Any]] = {column.name: column for column in held.c}
    columns |= {
        "queue": streams.c.queue,
        "available_at": literal(NEVER, BigInteger),
        "worker": literal("stream ", String).concat(streams.c.name),
    }
    return (
        _shown(_Table.HELD, store, columns)
        # Batch by batch, each by the primary key of the held jobs.
        .join_from(batches, held, (held.c.stream == batches.c.stream) & (held.c.batch == batches.c.batch) & (held.c.id == job_id))
        .join(streams, streams.c.id == batches.c.stream)
        .where(*_in(streams, queue))
    )


def _in(table: Table, queue: str | None) -> list[ColumnElement[bool]]:
    return [] if queue is None else [table.c.queue == queue]


def next_due(connection: Connection, store: Store, queue: str, limit: int) -> list[Row[Any]]:
    """The due jobs of ``queue`` in claim order."""
    jobs = store.tables.jobs
    query = (
        select(jobs)
        .where(jobs.c.queue == queue, jobs.c.available_at <= moment(store.clock is not None), jobs.c.delete_mark == 0)
        .order_by(jobs.c.priority, jobs.c.available_at, jobs.c.id)
        .limit(limit)
    )
    return list(connection.execute(query, store.time()).all())


def overdue(connection: Connection, store: Store, micros: int, limit: int) -> list[Row[Any]]:
    """``queue, jobs, oldest, read_at`` of those whose oldest due job has waited longer than ``micros``, the longest first."""
    jobs = store.tables.jobs
    now = moment(store.clock is not None)
    oldest = func.min(jobs.c.available_at)
    query = (
        select(jobs.c.queue, func.count().label("jobs"), oldest.label("oldest"), func.max(now).label("read_at"))
        .where(jobs.c.available_at < now - micros, jobs.c.delete_mark == 0)
        .group_by(jobs.c.queue)
        .order_by(oldest)
        .limit(limit)
    )
    return list(connection.execute(query, store.time()).all())


def parked(connection: Connection, store: Store, ahead: int, limit: int) -> list[Row[Any]]:
    """``queue, kind, jobs, since, read_at`` of those that wait because no worker has had a handler for their kind.

    Looks at up to ``limit`` jobs that become due within ``ahead`` microseconds, as these do while workers look for them, and at as
    many that are due; where there are more, the counts are lower bounds. So it reads few payloads, however many jobs there are. A
    kind may be counted in two rows.
    """
    jobs = store.tables.jobs
    now = store.read_clock(connection)  # one for both queries: no job is due in one and upcoming in the other
    found: list[Row[Any]] = []
    for near in ((jobs.c.available_at > now, jobs.c.available_at <= now + ahead), (jobs.c.available_at <= now,)):
        some = select(jobs.c.id).where(*near).limit(limit).subquery()
        query = (
            select(
                jobs.c.queue,
                jobs.c.kind,
                func.count().label("jobs"),
                func.min(jobs.c.unknown_since).label("since"),
                literal(now, BigInteger).label("read_at"),
            )
            .join_from(some, jobs, jobs.c.id == some.c.id)
            .where(jobs.c.unknown_since.is_not(None), jobs.c.delete_mark == 0)
            # One that a worker has in hand may have found its handler.
            .where(or_(jobs.c.claim_token.is_(None), jobs.c.available_at <= now))
            .group_by(jobs.c.queue, jobs.c.kind)
        )
        found += connection.execute(query)
    return found


def late_schedules(connection: Connection, store: Store, micros: int) -> list[Row[Any]]:
    """``name, late`` of the schedules whose next occurrence passed more than ``micros`` microseconds ago."""
    schedules = store.tables.schedules
    now = moment(store.clock is not None)
    query = select(schedules.c.name, (now - schedules.c.next_at).label("late"))
    found = query.where(schedules.c.paused == 0, schedules.c.next_at < now - micros).order_by(schedules.c.name)
    return list(connection.execute(found, store.time()).all())


def queues(connection: Connection, store: Store) -> list[str]:
    """Names of the queues that have live or dead jobs, or jobs that a stream holds."""
    jobs, dead, streams = store.tables.jobs, store.tables.dead, store.tables.streams
    names = (
        select(jobs.c.queue)
        .where(jobs.c.delete_mark == 0)
        .distinct()
        .union(select(dead.c.queue).distinct(), select(streams.c.queue).where(streams.c.allocated > streams.c.acked))
    )
    return sorted(connection.execute(names).scalars())


def state_of(available_at: int, claim_token: str | None, now: int) -> State:
    """The state of a live job at ``now`` (microseconds)."""
    if available_at <= now:
        return State.AVAILABLE
    if available_at == BLOCKED:
        return State.BLOCKED
    return State.SCHEDULED if claim_token is None else State.RUNNING
