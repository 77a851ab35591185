"""Rankers, tickers and routers that are written wrongly: what the accounts of the kills must notice."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, delete, insert, select, update

from queue_db.feeds import Cursor, Feed, Message
from queue_db.store import Store
from queue_db.store.feeds import cursors, ticking
from queue_db.store.feeds.rows import locked

# Columns of a message that stay the same when it gets its number.
_CONTENT = ("kind", "payload", "headers", "message_key", "client", "created_at")


def _number(connection: Connection, store: Store, feed: int) -> list[int]:
    """Give numbers to all that waits; return the ids, which are still there."""
    store.dialect.begin(connection)
    tables = store.tables.feeds
    row = locked(connection, store, feed)
    assert row is not None
    columns = [tables.inbox.c[name] for name in ("id", *_CONTENT)]
    found = connection.execute(select(*columns).where(tables.inbox.c.feed == feed).order_by(tables.inbox.c.id)).all()
    if found:
        rows = [{"feed": feed, "seq": seq, **one._mapping} for seq, one in enumerate(found, row.next_seq)]
        connection.execute(insert(tables.messages), [{name: value for name, value in one.items() if name != "id"} for one in rows])
        connection.execute(update(tables.feeds).where(tables.feeds.c.id == feed).values(next_seq=row.next_seq + len(found)))
    return [one.id for one in found]


def _take_out(connection: Connection, store: Store, feed: int, ids: Sequence[int]) -> None:
    store.dialect.begin(connection)
    locked(connection, store, feed)  # no other ranker is disturbed
    connection.execute(delete(store.tables.feeds.inbox).where(store.tables.feeds.inbox.c.id.in_(ids)))


def rank_in_two(feed: Feed) -> int:
    """Number messages in one transaction, and take them out of the inbox in another one."""
    ids = feed.core.write(_number, feed.row().id)
    if ids:
        feed.core.write(_take_out, feed.row().id, ids)
    return len(ids)


def _tick(connection: Connection, store: Store, feed: int) -> tuple[int, str | None, str | None]:
    """Number messages, but leave the state as it was; return how many, that state, and the one that belongs to them."""
    store.dialect.begin(connection)
    feeds = store.tables.feeds.feeds
    state = select(feeds.c.tick_state).where(feeds.c.id == feed)
    before = connection.execute(state.with_for_update()).scalar_one()
    numbered = ticking.tick(connection, store, feed)
    after = connection.execute(state).scalar_one()
    connection.execute(update(feeds).where(feeds.c.id == feed).values(tick_state=before))
    return numbered, before, after


def _advance(connection: Connection, store: Store, feed: int, before: str | None, after: str | None) -> None:
    store.dialect.begin(connection)
    feeds = store.tables.feeds.feeds
    unchanged = feeds.c.tick_state.is_not_distinct_from(before)  # no other ticker is disturbed
    connection.execute(update(feeds).where(feeds.c.id == feed, unchanged).values(tick_state=after))


def tick_in_two(feed: Feed) -> int:
    """Insert ticks in one transaction, and say in another one up to where they are; other orderings are right."""
    row = feed.row()
    if row.ordering != "ticks":
        return feed.rank_once(row)
    numbered, *states = feed.core.write(_tick, row.id)
    if numbered:
        feed.core.write(_advance, row.id, *states)
    return numbered


def acknowledge_first(cursor: Cursor, messages: Sequence[Message], change: Callable[[Connection, Store], Any]) -> Any:
    """Move the cursor in one transaction, and do what it is for in another one."""
    position = (cursor._feed_id, cursor.name, cursor._version, messages[-1].seq, cursor._lease)
    cursor._core.write(cursors.acknowledge, *position)

    def effect(connection: Connection, store: Store) -> Any:
        return change(connection, store)

    return cursor._core.write(effect)


@contextmanager
def doing(what: str) -> Iterator[None]:
    """Within the block ``ranker``, ``ticker`` or ``router`` is wrong; empty: nothing is."""
    if what == "":
        yield
        return
    owner, verb, version = {
        "ranker": (Feed, "rank", rank_in_two),
        "ticker": (Feed, "rank", tick_in_two),
        "router": (Cursor, "transfer", acknowledge_first),
    }[what]
    right = getattr(owner, verb)
    setattr(owner, verb, version)
    try:
        yield
    finally:
        setattr(owner, verb, right)
