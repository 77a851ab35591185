"""Cursors: durable positions with one holder, fenced by a version."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import BigInteger, ColumnElement, Connection, Row, and_, case, delete, func, insert, literal, select, update
from sqlalchemy.exc import IntegrityError

from queue_db.dialects.clock import moment
from queue_db.dialects.transactions import savepoint
from queue_db.store.base import Store
from queue_db.store.feeds import rows, spans
from queue_db.store.feeds.rows import FeedRow, moved_to


def take(
    connection: Connection, store: Store, feed: int, name: str, *, holder: str, lease: int, start: int, force: bool
) -> tuple[Row[Any], bool]:
    """Open a cursor for ``holder``, for ``lease`` microseconds; a new one begins after ``start``.

    Return its row, and whether it was taken: False: another holder has it, or it is shared.
    """
    cursors = store.tables.feeds.cursors
    store.dialect.begin(connection)
    row = _locked(connection, store, feed, name)
    if row is None:
        fresh = {"feed": feed, "name": name, "acked": start, "created_at": moment(store.clock is not None)}
        try:
            with savepoint(connection):
                connection.execute(insert(cursors).values(fresh), store.time())
        except IntegrityError:
            pass  # another process has created it meanwhile
        row = _locked(connection, store, feed, name)
        assert row is not None  # noqa: S101 - it is there, and locked
    now = store.read_clock(connection)
    if row.handed is not None or (row.holder is not None and row.until > now and not force):
        return row, False
    values = {"version": row.version + 1, "holder": holder, "until": now + lease, "seen_at": now}
    connection.execute(update(cursors).where(_is(store, feed, name)).values(values))
    return connection.execute(select(cursors).where(_is(store, feed, name))).one(), True


def find(connection: Connection, store: Store, feed: int, name: str) -> Row[Any] | None:
    """The row of a cursor; None: there is no such cursor."""
    return connection.execute(select(store.tables.feeds.cursors).where(_is(store, feed, name))).one_or_none()


def acknowledge(connection: Connection, store: Store, feed: int, name: str, version: int, seq: int, lease: int) -> bool:
    """Move the cursor to ``seq``, never back, and extend the hold; False: another holder has opened it, or it is gone."""
    cursors = store.tables.feeds.cursors
    now = moment(store.clock is not None)
    values = {
        "acked": case((cursors.c.acked < seq, seq), else_=cursors.c.acked),
        "seen_at": now,
        "until": now + lease,
    }
    held = update(cursors).where(_is(store, feed, name), cursors.c.version == version).values(values)
    return bool(connection.execute(held, store.time()).rowcount)


def extend(connection: Connection, store: Store, feed: int, name: str, version: int, lease: int) -> bool:
    """Extend the hold; False: another holder has opened the cursor, or it is gone."""
    return acknowledge(connection, store, feed, name, version, -1, lease)


def release(connection: Connection, store: Store, feed: int, name: str, version: int) -> bool:
    """End the hold; the position stays."""
    cursors = store.tables.feeds.cursors
    mine = and_(_is(store, feed, name), cursors.c.version == version)
    return bool(connection.execute(update(cursors).where(mine).values(version=version + 1, holder=None, until=0)).rowcount)


def seek(connection: Connection, store: Store, feed: int, name: str, seq: int) -> bool:
    """Move a cursor to ``seq``, forwards or back; its holder is fenced off. False: there is no such cursor."""
    tables = store.tables.feeds
    store.dialect.begin(connection)
    values = moved_to(tables.cursors, seq)
    if not connection.execute(update(tables.cursors).where(_is(store, feed, name)).values(values)).rowcount:
        return False
    spans.drop(connection, tables, feed, name)
    return True


def remove(connection: Connection, store: Store, feed: int, name: str) -> bool:
    """Delete a cursor; False: there is none."""
    tables = store.tables.feeds
    store.dialect.begin(connection)
    if not connection.execute(delete(tables.cursors).where(_is(store, feed, name))).rowcount:
        return False
    spans.drop(connection, tables, feed, name)
    return True


def named(connection: Connection, store: Store, name: str) -> tuple[list[Row[Any]], list[FeedRow]]:
    """The cursors of one name in all feeds, locked, and then their feeds as they are."""
    cursors, feeds = store.tables.feeds.cursors, store.tables.feeds.feeds
    store.dialect.begin(connection)
    query = select(cursors.c.feed, cursors.c.handed).where(cursors.c.name == name).order_by(cursors.c.feed)
    found = list(connection.execute(store.dialect.lock_rows(query, skip=False)))
    # After the locks: who raises an epoch waits for them, or has committed.
    of = select(*(feeds.c[column] for column in FeedRow._fields)).where(feeds.c.id.in_([row.feed for row in found]))
    return found, [FeedRow(*row) for row in connection.execute(of)] if found else []


def move(connection: Connection, store: Store, name: str, seqs: Mapping[int, int]) -> None:
    """Move the cursors of one name to these numbers, never back.

    :param seqs: feed → number.
    """
    cursors = store.tables.feeds.cursors
    to = case({feed: literal(seq, BigInteger) for feed, seq in seqs.items()}, value=cursors.c.feed)
    values = {"acked": case((cursors.c.acked < to, to), else_=cursors.c.acked), "seen_at": moment(store.clock is not None)}
    mine = update(cursors).where(cursors.c.name == name, cursors.c.feed.in_(list(seqs)))
    connection.execute(mine.values(values), store.time())


def feeds(connection: Connection, store: Store, some: Sequence[int] | None, name: str | None = None) -> dict[int, str]:
    """Those of some feeds, or of all, that have cursors of one name or of any, with their orderings."""
    cursors, feeds = store.tables.feeds.cursors, store.tables.feeds.feeds
    query = select(feeds.c.id, feeds.c.ordering).join(cursors, cursors.c.feed == feeds.c.id).distinct()
    found = connection.execute(query.where(*_these(store, some, name)))
    return {row.id: row.ordering for row in found}


def every(connection: Connection, store: Store, some: Sequence[int] | None, name: str | None = None) -> list[Row[Any]]:
    """The cursors of some feeds or of all, of one name or of all, by feed and name, with the feed's columns and the time."""
    cursors, feeds, spans = store.tables.feeds.cursors, store.tables.feeds.feeds, store.tables.feeds.spans
    mine = and_(spans.c.feed == cursors.c.feed, spans.c.cursor_name == cursors.c.name)
    lowest = select(func.min(spans.c.low)).where(mine).scalar_subquery()
    query = select(
        *(cursors.c[name] for name in ("feed", "name", "holder", "until", "seen_at", "created_at", "handed")),
        # Of a shared cursor all before the lowest open span is done.
        func.coalesce(lowest - 1, cursors.c.handed, cursors.c.acked).label("position"),
        select(func.count()).where(mine).scalar_subquery().label("spans"),
        feeds.c.name.label("feed_name"),
        feeds.c.next_seq,
        feeds.c.first_seq,
        feeds.c.token,
        feeds.c.epoch,
        moment(store.clock is not None).label("now"),
    ).join(feeds, feeds.c.id == cursors.c.feed)
    query = query.where(*_these(store, some, name)).order_by(feeds.c.name, cursors.c.name)
    return list(connection.execute(query, store.time()))


def _locked(connection: Connection, store: Store, feed: int, name: str) -> Row[Any] | None:
    query = select(store.tables.feeds.cursors).where(_is(store, feed, name))
    return connection.execute(store.dialect.lock_rows(query, skip=False)).first()


def _these(store: Store, some: Sequence[int] | None, name: str | None) -> list[ColumnElement[bool]]:
    cursors = store.tables.feeds.cursors
    found: list[ColumnElement[bool]] = [] if some is None else [cursors.c.feed.in_(some)]
    return found if name is None else [*found, cursors.c.name == name]


def _is(store: Store, feed: int, name: str) -> Any:
    cursors = store.tables.feeds.cursors
    return and_(cursors.c.feed == feed, cursors.c.name == name)


def with_waiting(
    connection: Connection, store: Store, some: Sequence[int] | None, name: str | None = None
) -> tuple[list[Row[Any]], dict[int, int]]:
    """The cursors of some feeds or of all, of a name or of all, and how many messages of each of their feeds wait for a number."""
    # In this order: what gets its number in between is counted twice, and not left out.
    waiting = rows.waiting(connection, store, feeds(connection, store, some, name))
    return [row for row in every(connection, store, some, name) if row.feed in waiting], waiting
