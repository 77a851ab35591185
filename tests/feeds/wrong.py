"""Rankers, tickers and routers that are written wrongly: what the accounts of the kills must notice."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from sqlalchemy import delete, insert, select, update

from queue_db.feeds import Cursor, Feed, Message
from queue_db.store import Transaction
from queue_db.store.feeds import cursors, ticking
from queue_db.store.feeds.rows import locked

# Columns of a message that stay the same when it gets its number.
_CONTENT = ("kind", "payload", "headers", "message_key", "client", "created_at")


def _number(tx: Transaction, feed: int) -> list[int]:
    """Give numbers to all that waits; return the ids, which are still there."""
    tx.begin()
    tables = tx.tables.feeds
    row = locked(tx, feed)
    assert row is not None
    columns = [tables.inbox.c[name] for name in ("id", *_CONTENT)]
    found = tx.connection.execute(select(*columns).where(tables.inbox.c.feed == feed).order_by(tables.inbox.c.id)).all()
    if found:
        rows = [{"feed": feed, "seq": seq, **one._mapping} for seq, one in enumerate(found, row.next_seq)]
        tx.connection.execute(
            insert(tables.messages), [{name: value for name, value in one.items() if name != "id"} for one in rows]
        )
        tx.connection.execute(update(tables.feeds).where(tables.feeds.c.id == feed).values(next_seq=row.next_seq + len(found)))
    return [one.id for one in found]


def _take_out(tx: Transaction, feed: int, ids: Sequence[int]) -> None:
    tx.begin()
    locked(tx, feed)  # no other ranker is disturbed
    tx.connection.execute(delete(tx.tables.feeds.inbox).where(tx.tables.feeds.inbox.c.id.in_(ids)))


def rank_in_two(feed: Feed) -> int:
    """Number messages in one transaction, and take them out of the inbox in another one."""
    ids = feed.core.write(_number, feed.row().id)
    if ids:
        feed.core.write(_take_out, feed.row().id, ids)
    return len(ids)


def _tick(tx: Transaction, feed: int) -> tuple[int, str | None, str | None]:
    """Number messages, but leave the state as it was; return how many, that state, and the one that belongs to them."""
    tx.begin()
    feeds = tx.tables.feeds.feeds
    state = select(feeds.c.tick_state).where(feeds.c.id == feed)
    before = tx.connection.execute(state.with_for_update()).scalar_one()
    numbered = ticking.tick(tx, feed)
    after = tx.connection.execute(state).scalar_one()
    tx.connection.execute(update(feeds).where(feeds.c.id == feed).values(tick_state=before))
    return numbered, before, after


def _advance(tx: Transaction, feed: int, before: str | None, after: str | None) -> None:
    tx.begin()
    feeds = tx.tables.feeds.feeds
    unchanged = feeds.c.tick_state.is_not_distinct_from(before)  # no other ticker is disturbed
    tx.connection.execute(update(feeds).where(feeds.c.id == feed, unchanged).values(tick_state=after))


def tick_in_two(feed: Feed) -> int:
    """Insert ticks in one transaction, and say in another one up to where they are; other orderings are right."""
    row = feed.row()
    if row.ordering != "ticks":
        return feed.rank_once(row)
    numbered, *states = feed.core.write(_tick, row.id)
    if numbered:
        feed.core.write(_advance, row.id, *states)
    return numbered


def acknowledge_first(cursor: Cursor, messages: Sequence[Message], change: Callable[[Transaction], Any]) -> Any:
    """Move the cursor in one transaction, and do what it is for in another one."""
    position = (cursor._feed_id, cursor.name, cursor._version, messages[-1].seq, cursor._lease)
    cursor._core.write(cursors.acknowledge, *position)

    def effect(tx: Transaction) -> Any:
        return change(tx)

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
