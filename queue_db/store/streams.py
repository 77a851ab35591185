"""Streams: claimed batches that are recorded with their claim, so that they can be read again, and held until they are completed.

The protocol. A stream's batches are numbered from 1. All up to ``acked`` are completed; those up to ``allocated`` are claimed,
and their jobs are in the table of held jobs. An *offset* names a batch and the random token of its claim. Every change is one
transaction on the locked row of the stream, can be run twice, and is fenced by ``epoch``: who opens the stream raises it, and
whoever was there before finds it higher and stops. A claim and its record commit together; a replay reads the record and never
the queue; completion goes up only.

A job leaves the jobs table when it is claimed, so what a stream holds for days lies in nobody's way. One with a unique key, a group
or a callback stays there too, leased for ever: its key stays taken, its group waits, its callback counts it.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Integer,
    Row,
    and_,
    case,
    cast,
    delete,
    func,
    insert,
    literal,
    select,
    update,
)
from sqlalchemy.exc import IntegrityError

from queue_db.dialects.bulk import Move
from queue_db.dialects.clock import moment
from queue_db.dialects.statements import Pairs, stays
from queue_db.dialects.transactions import savepoint
from queue_db.errors import CheckpointMismatchError, StreamError, StreamFencedError
from queue_db.model import MOST_CLAIMED_VERSION
from queue_db.store import controls, dependents
from queue_db.store.base import Store, next_attempt, next_version
from queue_db.store.callbacks import Departure
from queue_db.store.pieces import give_up
from queue_db.store.ranges import COLUMNS, Rows, rows_of
from queue_db.store.schema import NEVER

# Jobs below this many are not worth a partition of their own.
_WORTH = 1000

# Into so many equal ranges of ids a batch is counted, for each partition that is made of them.
_FINENESS = 16

# Jobs with keys in one statement.
_PAIRS = 1000

#: What a held job keeps of its row, under the same names.
_KEPT = (
    "id",
    "kind",
    "payload",
    "headers",
    "priority",
    "available_at",
    "max_attempts",
    "unique_key",
    "created_at",
    "last_error",
    "group_key",
    "callback_id",
)


@dataclass(frozen=True, slots=True)
class Offset:
    """Where a stream stands: the last batch, and the token of its claim."""

    batch: int
    claim: str


@dataclass(frozen=True, slots=True)
class Part:
    """A partition of a batch: jobs with ids from ``low`` to ``high``."""

    batch: int
    low: int
    high: int
    jobs: int
    #: Deliveries of the batch before this one: so many more attempts have its jobs had than their rows say.
    again: int = 0


@dataclass(frozen=True, slots=True)
class Session:
    """A reader's hold on a stream, good as long as nobody opens the stream after it."""

    stream: int
    name: str
    queue: str
    epoch: int


def open_stream(connection: Connection, store: Store, name: str, queue: str, holder: str, retention: int) -> Session:
    """Take the stream over, or make it. Who had it before is fenced off.

    :raises StreamError: it reads another queue.
    """
    streams = store.tables.streams
    row = _locked(connection, store, name)
    if row is None:
        fresh = {"name": name, "queue": queue, "acked_claim": secrets.token_hex(16), "retention": retention, "epoch": 0}
        try:
            with savepoint(connection):
                connection.execute(insert(streams).values(fresh))
        except IntegrityError:
            pass  # somebody else has made it meanwhile
        row = _locked(connection, store, name)
        assert row is not None  # noqa: S101 - it is never deleted
    if row.queue != queue:
        raise StreamError(f"stream {name!r} reads queue {row.queue!r}, not {queue!r}: give a stream of another name to this queue")
    seen = moment(store.clock is not None)
    taken = {"epoch": row.epoch + 1, "holder": holder, "retention": retention, "seen_at": seen}
    connection.execute(update(streams).where(streams.c.id == row.id).values(taken), store.time())
    return Session(row.id, name, queue, row.epoch + 1)


def initial(connection: Connection, store: Store, session: Session) -> Offset:
    """Where a reader without a checkpoint begins: after all that is completed."""
    row = _held_by(connection, store, session)
    return Offset(row.acked, row.acked_claim)


