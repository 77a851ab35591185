"""Spans: leases on ranges of a feed's messages, which consumers of a shared cursor claim.

No row of a message changes. A claim moves ``handed`` of the cursor forward and inserts a span; completing deletes it. Every change
of a span carries ``(id, version)``: after another consumer took it over, or the cursor was moved, it changes nothing.

Locks in this order: stripes of groups (where messages become jobs), feeds, cursors, spans, jobs.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from sqlalchemy import (
    Connection,
    Delete,
    Row,
    Table,
    Update,
    and_,
    bindparam,
    case,
    delete,
    func,
    insert,
    select,
    update,
)
from sqlalchemy.exc import IntegrityError

from queue_db.dialects.clock import moment
from queue_db.dialects.transactions import savepoint
from queue_db.feeds.store.message_jobs import MessageJob, add
from queue_db.feeds.tables import FeedTables, feed_tables
from queue_db.model import Capability
from queue_db.store.base import Transaction

# Jobs inserted at once when a span becomes jobs.
_CHUNK = 1000


class SpanLostError(Exception):
    """Another consumer has the span, or one of the messages was settled before: the transaction must be rolled back."""


class SpanLockedError(Exception):
    """Another transaction has locked the span's row."""


class SpanRow(NamedTuple):
    """A span as its holder has claimed it."""

    id: int
    low: int
    high: int
    version: int
    attempts: int
    done: str | None


def create(tx: Transaction, feed: int, name: str, start: int) -> bool:
    """Create a shared cursor whose first message is the one after ``start``, if there is none; False: it is not shared."""
    cursors = feed_tables(tx.tables).cursors
    tx.begin()
    mine = and_(cursors.c.feed == feed, cursors.c.name == name)
    row = tx.connection.execute(select(cursors.c.handed).where(mine)).first()
    if row is None:
        fresh = {"feed": feed, "name": name, "acked": start, "handed": start, "created_at": tx.moment}
        try:
            with savepoint(tx.connection):
                tx.connection.execute(insert(cursors).values(fresh), tx.time())
        except IntegrityError:
            row = tx.connection.execute(tx.dialect.lock_rows(select(cursors.c.handed).where(mine), skip=False)).first()
        else:
            return True
    return row is not None and row.handed is not None


# --- settle ---------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=64)
def _delete(spans: Table) -> Delete:
    return delete(spans).where(spans.c.id == bindparam("span"), spans.c.version == bindparam("held"))


def complete(tx: Transaction, span: int, version: int) -> bool:
    """All messages of the span are done; False: another consumer has it, or it is gone."""
    return bool(tx.execute(_delete(feed_tables(tx.tables).spans), {"span": span, "held": version}))


def settle(
    tx: Transaction,
    span: int,
    version: int,
    seqs: Iterable[int] | None,
    jobs: Sequence[MessageJob] = (),
    *,
    wait: bool = True,
) -> list[int]:
    """The messages ``seqs`` are done, None: all; those of ``jobs`` become jobs. Return the ids of these.

    :param wait: for a transaction that has locked the span's row. Without SKIP LOCKED it waits.
    :raises SpanLostError: the span is lost, or one of these messages was settled before.
    :raises SpanLockedError: another transaction has locked its row, and ``wait`` is False.
    """
    if seqs is None and not jobs and wait:
        if not complete(tx, span, version):
            raise SpanLostError
        return []
    spans = feed_tables(tx.tables).spans
    tx.begin()
    # First: it locks stripes.
    ids = _add(tx, jobs)
    mine = and_(spans.c.id == span, spans.c.version == version)
    query = select(spans.c.low, spans.c.high, spans.c.done).where(mine)
    skip = not wait and Capability.SKIP_LOCKED in tx.store.capabilities
    row = tx.connection.execute(tx.dialect.lock_rows(query, skip=skip)).first()
    if row is None:
        raise SpanLockedError if skip and tx.connection.execute(query).first() is not None else SpanLostError
    low, done = row.low, settled(row.done)
    now_done = [*(seqs or ()), *(one.seq for one in jobs)]
    if len(set(now_done)) < len(now_done) or any(seq in done or not low <= seq <= row.high for seq in now_done):
        raise SpanLostError
    done.update(now_done)
    while low in done:
        done.remove(low)
        low += 1
    if seqs is None or low > row.high:
        tx.connection.execute(delete(spans).where(mine))
    else:
        tx.connection.execute(update(spans).where(mine).values(low=low, done=json.dumps(sorted(done)) if done else None))
    return ids


def split(tx: Transaction, span: SpanRow, jobs: Sequence[MessageJob]) -> list[int]:
    """All messages of an expired span become jobs, and the span ends.

    :raises SpanLostError: it was taken over, extended or completed meanwhile, or a transaction settles messages of it.
    """
    spans = feed_tables(tx.tables).spans
    tx.begin()
    ids = _add(tx, jobs)
    expired = and_(
        spans.c.id == span.id,
        spans.c.version == span.version,
        spans.c.until <= tx.moment,
        # What its holder has settled since it was read is not among the jobs.
        spans.c.low == span.low,
        spans.c.done.is_(None) if span.done is None else spans.c.done == span.done,
    )
    skip = Capability.SKIP_LOCKED in tx.store.capabilities
    if tx.connection.execute(tx.dialect.lock_rows(select(spans.c.id).where(expired), skip=skip), tx.time()).first() is None:
        raise SpanLostError
    tx.connection.execute(delete(spans).where(spans.c.id == span.id))
    return ids


