"""Orderings of feeds to compare with: how others give numbers, and what the insert alone costs."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import insert, select, update

from queue_db.feeds.store import messages
from queue_db.feeds.store.messages import First, NewMessage
from queue_db.feeds.store.orderings import Ordering
from queue_db.feeds.store.rows import FeedRow
from queue_db.feeds.tables import feed_tables
from queue_db.store import Transaction


class Control:
    """An ordering whose messages get their numbers at once, or none: nothing waits to be ranked."""

    ranks = False
    coalesces = False

    def rank(self, tx: Transaction, feed: int) -> int:
        """Nothing waits."""
        return 0


class CompareAndSet(Control):
    """Read the number, insert, and set the next number if no other publisher has; otherwise again."""

    name = "compare_and_set"

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


class BareInsert(Control):
    """Rows in the inbox, which get no numbers."""

    name = "bare_insert"

    def append(self, tx: Transaction, feed: FeedRow, new: Sequence[NewMessage]) -> First | None:
        """Insert the rows."""
        rows = [{"feed": feed.id, **message._asdict()} for message in new]
        messages.insert_rows(tx, feed_tables(tx.tables).inbox, rows)
        return None


class Naive(Control):
    """The negative control: ids from a sequence as numbers, which become visible in another order."""

    name = "naive"

    def append(self, tx: Transaction, feed: FeedRow, new: Sequence[NewMessage]) -> First | None:
        """Insert into the inbox for an id of the sequence, and then with it as number."""
        tables, first = feed_tables(tx.tables), None
        for message in new:
            row = {"feed": feed.id, **message._asdict()}
            (seq,) = tx.connection.execute(insert(tables.inbox).values(row)).inserted_primary_key or (0,)
            tx.connection.execute(insert(tables.messages).values(seq=seq, **row))
            tx.connection.execute(tables.inbox.delete().where(tables.inbox.c.id == seq))
            first = first or seq
        return None if first is None else First(first, 1)


#: By name. No reader can read the second.
CONTROLS: dict[str, Ordering] = {one.name: one for one in (CompareAndSet(), BareInsert(), Naive())}
