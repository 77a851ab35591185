"""An ordering without the guarantee: what goes wrong with numbers from a sequence."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, func, insert, select, update

from queue_db.store import Store
from queue_db.store.feeds.messages import First, NewMessage
from queue_db.store.feeds.rows import FeedRow


class Naive:
    """Messages are numbered when they are inserted, by an id that the database counts up, and become visible at the commit."""

    name = "naive"
    ranks = False

    def append(self, connection: Connection, store: Store, feed: FeedRow, new: Sequence[NewMessage]) -> First | None:
        tables, first = store.tables.feeds, None
        for message in new:
            row = {"feed": feed.id, **message._asdict()}
            seq = connection.execute(insert(tables.inbox).values(row)).inserted_primary_key[0]
            connection.execute(insert(tables.messages).values(seq=seq, **row))
            connection.execute(tables.inbox.delete().where(tables.inbox.c.id == seq))
            first = first or seq
        return None if first is None else First(first, 1)

    def rank(self, connection: Connection, store: Store, feed: int) -> int:
        # So that no position is taken for one ahead of the feed. In a transaction of its own: publishers do not wait for it.
        feeds = store.tables.feeds.feeds
        connection.execute(update(feeds).where(feeds.c.id == feed).values(next_seq=2**40))
        return 0


class ByTransaction:
    """Messages are numbered by the transaction that publishes them (PostgreSQL), which may have begun before what it has read."""

    name = "xid"
    ranks = False

    def append(self, connection: Connection, store: Store, feed: FeedRow, new: Sequence[NewMessage]) -> First | None:
        tables = store.tables.feeds
        first = connection.execute(select(func.txid_current())).scalar_one() * 1000
        for seq, message in enumerate(new, first):
            connection.execute(insert(tables.messages).values(feed=feed.id, seq=seq, **message._asdict()))
        return First(first, 1)

    def rank(self, connection: Connection, store: Store, feed: int) -> int:
        return 0