def allocate(
    connection: Connection, store: Store, session: Session, start: Offset, *, limit: int, ceiling: int | None, partitions: int
) -> Offset:
    """The next offset after ``start``: a batch that is claimed already, or a fresh claim of up to ``limit`` due jobs.

    Spark asks for it when all up to ``start`` is written, so that is completed first. ``start`` itself if nothing is due, or if the
    queue is paused or its rate used up.

    :param ceiling: no job with a higher id is claimed.
    :raises StreamFencedError, CheckpointMismatchError: nothing was changed.
    """
    row = _held_by(connection, store, session)
    _check(connection, store, row, start)
    _complete(connection, store, row, start)
    if row.allocated > start.batch:
        claim = connection.execute(_batches(store, row.id, start.batch + 1, start.batch + 1)).one().claim
        return Offset(start.batch + 1, claim)
    batch, claim = start.batch + 1, secrets.token_hex(16)
    taken = _claim_allowed(connection, store, row, batch, claim, limit, ceiling)
    streams, batches = store.tables.streams, store.tables.batches
    seen = moment(store.clock is not None)
    if not taken:
        return start
    parts, keyed, oldest = _parts(connection, store, row.id, batch, partitions)
    record = {"stream": row.id, "batch": batch, "claim": claim, "size": sum(jobs for _, _, jobs in parts), "keyed": keyed}
    record |= {"parts": json.dumps(parts), "oldest_at": oldest, "claimed_at": seen, "deliveries": 0}
    connection.execute(insert(batches).values(record), store.time())
    connection.execute(update(streams).where(streams.c.id == row.id).values(allocated=batch, seen_at=seen), store.time())
    return Offset(batch, claim)


def touch(connection: Connection, store: Store, session: Session) -> None:
    """A reader is still there, though nothing is due."""
    streams = store.tables.streams
    mine = and_(streams.c.id == session.stream, streams.c.epoch == session.epoch)
    connection.execute(update(streams).where(mine).values(seen_at=moment(store.clock is not None)), store.time())


def partition(
    connection: Connection, store: Store, session: Session, start: Offset, end: Offset, *, most: int | None = None
) -> list[Part]:
    """The partitions of the batches after ``start`` up to ``end``, as they were recorded.

    To hand a batch out is a delivery of it, one for each session, however often that asks.

    :param most: a batch that was delivered so often and is still here is cut in pieces, which come one after the other, each with
        one delivery; the job of a piece of one goes to the dead.
    :raises StreamFencedError, CheckpointMismatchError: as :func:`allocate`.
    """
    row = _held_by(connection, store, session)
    _check(connection, store, row, start)
    _check(connection, store, row, end)
    found = connection.execute(_batches(store, row.id, start.batch + 1, end.batch)).all()
    if len(found) != end.batch - start.batch:
        raise _mismatch(row.name, f"batches {start.batch + 1} to {end.batch} are not all there")
    if any(batch.delivered_epoch < session.epoch for batch in found):
        batches = store.tables.batches
        for batch in found:
            if batch.delivered_epoch < session.epoch:
                dying = most is not None and batch.deliveries >= most and give_up(connection, store, row.name, batch)
                mine = and_(batches.c.stream == row.id, batches.c.batch == batch.batch)
                delivered: dict[str, Any] = {"delivered_epoch": session.epoch}
                if not dying:
                    delivered["deliveries"] = batches.c.deliveries + 1
                connection.execute(update(batches).where(mine).values(delivered))
        found = connection.execute(_batches(store, row.id, start.batch + 1, end.batch)).all()
    return [
        Part(batch.batch, low, high, jobs, batch.deliveries - 1) for batch in found for low, high, jobs in json.loads(batch.parts)
    ]


def complete(connection: Connection, store: Store, session: Session, end: Offset) -> None:
    """All up to ``end`` is written elsewhere: the jobs leave, those with a reason to the dead.

    :raises StreamFencedError, CheckpointMismatchError: nothing was changed.
    """
    row = _held_by(connection, store, session)
    if end.batch > row.acked:
        _check(connection, store, row, end)
        _complete(connection, store, row, end)


