"""Rankers and routers that are written wrongly: what the accounts of the kills must notice."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from sqlalchemy import delete, insert, select, update

from queue_db.feeds import Cursor, Feed, Message
from queue_db.feeds.store import cursors
from queue_db.feeds.store.rows import locked
from queue_db.feeds.tables import feed_tables
from queue_db.store import Transaction

# Columns of a message that stay the same when it gets its number.
_CONTENT = ("kind", "payload", "headers", "message_key", "client", "created_at")


def _number(tx: Transaction, feed: int) -> list[int]:
    """Give numbers to all that waits; return the ids, which are still there."""
    tx.begin()
    tables = feed_tables(tx.tables)
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
    tx.connection.execute(delete(feed_tables(tx.tables).inbox).where(feed_tables(tx.tables).inbox.c.id.in_(ids)))


def rank_in_two(feed: Feed) -> int:
    """Number messages in one transaction, and take them out of the inbox in another one."""
    ids = feed.core.write("test", _number, feed.row().id)
    if ids:
        feed.core.write("test", _take_out, feed.row().id, ids)
    return len(ids)


def acknowledge_first(cursor: Cursor, messages: Sequence[Message], change: Callable[[Transaction], Any]) -> Any:
    """Move the cursor in one transaction, and do what it is for in another one."""
    position = (cursor._feed_id, cursor.name, cursor._version, messages[-1].seq, cursor._lease)
    cursor._core.write("cursors.acknowledge", cursors.acknowledge, *position)

    def effect(tx: Transaction) -> Any:
        return change(tx)

    return cursor._core.write("test", effect)


@contextmanager
def doing(what: str) -> Iterator[None]:
    """Within the block ``ranker`` or ``router`` is wrong; empty: nothing is."""
    if what == "":
        yield
        return
    owner, verb, version = {
        "ranker": (Feed, "rank", rank_in_two),
        "router": (Cursor, "transfer", acknowledge_first),
    }[what]
    right = getattr(owner, verb)
    setattr(owner, verb, version)
    try:
        yield
    finally:
        setattr(owner, verb, right)