def _add(tx: Transaction, jobs: Sequence[MessageJob]) -> list[int]:
    ids: list[int] = []
    for start in range(0, len(jobs), _CHUNK):
        ids += add(tx, jobs[start : start + _CHUNK], more=len(jobs) > _CHUNK)
    return ids


def settled(done: str | None) -> set[int]:
    """The numbers of messages that the column ``done`` lists."""
    return set() if done is None else set(json.loads(done))


@lru_cache(maxsize=64)
def _extend(spans: Table, settable: bool) -> Update:
    mine = and_(spans.c.id == bindparam("span"), spans.c.version == bindparam("held"))
    return update(spans).where(mine).values(until=moment(settable) + bindparam("lease"))


def extend(tx: Transaction, span: int, version: int, lease: int) -> bool:
    """The lease ends ``lease`` microseconds from now; False: another consumer has the span, or it is gone.

    The version stays: whoever takes over an expired span checks that it still is.
    """
    statement = _extend(feed_tables(tx.tables).spans, tx.store.clock is not None)
    values = {"span": span, "held": version, "lease": lease, **tx.time()}
    return bool(tx.execute(statement, values))


def extend_unlocked(tx: Transaction, span: int, version: int, lease: int) -> bool | None:
    """:func:`extend` without a wait for a transaction that has locked the span's row; None: one has.

    Without SKIP LOCKED it waits.
    """
    if Capability.SKIP_LOCKED not in tx.store.capabilities:
        return extend(tx, span, version, lease)
    spans = feed_tables(tx.tables).spans
    tx.begin()
    mine = select(spans.c.id).where(spans.c.id == span, spans.c.version == version)
    if tx.connection.execute(tx.dialect.lock_rows(mine, skip=True)).first() is not None:
        return extend(tx, span, version, lease)
    return None if tx.connection.execute(mine).first() is not None else False


def release(tx: Transaction, span: int, version: int) -> bool:
    """Any consumer may claim the span now; the claim that ends here is no attempt. False: another one has it, or it is gone."""
    spans = feed_tables(tx.tables).spans
    values = {
        "version": spans.c.version + 1,
        "attempts": case((spans.c.attempts > 0, spans.c.attempts - 1), else_=0),
        "worker": None,
        "until": 0,
    }
    mine = and_(spans.c.id == span, spans.c.version == version)
    return bool(tx.connection.execute(update(spans).where(mine).values(values)).rowcount)


def rescue(tx: Transaction, worker: str) -> int:
    """Any consumer may claim the spans of a dead ``worker`` now; return how many. Their attempts count. Reads all spans."""
    spans, settable = feed_tables(tx.tables).spans, tx.store.clock is not None
    tx.begin()
    held = select(spans.c.id, spans.c.version).where(spans.c.worker == worker, spans.c.until > moment(settable))
    released = 0
    for row in tx.connection.execute(held.order_by(spans.c.id), tx.time()).all():
        mine = update(spans).where(spans.c.id == row.id, spans.c.version == row.version)
        released += tx.connection.execute(mine.values(version=spans.c.version + 1, worker=None, until=0)).rowcount
    return released


# --- what others need of them -----------------------------------------------------------------------------------------


def every(tx: Transaction, feed: int, name: str) -> list[Row[Any]]:
    """The open spans of a shared cursor, by number, with the time."""
    spans = feed_tables(tx.tables).spans
    query = select(spans, tx.moment.label("now"))
    mine = query.where(spans.c.feed == feed, spans.c.cursor_name == name)
    return list(tx.connection.execute(mine.order_by(spans.c.low), tx.time()))


def drop(connection: Connection, tables: FeedTables, feed: int, name: str | None) -> None:
    """Delete the open spans of a cursor, None: of all cursors of the feed; their holders lose them."""
    spans = tables.spans
    mine = spans.c.feed == feed
    connection.execute(delete(spans).where(mine if name is None else and_(mine, spans.c.cursor_name == name)))


def slowest(connection: Connection, tables: FeedTables, feed: int) -> int | None:
    """The lowest position of the feed's cursors: retention waits for it. None: it has none."""
    cursors, spans = tables.cursors, tables.spans
    read = select(func.min(func.coalesce(cursors.c.handed, cursors.c.acked))).where(cursors.c.feed == feed)
    # In this order: a span that is claimed in between begins after ``handed`` as it was read.
    position = connection.execute(read).scalar()
    if position is None:
        return None
    lowest = connection.execute(select(func.min(spans.c.low)).where(spans.c.feed == feed)).scalar()
    return int(position) if lowest is None else min(position, lowest - 1)