def complete_claim(connection: Connection, store: Store, offset: Offset) -> int | None:
    """Spark has committed ``offset``, of whatever stream: all up to it leaves; return the number of jobs, None: no such claim.

    Nothing is done once another reader has opened the stream: it may be at this batch.
    """
    streams, batches = store.tables.streams, store.tables.batches
    query = select(streams.c.name).join(batches, batches.c.stream == streams.c.id)
    name = connection.execute(query.where(batches.c.batch == offset.batch, batches.c.claim == offset.claim)).scalar()
    row = None if name is None else _locked(connection, store, name)
    if row is None:
        return None
    batch = connection.execute(_batches(store, row.id, offset.batch, offset.batch)).first()
    if batch is None or batch.claim != offset.claim or batch.delivered_epoch < row.epoch:
        return None
    return _complete_all(connection, store, row, offset)


def complete_committed(connection: Connection, store: Store, name: str, offsets: Collection[Offset]) -> int | None:
    """The last of the offsets that a checkpoint has committed, one of which is this stream's: all up to it leaves.

    A reader that is still there is fenced off; the checkpoint is good. The number of jobs; None: no such stream.

    :raises CheckpointMismatchError: none of them is this stream's.
    """
    row = _locked(connection, store, name)
    if row is None:
        return None
    claims = {batch.batch: batch.claim for batch in connection.execute(_batches(store, row.id, row.acked + 1, row.allocated))}
    claims[row.acked] = row.acked_claim
    mine = [offset for offset in offsets if claims.get(offset.batch) == offset.claim]
    if not mine:
        raise _mismatch(name, "none of the offsets that it has committed is one of this stream's")
    return _complete_and_fence(connection, store, row, max(mine, key=lambda offset: offset.batch))


def complete_held(connection: Connection, store: Store, name: str) -> int | None:
    """All that a stream holds is written, as somebody knows who has looked: :func:`complete_committed` for all of it."""
    row = _locked(connection, store, name)
    if row is None:
        return None
    if row.allocated == row.acked:
        return 0
    (last,) = connection.execute(_batches(store, row.id, row.allocated, row.allocated)).all()
    return _complete_and_fence(connection, store, row, Offset(last.batch, last.claim))


def maybe_written(connection: Connection, store: Store, name: str) -> int:
    """How many of the held jobs a query was given: it may have written them."""
    streams, batches = store.tables.streams, store.tables.batches
    query = select(func.coalesce(func.sum(batches.c.size), 0)).join(streams, streams.c.id == batches.c.stream)
    return int(connection.execute(query.where(streams.c.name == name, batches.c.deliveries > 0)).scalar_one())


def read(connection: Connection, store: Store, stream: int, part: Part, *, after: int, limit: int) -> Rows:
    """Up to ``limit`` held jobs of ``part`` with ids above ``after``, by id: :data:`queue_db.store.ranges.COLUMNS`."""
    held = store.tables.held
    # Typed: servers take a bare parameter for text.
    attempts = (held.c.attempts + literal(part.again, Integer)).label("attempts") if part.again else held.c.attempts
    query = (
        select(*(attempts if name == "attempts" else held.c[name] for name in COLUMNS))
        .where(held.c.stream == stream, held.c.batch == part.batch, held.c.id > after, held.c.id <= part.high)
        .order_by(held.c.id)
        .limit(limit)
    )
    return rows_of(connection, store, query)


def mark_dead(connection: Connection, store: Store, stream: int, reasons: Mapping[tuple[int, int], str]) -> int:
    """Let held jobs go to the dead when their batch is completed; until then a replay still reads them.

    :param reasons: ``(id, version)`` → why.
    :returns: how many were found.
    """
    held, streams = store.tables.held, store.tables.streams
    # A completion that is under way has looked for marks already: after it there is nothing to mark.
    connection.execute(store.dialect.lock_rows(select(streams.c.id).where(streams.c.id == stream), skip=False)).first()
    found = 0
    for (job_id, version), reason in sorted(reasons.items()):
        # The version stands in no index; the batches of a stream are few.
        batches = select(store.tables.batches.c.batch).where(store.tables.batches.c.stream == stream).scalar_subquery()
        mine = and_(held.c.stream == stream, held.c.batch.in_(batches), held.c.id == job_id, held.c.version == version)
        found += connection.execute(update(held).where(mine).values(dead_reason=reason)).rowcount
    return found


