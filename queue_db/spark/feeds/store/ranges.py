"""Messages by ranges of numbers: for readers that share the work of reading all of them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from sqlalchemy import func, select

from queue_db.feeds.store import rows
from queue_db.feeds.store.rows import FeedRow
from queue_db.feeds.tables import feed_tables
from queue_db.spark.dialects import SparkDialect
from queue_db.spark.ranges.store import Rows, rows_of
from queue_db.store.base import Transaction


class Range(NamedTuple):
    """The messages of a feed with numbers from ``low`` to ``high``."""

    low: int
    high: int

    @property
    def messages(self) -> int:
        """How many there are: the numbers of a feed without claims have no gaps."""
        return self.high - self.low + 1


def feed_ranges(low: int, high: int, parts: int, worth: int) -> list[Range]:
    """The numbers from ``low`` to ``high`` as up to ``parts`` ranges of about equal size, and not smaller than ``worth``."""
    count = max(0, high - low + 1)
    parts = max(1, min(parts, count // worth)) if count else 0
    borders = [low + count * part // parts for part in range(parts)] + [high + 1]
    return [Range(start, end - 1) for start, end in pairwise(borders)]


def message_page(
    tx: Transaction,
    feed: int,
    *,
    after: int,
    high: int,
    limit: int,
    columns: Sequence[str],
    kinds: Sequence[str] | None = None,
    csv: bool = False,
) -> tuple[FeedRow | None, Rows]:
    """Up to ``limit`` messages with numbers above ``after`` and up to ``high``, by number; and the feed, None if it was deleted."""
    messages = feed_tables(tx.tables).messages
    among = (messages.c.feed == feed, messages.c.seq > after, messages.c.seq <= high)
    query = select(*(messages.c[name] for name in columns)).where(*among).order_by(messages.c.seq).limit(limit)
    if kinds is not None:
        query = query.where(messages.c.kind.in_(kinds))
    # In this order: if messages are trimmed between the two statements, the row shows it.
    found = rows_of(tx, query, csv=csv)
    return rows.by_id(tx, feed), found


def within(tx: Transaction, feed: FeedRow, after: int, last: int, size: int) -> int:
    """The last number up to ``last`` to which the payloads above ``after`` have up to ``size`` bytes together, at least one."""
    messages = feed_tables(tx.tables).messages
    among = (messages.c.feed == feed.id, messages.c.seq > after, messages.c.seq <= last)
    bytes_of = SparkDialect.of(tx.dialect).size(messages.c.payload)
    total = func.sum(bytes_of).over(order_by=messages.c.seq, rows=(None, 0)).label("total")
    sums = select(messages.c.seq, total).where(*among).subquery("sums")
    query = select(func.min(sums.c.seq)).where(sums.c.total > size)
    beyond: int | None = tx.connection.execute(query).scalar()
    if beyond is None:
        return last
    first: int = tx.connection.execute(select(func.min(messages.c.seq)).where(*among)).scalar_one()
    return max(first, beyond - 1)


def age(tx: Transaction, feed: FeedRow, after: int) -> int | None:
    """Microseconds since the first message with a number above ``after`` was inserted; None: there is none."""
    messages = feed_tables(tx.tables).messages
    waited = tx.now - messages.c.created_at
    query = select(waited).where(messages.c.feed == feed.id, messages.c.seq > after).order_by(messages.c.seq).limit(1)
    found: int | None = tx.connection.execute(query, tx.time()).scalar()
    return found


def since(tx: Transaction, feed: FeedRow, at: int) -> int | None:
    """The number of the first message that was inserted at this time or later; None: there is none.

    Messages after it may be older, since numbers follow the order of commits. All before it are read.
    """
    messages = feed_tables(tx.tables).messages
    there = (messages.c.feed == feed.id, messages.c.seq >= feed.first_seq, messages.c.seq < feed.next_seq)
    query = select(messages.c.seq).where(*there, messages.c.created_at >= at).order_by(messages.c.seq).limit(1)
    found: int | None = tx.connection.execute(query).scalar()
    return found
