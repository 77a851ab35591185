"""Where the messages of a feed are by number: stored with it, or numbered when they are read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from sqlalchemy import BigInteger, ColumnElement, FromClause, Table, delete, exists, func, literal, select, union_all

from queue_db.store.base import Transaction
from queue_db.store.schema.feeds import FeedTables

# Most feeds whose messages are counted in one statement.
_COUNTED_AT_ONCE = 100

#: A value, or the parameter of a statement.
Value = int | ColumnElement[int]


class Numbered(NamedTuple):
    """Messages with their numbers: something to select from."""

    rows: FromClause  #: has the columns of a message, and ``seq``
    conditions: Sequence[ColumnElement[bool]]
    order: Sequence[ColumnElement[Any]]  #: by number


class Numbers(Protocol):
    """How the numbered messages of a feed are found and removed."""

    #: Whether the number is a column of the message.
    stored: bool

    def between(self, tables: FeedTables, feed: Value, after: Value, high: Value | None, limit: Value | None) -> Numbered:
        """Messages with numbers above ``after``; up to ``high``, unless it is None.

        :param limit: the caller wants only so many of them; None: not known.
        """
        ...

    def among(self, tables: FeedTables, feed: int, seqs: Sequence[int]) -> Numbered:
        """The messages with these numbers."""
        ...

    def delete(self, tx: Transaction, feed: int, first: int, end: int) -> int:
        """Delete the messages with numbers from ``first``, the lowest that is there, up to ``end``; return how many.

        The caller holds the feed's row.
        """
        ...

    def waiting(self, tx: Transaction, feeds: Sequence[int], most: int) -> dict[int, int]:
        """How many messages of each of these feeds have no number yet, counted up to ``most``."""
        ...

    def last_waiting(self, tx: Transaction, feed: int, upto: int | None = None) -> int | None:
        """An id up to ``upto`` that no message exceeds that has no number yet, of those up to ``upto``; None: there is none."""
        ...

    def may_wait(self, tables: FeedTables, feed: Value) -> ColumnElement[bool]:
        """Whether messages may have no number yet."""
        ...

    def tables(self, tables: FeedTables) -> Sequence[Table]:
        """The tables that have the feed's messages."""
        ...


class Stored:
    """The number is a column of the message."""

    stored = True

    def between(self, tables: FeedTables, feed: Value, after: Value, high: Value | None, limit: Value | None) -> Numbered:
        messages = tables.messages
        conditions = [messages.c.feed == feed, messages.c.seq > after]
        if high is not None:
            conditions.append(messages.c.seq <= high)
        return Numbered(messages, conditions, [messages.c.seq])

    def among(self, tables: FeedTables, feed: int, seqs: Sequence[int]) -> Numbered:
        messages = tables.messages
        return Numbered(messages, [messages.c.feed == feed, messages.c.seq.in_(seqs)], [messages.c.seq])

    def delete(self, tx: Transaction, feed: int, first: int, end: int) -> int:
        messages = tx.tables.feeds.messages
        # From first: below it the index may have many entries of deleted rows.
        mine = (messages.c.feed == feed, messages.c.seq >= first, messages.c.seq < end)
        return tx.connection.execute(delete(messages).where(*mine)).rowcount

    def waiting(self, tx: Transaction, feeds: Sequence[int], most: int) -> dict[int, int]:
        inbox = tx.tables.feeds.inbox
        found: dict[int, int] = {}
        for first in range(0, len(feeds), _COUNTED_AT_ONCE):
            # Each in a query of its own: only a LIMIT bounds what a count reads.
            each = [
                select(literal(feed, BigInteger).label("feed"), func.count().label("messages")).select_from(
                    select(inbox.c.id).where(inbox.c.feed == feed).limit(most).subquery()
                )
                for feed in feeds[first : first + _COUNTED_AT_ONCE]
            ]
            found.update((row.feed, row.messages) for row in tx.connection.execute(union_all(*each)))
        return found

    def last_waiting(self, tx: Transaction, feed: int, upto: int | None = None) -> int | None:
        inbox = tx.tables.feeds.inbox
        query = select(func.max(inbox.c.id)).where(inbox.c.feed == feed)
        return tx.connection.execute(query if upto is None else query.where(inbox.c.id <= upto)).scalar()

    def may_wait(self, tables: FeedTables, feed: Value) -> ColumnElement[bool]:
        return exists(select(tables.inbox.c.id).where(tables.inbox.c.feed == feed))

    def tables(self, tables: FeedTables) -> Sequence[Table]:
        return (tables.inbox, tables.messages)
