"""Orderings without the guarantee: what goes wrong with numbers from a sequence, or of transactions."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import BigInteger, Text, cast, func, insert, literal_column, select, update

from benchmarks import feed_controls
from queue_db.feeds.store import ranking
from queue_db.feeds.store.messages import First, NewMessage
from queue_db.feeds.store.rows import FeedRow, locked
from queue_db.feeds.tables import feed_tables
from queue_db.store import Transaction


class Naive(feed_controls.Naive):
    """Messages are numbered when they are inserted, by an id that the database counts up, and become visible at the commit."""

    def rank(self, tx: Transaction, feed: int) -> int:
        # So that no position is taken for one ahead of the feed. In a transaction of its own: publishers do not wait for it.
        feeds = feed_tables(tx.tables).feeds
        tx.connection.execute(update(feeds).where(feeds.c.id == feed).values(next_seq=2**40))
        return 0


class ByTransaction(feed_controls.Control):
    """Messages are numbered by the transaction that publishes them (PostgreSQL), which may have begun before what it has read."""

    name = "xid"

    def append(self, tx: Transaction, feed: FeedRow, new: Sequence[NewMessage]) -> First | None:
        tables = feed_tables(tx.tables)
        first = tx.connection.execute(select(func.txid_current())).scalar_one() * 1000
        for seq, message in enumerate(new, first):
            tx.connection.execute(insert(tables.messages).values(feed=feed.id, seq=seq, **message._asdict()))
        return First(first, 1)


class BelowXmin:
    """Messages are numbered once all transactions have ended that are as old as theirs or older (PostgreSQL)."""

    name = "xmin"
    ranks = True
    coalesces = False

    def append(self, tx: Transaction, feed: FeedRow, new: Sequence[NewMessage]) -> First | None:
        ranking.append(tx, feed, new)
        return None

    def rank(self, tx: Transaction, feed: int) -> int:
        tables = feed_tables(tx.tables)
        tx.begin()
        inbox, row = tables.inbox, locked(tx, feed)
        assert row is not None
        # The transaction that has inserted a row is in its system column xmin.
        xid = cast(cast(literal_column("xmin"), Text), BigInteger)
        ended = xid < func.txid_snapshot_xmin(func.txid_current_snapshot())
        query = select(inbox).where(inbox.c.feed == feed, ended).order_by(xid, inbox.c.id)
        found = tx.connection.execute(query).mappings().all()
        for seq, one in enumerate(found, row.next_seq):
            content = {name: value for name, value in one.items() if name != "id"}
            tx.connection.execute(insert(tables.messages).values(seq=seq, **content))
            tx.connection.execute(inbox.delete().where(inbox.c.id == one["id"]))
        next_seq = row.next_seq + len(found)
        tx.connection.execute(update(tables.feeds).where(tables.feeds.c.id == feed).values(next_seq=next_seq))
        return len(found)
