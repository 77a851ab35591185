"""Ranked feeds: publishers insert into the inbox, in no one's way; a ranker gives the numbers, one transaction at a time.

The lock of the feed's row comes in a statement of its own. In one statement the inbox would be read as it was before the wait for
the lock, and messages that another ranker has just moved would get a second number.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from sqlalchemy import Select, Table, bindparam, func, select, update

from queue_db.feeds.dialects import FeedDialect, NumberedMove
from queue_db.feeds.store.messages import Extent, NewMessage, insert_rows, keep
from queue_db.feeds.store.rows import FeedRow, pin
from queue_db.feeds.tables import feed_tables
from queue_db.model import Capability
from queue_db.store.base import Transaction

#: Most messages ranked in one transaction.
RANKED_AT_ONCE = 1000

#: Characters (PostgreSQL, MySQL, MariaDB: bytes) of payloads ranked in one transaction, unless it is one message. A statement with
#: a thousand of the longest ones could take longer than the timeouts allow, each time again.
SIZE_AT_ONCE = 16 << 20

_CONTENT = (*NewMessage._fields, "created_at")


def append(tx: Transaction, feed: FeedRow, messages: Sequence[NewMessage]) -> None:
    """Insert ``messages`` into the inbox. Their order is the order of their numbers later.

    :raises LookupError: the feed was deleted.
    """
    pin(tx, feed)
    insert_rows(tx, feed_tables(tx.tables).inbox, [{"feed": feed.id, **message._asdict()} for message in messages])


@lru_cache(maxsize=64)
def _move(inbox: Table, messages: Table) -> NumberedMove:
    return NumberedMove(inbox, messages, _CONTENT)


@lru_cache(maxsize=64)
def _waiting(inbox: Table) -> Select[Any]:
    return select(inbox.c.id).where(inbox.c.feed == bindparam("feed")).limit(1)


def last_waiting(tx: Transaction, feed: int, upto: int | None = None) -> int | None:
    """The highest id in the inbox, of those up to ``upto``; None: nothing waits."""
    inbox = feed_tables(tx.tables).inbox
    query = select(func.max(inbox.c.id)).where(inbox.c.feed == feed)
    return tx.connection.execute(query if upto is None else query.where(inbox.c.id <= upto)).scalar()


def rank(tx: Transaction, feed: int) -> int:
    """Give the next numbers to the messages in the inbox, by id, at most :data:`RANKED_AT_ONCE`; return how many.

    0 if another transaction is ranking them.
    """
    tables = feed_tables(tx.tables)
    if not tx.fetch(_waiting(tables.inbox), {"feed": feed}):
        return 0
    tx.begin()  # here and not by the run: mostly nothing waits, and the look needs no transaction
    query = select(*(tables.feeds.c[name] for name in Extent._fields))
    skip = Capability.SKIP_LOCKED in tx.store.capabilities
    row = tx.connection.execute(tx.dialect.lock_rows(query.where(tables.feeds.c.id == feed), skip=skip, pinned=True)).first()
    if row is None:
        return 0
    moved = FeedDialect.of(tx.dialect).move_numbered(
        tx,
        _move(tables.inbox, tables.messages),
        feed=feed,
        first=row.next_seq,
        most=RANKED_AT_ONCE,
        largest=SIZE_AT_ONCE,
    )
    if not moved:
        return 0
    next_seq = row.next_seq + moved
    tx.connection.execute(update(tables.feeds).where(tables.feeds.c.id == feed).values(next_seq=next_seq))
    keep(tx, feed, Extent(next_seq, *row[1:]), moved)
    return moved
