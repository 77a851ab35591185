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

from sqlalchemy import Connection, Delete, Row, Table, Update, and_, bindparam, delete, func, select, update

from queue_db.dialects.clock import moment
from queue_db.feeds.store.message_jobs import MessageJob, add
from queue_db.feeds.tables import FeedTables, feed_tables
from queue_db.model import Capability
from queue_db.store import by_key
from queue_db.store.base import Transaction, attempt_before

# Jobs inserted at once when a span becomes jobs.
_CHUNK = 1000


class SpanLostError(Exception):
    """Another consumer has the span, or one of the messages was settled before: the transaction must be rolled back."""


class SpanRow(NamedTuple):
    """A span as its holder has claimed it."""

    id: int
    low: int
    high: int
    version: int
    attempts: int
    done: str | None


def create(tx: Transaction, feed: int, name: str, start: int) -> bool:
    """Create a shared cursor before the message after ``start``, unless there is one; False: the cursor is not shared."""
    cursors = feed_tables(tx.tables).cursors
    key = {"feed": feed, "name": name}
    row = tx.connection.execute(select(cursors.c.handed).where(by_key.matches(cursors, key))).first()
    if row is None:
        places = {"acked": start, "handed": start, "created_at": tx.now}
        if by_key.insert_new(tx, cursors, key | places):
            return True
        row = by_key.lock(tx, cursors, key, "handed")
    return row is not None and row.handed is not None


# --- settle ---------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=64)
def _delete(spans: Table) -> Delete:
    return delete(spans).where(spans.c.id == bindparam("span"), spans.c.version == bindparam("held"))


def complete(tx: Transaction, span: int, version: int) -> bool:
    """All messages of the span are done; False: another consumer has it, or it is gone."""
    return bool(tx.execute(_delete(feed_tables(tx.tables).spans), {"span": span, "held": version}))


def is_one_statement(seqs: Iterable[int] | None, jobs: Sequence[MessageJob], *, wait: bool) -> bool:
    """Whether :func:`settle` sends one statement with these arguments, and not several in a transaction."""
    return seqs is None and not jobs and wait


def settle(
    tx: Transaction,
    span: int,
    version: int,
    seqs: Iterable[int] | None,
    jobs: Sequence[MessageJob] = (),
    *,
    wait: bool = True,
) -> list[int]:
    """The messages ``seqs`` are done (None: all), and those of ``jobs`` become jobs; return the ids of the jobs.

    :param wait: for another transaction that has locked the span. Without SKIP LOCKED it waits in any case.
    :raises SpanLostError: the span is lost, or one of these messages was settled before.
    :raises RowLockedError: another transaction has locked the span, and ``wait`` is False.
    """
    if is_one_statement(seqs, jobs, wait=wait):
        if not complete(tx, span, version):
            raise SpanLostError
        return []
    spans, mine = feed_tables(tx.tables).spans, {"id": span, "version": version}
    # First, since it locks stripes.
    ids = _add(tx, jobs)
    row = by_key.lock(tx, spans, mine, "low", "high", "done", wait=wait)
    if row is None:
        raise SpanLostError
    low, done = row.low, settled(row.done)
    now_done = [*(seqs or ()), *(one.seq for one in jobs)]
    if len(set(now_done)) < len(now_done) or any(seq in done or not low <= seq <= row.high for seq in now_done):
        raise SpanLostError
    done.update(now_done)
    while low in done:
        done.remove(low)
        low += 1
    if seqs is None or low > row.high:
        by_key.delete(tx, spans, mine)
    else:
        by_key.change(tx, spans, mine, {"low": low, "done": json.dumps(sorted(done)) if done else None})
    return ids


def split(tx: Transaction, span: SpanRow, jobs: Sequence[MessageJob]) -> list[int]:
    """All messages of an expired span become jobs, and the span ends.

    :raises SpanLostError: it was taken over, extended or completed meanwhile, or a transaction settles messages of it.
    """
    spans = feed_tables(tx.tables).spans
    ids = _add(tx, jobs)
    expired = and_(
        spans.c.id == span.id,
        spans.c.version == span.version,
        spans.c.until <= tx.now,
        # Unchanged since it was read: a message that its holder has settled must not become a job.
        spans.c.low == span.low,
        spans.c.done.is_(None) if span.done is None else spans.c.done == span.done,
    )
    skip = Capability.SKIP_LOCKED in tx.store.capabilities
    if tx.connection.execute(tx.dialect.lock_rows(select(spans.c.id).where(expired), skip=skip), tx.time()).first() is None:
        raise SpanLostError
    by_key.delete(tx, spans, {"id": span.id})
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


def extend(tx: Transaction, span: int, version: int, lease: int, *, wait: bool = True) -> bool:
    """The lease ends ``lease`` microseconds from now; False: another consumer has the span, or it is gone.

    The version stays: whoever takes over an expired span checks that it still is.

    :param wait: as for :func:`settle`.
    :raises RowLockedError: as for :func:`settle`.
    """
    spans = feed_tables(tx.tables).spans
    skip = not wait and Capability.SKIP_LOCKED in tx.store.capabilities
    if skip and by_key.lock(tx, spans, {"id": span, "version": version}, "id", wait=False) is None:
        return False
    values = {"span": span, "held": version, "lease": lease, **tx.time()}
    return bool(tx.execute(_extend(spans, tx.store.clock is not None), values))


def release(tx: Transaction, span: int, version: int) -> bool:
    """Any consumer may claim the span now, and this claim is no attempt. False: another consumer has it, or it is gone."""
    spans = feed_tables(tx.tables).spans
    values = {"attempts": attempt_before(spans), "worker": None}
    return by_key.release(tx, spans, {"id": span, "version": version}, values)


def rescue(tx: Transaction, worker: str) -> int:
    """Any consumer may claim the spans of a dead ``worker`` now; return how many. Their attempts count. Reads all spans."""
    spans, settable = feed_tables(tx.tables).spans, tx.store.clock is not None
    held = select(spans.c.id, spans.c.version).where(spans.c.worker == worker, spans.c.until > moment(settable))
    found = tx.connection.execute(held.order_by(spans.c.id), tx.time()).all()
    return sum(by_key.release(tx, spans, row._asdict(), {"worker": None}) for row in found)


# --- what others need of them -----------------------------------------------------------------------------------------


def open_spans(tx: Transaction, feed: int, name: str) -> list[Row[Any]]:
    """The open spans of a shared cursor, by number, with the time."""
    spans = feed_tables(tx.tables).spans
    query = select(spans, tx.now.label("now"))
    mine = query.where(spans.c.feed == feed, spans.c.cursor_name == name)
    return list(tx.connection.execute(mine.order_by(spans.c.low), tx.time()))


def drop(connection: Connection, tables: FeedTables, feed: int, name: str | None) -> None:
    """Delete the open spans of a cursor, or of all cursors of the feed (None); their holders lose them."""
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