def release(connection: Connection, store: Store, name: str) -> int | None:
    """Give the held jobs of a stream back to its queue, and let no checkpoint that there is go on; None: no such stream."""
    row = _locked(connection, store, name)
    return None if row is None else _release(connection, store, row)


def expired(connection: Connection, store: Store) -> list[str]:
    """Names of the streams that hold jobs and have had no reader for longer than their retention."""
    streams = store.tables.streams
    late = streams.c.seen_at + streams.c.retention < moment(store.clock is not None)
    query = select(streams.c.name).where(streams.c.allocated > streams.c.acked, late).order_by(streams.c.name)
    return list(connection.execute(query, store.time()).scalars())


def release_expired(connection: Connection, store: Store, name: str) -> int:
    """:func:`release`, if it has still had no reader."""
    row = _locked(connection, store, name)
    if row is None or name not in expired(connection, store):
        return 0
    return _release(connection, store, row)


def listed(connection: Connection, store: Store, queue: str | None = None) -> Sequence[Row[Any]]:
    """Every stream with what it holds: jobs, batches, and since when (microseconds); ``now`` beside it."""
    streams, batches = store.tables.streams, store.tables.batches
    query = (
        select(
            streams,
            moment(store.clock is not None).label("now"),
            func.coalesce(func.sum(batches.c.size), 0).label("held"),
            func.count(batches.c.batch).label("batches"),
            func.coalesce(func.sum(case((batches.c.deliveries > 0, batches.c.size), else_=0)), 0).label("maybe_written"),
            func.coalesce(func.max(batches.c.deliveries), 0).label("deliveries"),
            func.min(batches.c.oldest_at).label("oldest_at"),
        )
        .select_from(streams.outerjoin(batches, batches.c.stream == streams.c.id))
        .group_by(*streams.c)
        .order_by(streams.c.name)
    )
    if queue is not None:
        query = query.where(streams.c.queue == queue)
    return connection.execute(query, store.time()).all()


def highest_due(connection: Connection, store: Store, queue: str) -> int | None:
    """The highest id of a due job of ``queue``: what comes later is beyond it."""
    jobs = store.tables.jobs
    due = [jobs.c.queue == queue, jobs.c.available_at <= moment(store.clock is not None), jobs.c.delete_mark == 0]
    found: int | None = connection.execute(select(func.max(jobs.c.id)).where(*due), store.time()).scalar()
    return found


def backlog(connection: Connection, store: Store, queue: str) -> tuple[int, int | None]:
    """Due jobs of ``queue``, and the age of the longest waiting one (microseconds). Reads all of them."""
    jobs = store.tables.jobs
    now = moment(store.clock is not None)
    due = [jobs.c.queue == queue, jobs.c.available_at <= now, jobs.c.delete_mark == 0]
    seen = select(func.count(), func.min(jobs.c.available_at), func.max(now)).where(*due)
    count, oldest, read_at = connection.execute(seen, store.time()).one()
    return int(count), None if oldest is None else int(read_at) - int(oldest)


def _locked(connection: Connection, store: Store, name: str) -> Row[Any] | None:
    streams = store.tables.streams
    return connection.execute(store.dialect.lock_rows(select(streams).where(streams.c.name == name), skip=False)).first()


def _held_by(connection: Connection, store: Store, session: Session) -> Row[Any]:
    row = _locked(connection, store, session.name)
    if row is None or row.id != session.stream:
        raise _mismatch(session.name, "the stream is not there any more")
    if row.epoch != session.epoch:
        raise StreamFencedError(
            f"stream {session.name!r} was taken over or released (epoch {row.epoch}, this reader has {session.epoch}; now held by "
            f"{row.holder or 'nobody'}): one query reads a stream at a time; give the other one a stream of its own"
        )
    return row


def _batches(store: Store, stream: int, low: int, high: int) -> Any:
    batches = store.tables.batches
    return select(batches).where(batches.c.stream == stream, batches.c.batch.between(low, high)).order_by(batches.c.batch)


