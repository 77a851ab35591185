"""Cursors: durable positions with one holder, fenced by a version."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import BigInteger, ColumnElement, Row, and_, case, func, literal, select, update

from queue_db.feeds.store import rows, spans
from queue_db.feeds.store.rows import FeedRow, moved_to
from queue_db.feeds.tables import feed_tables
from queue_db.store import by_key
from queue_db.store.base import Store, Transaction


def take(tx: Transaction, feed: int, name: str, *, holder: str, lease: int, start: int, force: bool) -> tuple[Row[Any], bool]:
    """Open a cursor for ``holder``, for ``lease`` microseconds; a new one begins after ``start``.

    Return its row, and whether it was taken: not if another holder has it, or if it is shared.
    """
    cursors, key = feed_tables(tx.tables).cursors, {"feed": feed, "name": name}
    row = by_key.lock(tx, cursors, key)
    if row is None:
        # If it is not inserted, another process has done so meanwhile.
        by_key.insert_new(tx, cursors, key | {"acked": start, "created_at": tx.now})
        row = by_key.lock(tx, cursors, key)
        assert row is not None  # noqa: S101 - it is there, and locked
    now = tx.read_clock()
    if row.handed is not None or (row.holder is not None and row.until > now and not force):
        return row, False
    by_key.change(tx, cursors, key, {"version": row.version + 1, "holder": holder, "until": now + lease, "seen_at": now})
    return tx.connection.execute(select(cursors).where(by_key.matches(cursors, key))).one(), True


def find_cursor(tx: Transaction, feed: int, name: str) -> Row[Any] | None:
    """The row of a cursor; None: there is no such cursor."""
    cursors = feed_tables(tx.tables).cursors
    return tx.connection.execute(select(cursors).where(by_key.matches(cursors, {"feed": feed, "name": name}))).one_or_none()


def acknowledge(tx: Transaction, feed: int, name: str, version: int, seq: int, lease: int) -> bool:
    """Move the cursor to ``seq``, never back, and extend the hold; False: another holder has opened it, or it is gone."""
    cursors, now = feed_tables(tx.tables).cursors, tx.now
    values = {"acked": case((cursors.c.acked < seq, seq), else_=cursors.c.acked), "seen_at": now, "until": now + lease}
    return by_key.change(tx, cursors, {"feed": feed, "name": name, "version": version}, values)


def extend(tx: Transaction, feed: int, name: str, version: int, lease: int) -> bool:
    """Extend the hold; False: another holder has opened the cursor, or it is gone."""
    return acknowledge(tx, feed, name, version, -1, lease)


def release(tx: Transaction, feed: int, name: str, version: int) -> bool:
    """End the hold; the position stays."""
    mine = {"feed": feed, "name": name, "version": version}
    return by_key.release(tx, feed_tables(tx.tables).cursors, mine, {"holder": None})


def seek(tx: Transaction, feed: int, name: str, seq: int) -> bool:
    """Move a cursor to ``seq``, forwards or back; its holder is fenced off. False: there is no such cursor."""
    tables = feed_tables(tx.tables)
    if not by_key.change(tx, tables.cursors, {"feed": feed, "name": name}, moved_to(tables.cursors, seq)):
        return False
    spans.drop(tx.connection, tables, feed, name)
    return True


def remove(tx: Transaction, feed: int, name: str) -> bool:
    """Delete a cursor; False: there is none."""
    tables = feed_tables(tx.tables)
    if not by_key.delete(tx, tables.cursors, {"feed": feed, "name": name}):
        return False
    spans.drop(tx.connection, tables, feed, name)
    return True


def named(tx: Transaction, name: str) -> tuple[list[Row[Any]], list[FeedRow]]:
    """The cursors of one name in all feeds, locked, and then their feeds as they are."""
    cursors, feeds = feed_tables(tx.tables).cursors, feed_tables(tx.tables).feeds
    query = select(cursors.c.feed, cursors.c.handed).where(cursors.c.name == name).order_by(cursors.c.feed)
    found = list(tx.connection.execute(tx.dialect.lock_rows(query, skip=False)))
    # Read after the locks: whoever raises an epoch waits for these locks, or has committed.
    of = select(*(feeds.c[column] for column in FeedRow._fields)).where(feeds.c.id.in_([row.feed for row in found]))
    return found, [FeedRow(*row) for row in tx.connection.execute(of)] if found else []


def move(tx: Transaction, name: str, seqs: Mapping[int, int]) -> None:
    """Move the cursors of one name to these numbers, never back.

    :param seqs: feed → number.
    """
    cursors = feed_tables(tx.tables).cursors
    to = case({feed: literal(seq, BigInteger) for feed, seq in seqs.items()}, value=cursors.c.feed)
    values = {"acked": case((cursors.c.acked < to, to), else_=cursors.c.acked), "seen_at": tx.now}
    mine = update(cursors).where(cursors.c.name == name, cursors.c.feed.in_(list(seqs)))
    tx.connection.execute(mine.values(values), tx.time())


def feeds(tx: Transaction, some: Sequence[int] | None, name: str | None = None) -> Sequence[int]:
    """The feeds with a cursor, or with one of this name; of ``some`` feeds, or of all (None)."""
    cursors, feeds = feed_tables(tx.tables).cursors, feed_tables(tx.tables).feeds
    query = select(feeds.c.id).join(cursors, cursors.c.feed == feeds.c.id).distinct()
    return tx.connection.execute(query.where(*_these(tx.store, some, name))).scalars().all()


def list_cursors(tx: Transaction, some: Sequence[int] | None, name: str | None = None) -> list[Row[Any]]:
    """Cursors with columns of their feeds and the time, by feed and name; of ``some`` feeds and of one name, or of all (None)."""
    cursors, feeds, spans = feed_tables(tx.tables).cursors, feed_tables(tx.tables).feeds, feed_tables(tx.tables).spans
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
        tx.now.label("now"),
    ).join(feeds, feeds.c.id == cursors.c.feed)
    query = query.where(*_these(tx.store, some, name)).order_by(feeds.c.name, cursors.c.name)
    return list(tx.connection.execute(query, tx.time()))


def _these(store: Store, some: Sequence[int] | None, name: str | None) -> list[ColumnElement[bool]]:
    cursors = feed_tables(store.tables).cursors
    found: list[ColumnElement[bool]] = [] if some is None else [cursors.c.feed.in_(some)]
    return found if name is None else [*found, cursors.c.name == name]


def with_waiting(tx: Transaction, some: Sequence[int] | None, name: str | None = None) -> tuple[list[Row[Any]], dict[int, int]]:
    """:func:`list_cursors`, and how many messages of each of their feeds wait for a number."""
    # In this order, a message that gets its number in between is counted twice; in the other one it would be left out.
    waiting = rows.waiting(tx, feeds(tx, some, name))
    return [row for row in list_cursors(tx, some, name) if row.feed in waiting], waiting


def behind(tx: Transaction) -> list[tuple[str, str, int]]:
    """Feed, cursor, and how many messages the cursor is behind, of all cursors."""
    found, waiting = with_waiting(tx, None)
    return [(row.feed_name, row.name, row.next_seq - 1 - row.position + waiting[row.feed]) for row in found]
