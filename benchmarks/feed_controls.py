"""Orderings of feeds to compare with: how others give numbers, and what the insert alone costs."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import select, update

from queue_db.feeds.store import messages
from queue_db.feeds.store.messages import First, NewMessage
from queue_db.feeds.store.orderings import Ordering
from queue_db.feeds.store.rows import FeedRow
from queue_db.feeds.tables import feed_tables
from queue_db.store import Transaction


class CompareAndSet:
    """Read the number, insert, and set the next number if no other publisher has; otherwise again."""

    name = "compare_and_set"
    ranks = False
    coalesces = False

    def append(self, tx: Transaction, feed: FeedRow, new: Sequence[NewMessage]) -> First | None:
        """Read, try, and read again until it succeeds."""
        feeds = feed_tables(tx.tables).feeds
        while True:
            read = select(feeds.c.next_seq, feeds.c.epoch).where(feeds.c.id == feed.id)
            first, epoch = tx.connection.execute(read).one()
            mine = update(feeds).where(feeds.c.id == feed.id, feeds.c.next_seq == first)
            if tx.connection.execute(mine.values(next_seq=first + len(new))).rowcount:
                break
        rows = [{"feed": feed.id, "seq": seq, **message._asdict()} for seq, message in enumerate(new, first)]
        messages.insert_rows(tx, feed_tables(tx.tables).messages, rows)
        return First(first, epoch)

    def rank(self, tx: Transaction, feed: int) -> int:
        """Nothing waits."""
        return 0


class BareInsert:
    """Rows in the inbox, which get no numbers."""

    name = "bare_insert"
    ranks = False
    coalesces = False

    def append(self, tx: Transaction, feed: FeedRow, new: Sequence[NewMessage]) -> First | None:
        """Insert the rows."""
        rows = [{"feed": feed.id, **message._asdict()} for message in new]
        messages.insert_rows(tx, feed_tables(tx.tables).inbox, rows)
        return None

    def rank(self, tx: Transaction, feed: int) -> int:
        """They get no numbers."""
        return 0


#: By name. No reader can read the second.
CONTROLS: dict[str, Ordering] = {one.name: one for one in (CompareAndSet(), BareInsert())}