def _check(connection: Connection, store: Store, row: Row[Any], offset: Offset) -> None:
    """Whether the checkpoint's offset is one that this database has given out and still knows."""
    if not row.acked <= offset.batch <= row.allocated:
        raise _mismatch(
            row.name, f"it is at batch {offset.batch}, the database has {row.acked} completed and {row.allocated} claimed"
        )
    if offset.batch == row.acked:
        known = row.acked_claim
    else:
        known = connection.execute(_batches(store, row.id, offset.batch, offset.batch)).one().claim
    if offset.claim != known:
        raise _mismatch(row.name, f"its batch {offset.batch} is not the one that the database knows by this number")


def _mismatch(name: str, what: str) -> CheckpointMismatchError:
    return CheckpointMismatchError(
        f"the checkpoint and stream {name!r} do not belong together: {what}. The checkpoint or the database was restored from a "
        "backup, the stream was released, or the checkpoint is another stream's. Jobs were neither lost nor repeated; to go on "
        "from what the database knows, start with a new checkpoint location, and with a new output folder or txnAppId: sinks that "
        "know batches by their number would take the new ones for old"
    )


def _claim_allowed(
    connection: Connection, store: Store, row: Row[Any], batch: int, claim: str, limit: int, ceiling: int | None
) -> int:
    """:func:`_claim`, unless the queue is paused, and no more than its rate allows; return how many."""
    said = controls.read(connection, store, [row.queue]).get(row.queue)
    if said is None or (not said.paused and said.rate is None):
        return _claim(connection, store, row, batch, claim, limit, ceiling)
    if said.paused:
        return 0
    allowed, _ = controls.spend(connection, store, row.queue, limit)
    taken = _claim(connection, store, row, batch, claim, allowed, ceiling) if allowed else 0
    if taken < allowed and said.rate is not None and said.per is not None:
        controls.refund(connection, store, row.queue, round((allowed - taken) * said.per * 1_000_000 / said.rate))
    return taken


def _claim(connection: Connection, store: Store, row: Row[Any], batch: int, claim: str, limit: int, ceiling: int | None) -> int:
    """Move up to ``limit`` due jobs to the held ones; return how many."""
    jobs, held, streams = store.tables.jobs, store.tables.held, store.tables.streams
    callbacks = store.tables.callbacks
    # Each by an index of its own: not one of most queues' jobs is such.
    tied = [
        select(literal(1)).where(jobs.c.queue == row.queue, jobs.c.unique_key.is_not(None)),
        select(literal(1)).where(jobs.c.queue == row.queue, jobs.c.group_key.is_not(None)),
        select(literal(1)).where(callbacks.c.queue == row.queue),
    ]
    others = select(literal(1)).where(streams.c.queue == row.queue, streams.c.id != row.id).limit(1)
    keyed = any(connection.execute(query.limit(1)).first() is not None for query in tied)
    due = [jobs.c.queue == row.queue, jobs.c.available_at <= moment(store.clock is not None), jobs.c.delete_mark == 0]
    # A row written by hand with a higher version than leases have: claims bury it.
    due.append(jobs.c.version < MOST_CLAIMED_VERSION)
    if ceiling is not None:
        due.append(jobs.c.id <= ceiling)
    if not keyed:
        due.append(~stays(jobs))
    values: dict[str, ColumnElement[Any]] = {
        "stream": literal(row.id, BigInteger),
        "batch": literal(batch, BigInteger),
        **{name: jobs.c[name] for name in _KEPT},
        "version": next_version(jobs),
        "attempts": next_attempt(jobs),
    }
    reserved = {
        "due_at": jobs.c.available_at,
        "available_at": NEVER,
        "version": next_version(jobs),
        "attempts": next_attempt(jobs),
        "claim_token": claim,
        "worker": f"stream {row.name}"[:100],
    }
    skip = connection.execute(others).first() is not None
    move = Move(jobs, held, due, limit, values, reserved if keyed else None, skip)
    return store.dialect.move_to_held(connection, move, store.time())


def _parts(
    connection: Connection, store: Store, stream: int, batch: int, partitions: int
) -> tuple[list[tuple[int, int, int]], int, int]:
    """Cut a batch into ranges of ids with about as many jobs each; the ranges, the jobs with keys, and when the oldest was made."""
    held = store.tables.held
    mine = and_(held.c.stream == stream, held.c.batch == batch)
    low, high = connection.execute(select(func.min(held.c.id), func.max(held.c.id)).where(mine)).one()
    keyed = cast(stays(held), Integer).label("keyed")
    width = max(1, -(-(high - low + 1) // (partitions * _FINENESS)))
    counted = _counted(
        connection,
        select(held.c.id, keyed, held.c.created_at, ((held.c.id - low) // width).label("place")).where(mine).subquery(),
    )
    total = sum(row.jobs for row in counted)
    most = max(_WORTH, -(-total // partitions))
    parts = _merged(counted, most, partitions)
    if max(jobs for _, _, jobs in parts) > most + most // 2:
        # Ids far apart from each other, or in heaps: equal shares take longer to find.
        shares = func.ntile(min(partitions, -(-total // _WORTH))).over(order_by=held.c.id).label("place")
        counted = _counted(connection, select(held.c.id, keyed, held.c.created_at, shares).where(mine).subquery())
        parts = [(row.low, row.high, row.jobs) for row in counted]
    return parts, sum(int(row.keyed) for row in counted), min(row.oldest for row in counted)


def _merged(counted: Sequence[Row[Any]], most: int, partitions: int) -> list[tuple[int, int, int]]:
    """Neighbouring ranges put together, as long as they have no more than ``most`` jobs."""
    parts: list[tuple[int, int, int]] = []
    for row in counted:
        if parts and (parts[-1][2] + row.jobs <= most or len(parts) == partitions):
            first, _, jobs = parts[-1]
            parts[-1] = (first, row.high, jobs + row.jobs)
        else:
            parts.append((row.low, row.high, row.jobs))
    return parts


def _counted(connection: Connection, rows: Any) -> Sequence[Row[Any]]:
    """The jobs of each ``place``, in its order."""
    return connection.execute(
        select(
            rows.c.place,
            func.min(rows.c.id).label("low"),
            func.max(rows.c.id).label("high"),
            func.count().label("jobs"),
            func.sum(rows.c.keyed).label("keyed"),
            func.min(rows.c.created_at).label("oldest"),
        )
        .group_by(rows.c.place)
        .order_by(rows.c.place)
    ).all()


def _complete(connection: Connection, store: Store, row: Row[Any], end: Offset) -> None:
    """Everything up to ``end`` leaves."""
    if end.batch <= row.acked:
        return
    held, batches, streams = store.tables.held, store.tables.batches, store.tables.streams
    for batch in connection.execute(_batches(store, row.id, row.acked + 1, end.batch)).all():
        mine = and_(held.c.stream == row.id, held.c.batch == batch.batch)
        if batch.keyed:
            for pairs in _keyed(connection, store, mine):
                gone = _leave(connection, store, mine, pairs)
                # Those that somebody has cancelled, or given a new content under the same id, are no more: they cannot die.
                lost = [job_id for job_id, _ in pairs if job_id not in gone]
                if lost:
                    connection.execute(delete(held).where(mine, held.c.id.in_(lost)))
        _bury_marked(connection, store, mine)
        connection.execute(delete(held).where(mine))
    connection.execute(delete(batches).where(batches.c.stream == row.id, batches.c.batch <= end.batch))
    acked = {"acked": end.batch, "acked_claim": end.claim, "seen_at": moment(store.clock is not None)}
    connection.execute(update(streams).where(streams.c.id == row.id).values(acked), store.time())


def _complete_all(connection: Connection, store: Store, row: Row[Any], end: Offset) -> int:
    batches = store.tables.batches
    size = select(func.coalesce(func.sum(batches.c.size), 0))
    jobs = connection.execute(size.where(batches.c.stream == row.id, batches.c.batch <= end.batch)).scalar_one()
    _complete(connection, store, row, end)
    return int(jobs)


def _complete_and_fence(connection: Connection, store: Store, row: Row[Any], end: Offset) -> int:
    streams = store.tables.streams
    connection.execute(update(streams).where(streams.c.id == row.id).values(epoch=row.epoch + 1, holder=None))
    return _complete_all(connection, store, row, end)


def _leave(connection: Connection, store: Store, mine: ColumnElement[bool], pairs: Pairs) -> set[int]:
    """Take jobs that are in both tables out of the jobs table; return their ids."""
    held = store.tables.held
    marked = select(held.c.id).where(mine, held.c.id.in_([job_id for job_id, _ in pairs]), held.c.dead_reason.is_not(None))
    dead = set(connection.execute(marked).scalars())
    # A batch is completed in several parts: the first one locks all that the others may want.
    gone, _ = dependents.delete(
        connection, store, pairs, lambda job_id: Departure.DEAD if job_id in dead else Departure.COMPLETED, every=True
    )
    return gone


def _bury_marked(connection: Connection, store: Store, mine: ColumnElement[bool]) -> None:
    held, dead, streams, batches = store.tables.held, store.tables.dead, store.tables.streams, store.tables.batches
    same = (
        "id",
        "kind",
        "payload",
        "headers",
        "priority",
        "version",
        "attempts",
        "max_attempts",
        "unique_key",
        "created_at",
        "group_key",
    )
    copied: dict[str, ColumnElement[Any]] = {name: held.c[name] for name in same}
    copied |= {"queue": streams.c.queue, "worker": streams.c.holder}
    copied |= {"died_at": moment(store.clock is not None), "last_error": held.c.dead_reason}
    again = case((batches.c.deliveries > 1, batches.c.deliveries - 1), else_=0)
    copied |= {"attempts": held.c.attempts + again}
    source = (
        select(*copied.values())
        .join_from(held, streams, streams.c.id == held.c.stream)
        .join(batches, and_(batches.c.stream == held.c.stream, batches.c.batch == held.c.batch))
        .where(mine, held.c.dead_reason.is_not(None))
    )
    buried = connection.execute(insert(dead).from_select(list(copied), source), store.time()).rowcount
    if buried and store.buried is not None:
        told = [copied[name].label(name) for name in ("id", "queue", "kind", "attempts", "max_attempts", "last_error")]
        for row in connection.execute(source.with_only_columns(*told, maintain_column_froms=True).order_by(held.c.id)):
            store.buried[row.id] = row


def _keyed(connection: Connection, store: Store, mine: ColumnElement[bool]) -> Iterator[Pairs]:
    """``(id, version)`` of the held jobs with a key, in parts."""
    held = store.tables.held
    found = connection.execute(select(held.c.id, held.c.version).where(mine, stays(held)).order_by(held.c.id))
    return _some((row.id, row.version) for row in found.all())


def _some(pairs: Iterable[tuple[int, int]]) -> Iterator[Pairs]:
    rest = iter(pairs)
    while some := list(islice(rest, _PAIRS)):
        yield some


def _release(connection: Connection, store: Store, row: Row[Any]) -> int:
    jobs, held, batches, streams = store.tables.jobs, store.tables.held, store.tables.batches, store.tables.streams
    mine = held.c.stream == row.id
    unworked = case((held.c.attempts > 0, held.c.attempts - 1), else_=0)
    back: dict[str, ColumnElement[Any]] = {name: held.c[name] for name in _KEPT}
    back |= {"queue": literal(row.queue, jobs.c.queue.type), "version": next_version(held), "attempts": unworked}
    source = select(*back.values()).where(mine, ~stays(held))
    released = connection.execute(insert(jobs).from_select(list(back), source)).rowcount
    free = {"available_at": jobs.c.due_at, "version": next_version(jobs), "claim_token": None, "worker": None}
    free["attempts"] = case((jobs.c.attempts > 0, jobs.c.attempts - 1), else_=0)
    for pairs in _keyed(connection, store, mine):
        # One that somebody has replaced or cancelled meanwhile has another version, and is not ours to bring back.
        released += len(store.dialect.change(connection, jobs, pairs, free, {}))
    connection.execute(delete(held).where(mine))
    connection.execute(delete(batches).where(batches.c.stream == row.id))
    # Another token for the same number: no checkpoint that there is knows it.
    ended = {"epoch": row.epoch + 1, "acked": row.allocated, "acked_claim": secrets.token_hex(16), "holder": None}
    connection.execute(update(streams).where(streams.c.id == row.id).values(ended))
    return released
