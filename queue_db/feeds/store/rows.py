"""The row of a feed: create, find, change, delete."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Select,
    Table,
    bindparam,
    case,
    delete,
    func,
    literal,
    select,
    union_all,
    update,
)

from queue_db.dialects.server import long_statements
from queue_db.errors import TransientStorageError
from queue_db.feeds.tables import feed_tables
from queue_db.store import by_key
from queue_db.store.base import Transaction

# Most messages of an inbox that are counted, and most feeds in one statement that counts them.
_COUNTED, _COUNTED_AT_ONCE = 10_000, 100

# Higher than the number of times that a cursor was opened since any backup.
_UNSEEN = 1 << 32


class FeedRow(NamedTuple):
    """A feed at the time of the read."""

    id: int
    name: str
    ordering: str
    next_seq: int
    first_seq: int
    epoch: int
    token: str
    keep_rows: int | None
    keep_for: int | None
    keep_unread: int
    created_at: int
    max_attempts: int | None = None  #: of a message to claim; 0: any number; None: the feed has no claims
    delay: int | None = None  #: microseconds, of messages that are published without one
    lifetime: int | None = None  #: microseconds, of messages that are published without one


@lru_cache(maxsize=64)
def _by(feeds: Table, column: str) -> Select[Any]:
    return select(*(feeds.c[name] for name in FeedRow._fields)).where(feeds.c[column] == bindparam("of"))


def find_feed(tx: Transaction, name: str) -> FeedRow | None:
    """The feed with this name."""
    found = tx.fetch(_by(feed_tables(tx.tables).feeds, "name"), {"of": name})
    return FeedRow(*found[0]) if found else None


def by_id(tx: Transaction, feed: int) -> FeedRow | None:
    """The feed with this id; None: it was deleted."""
    found = tx.fetch(_by(feed_tables(tx.tables).feeds, "id"), {"of": feed})
    return FeedRow(*found[0]) if found else None


def create(tx: Transaction, name: str, values: Mapping[str, Any]) -> FeedRow:
    """The feed with this name; a new one with ``values`` if there is none."""
    found = find_feed(tx, name)
    if found is not None:
        return found
    new = {"name": name, "created_at": tx.now, **values}
    by_key.insert_new(tx, feed_tables(tx.tables).feeds, new)
    return _created_meanwhile(tx, name)


def _created_meanwhile(tx: Transaction, name: str) -> FeedRow:
    """The feed that this transaction or another one has created: the latest rows show that also in an old snapshot."""
    row = _latest(tx, name)
    if row is None:
        raise TransientStorageError(
            f"feed {name!r} was created after this transaction had begun, and its isolation level hides the feed: run it again"
        )
    return row


def _latest(tx: Transaction, name: str) -> FeedRow | None:
    """The row of a feed as it is now, also in an old snapshot."""
    feeds = feed_tables(tx.tables).feeds
    query = select(*(feeds.c[column] for column in FeedRow._fields)).where(feeds.c.name == name)
    row = tx.connection.execute(_pinned(query)).first()
    return None if row is None else FeedRow(*row)


def _pinned(rows: Select[Any]) -> Select[Any]:
    """Read the latest rows and keep other transactions from deleting them until this one ends.

    Any number of transactions can pin a row at the same time. If the query has only columns of one index, and finds the rows by
    this index, InnoDB locks the index entry and not the row, so other transactions can still update the row. PostgreSQL has a lock
    mode for that.
    """
    return rows.with_for_update(read=True, key_share=True)


@lru_cache(maxsize=64)
def _pin(feeds: Table) -> Select[Any]:
    return _pinned(select(feeds.c.id).where(feeds.c.name == bindparam("name")))


def pin(tx: Transaction, feed: FeedRow) -> None:
    """Keep others from deleting the feed until this transaction ends. Publishers and rankers do not wait for each other here.

    :raises LookupError: the feed was deleted.
    """
    found = tx.fetch(_pin(feed_tables(tx.tables).feeds), {"name": feed.name})
    if [tuple(row) for row in found] != [(feed.id,)]:
        raise LookupError(feed.id)


def locked(tx: Transaction, feed: int, *, skip: bool = False) -> FeedRow | None:
    """The row of a feed, locked until the transaction ends against all but :func:`pin`; ``skip``: None if another one has."""
    feeds = feed_tables(tx.tables).feeds
    query = select(*(feeds.c[column] for column in FeedRow._fields)).where(feeds.c.id == feed)
    row = tx.connection.execute(tx.dialect.lock_rows(query, skip=skip, pinned=True)).first()
    return None if row is None else FeedRow(*row)


def by_name(
    tx: Transaction, names: Sequence[str] | None = None, after: str | None = None, limit: int | None = None
) -> list[FeedRow]:
    """These feeds, or all, by name; ``limit``: the first so many after the name ``after``."""
    feeds = feed_tables(tx.tables).feeds
    query = select(*(feeds.c[name] for name in FeedRow._fields)).order_by(feeds.c.name).limit(limit)
    if names is not None:
        query = query.where(feeds.c.name.in_(names))
    if after is not None:
        query = query.where(feeds.c.name > after)
    return [FeedRow(*row) for row in tx.connection.execute(query)]


def counted(tx: Transaction, names: Sequence[str] | None, after: str | None, limit: int | None) -> list[tuple[FeedRow, int, int]]:
    """:func:`by_name`, each with how many messages have a number, and how many have none, counted up to 10,000."""
    claims = feed_tables(tx.tables).claims
    found = by_name(tx, names, after, limit)
    # What was deleted under a claim has left gaps.
    query = select(claims.c.feed, func.count().label("messages")).group_by(claims.c.feed)
    if names is not None or limit is not None:
        query = query.where(claims.c.feed.in_([row.id for row in found if row.max_attempts is not None]))
    left = {row.feed: row.messages for row in tx.connection.execute(query)}
    numbered = {row.id: row.next_seq - row.first_seq if row.max_attempts is None else left.get(row.id, 0) for row in found}
    unnumbered = waiting(tx, list(numbered))
    return [(row, numbered[row.id], unnumbered[row.id]) for row in found]


def waiting(tx: Transaction, feeds: Sequence[int]) -> dict[int, int]:
    """How many messages of each feed have no number, counted up to 10,000."""
    inbox = feed_tables(tx.tables).inbox
    found: dict[int, int] = {}
    for first in range(0, len(feeds), _COUNTED_AT_ONCE):
        # Each in a query of its own: only a LIMIT bounds what a count reads.
        each = [
            select(literal(feed, BigInteger).label("feed"), func.count().label("messages")).select_from(
                select(inbox.c.id).where(inbox.c.feed == feed).limit(_COUNTED).subquery()
            )
            for feed in feeds[first : first + _COUNTED_AT_ONCE]
        ]
        found.update((row.feed, row.messages) for row in tx.connection.execute(union_all(*each)))
    return found


def set_up(
    tx: Transaction,
    name: str,
    new: Mapping[str, Any] | None,
    values: Mapping[str, Any],
    check: Callable[[FeedRow, FeedRow], None],
) -> bool | None:
    """Create the feed with ``new``, or change some columns of the one that is there; whether anything was to be changed.

    :param new: the columns of a new feed; None: none is created, and without the feed the answer is None.
    :param check: called with the row of the feed that is there, as it is and as it will be; what it raises is raised, and nothing
        is changed.
    """
    feeds = feed_tables(tx.tables).feeds
    found = find_feed(tx, name)
    if found is None:
        if new is None:
            return None
        if by_key.insert_new(tx, feeds, {"name": name, "created_at": tx.now, **new}):
            return True
        found = _created_meanwhile(tx, name)
    row = locked(tx, found.id)
    if row is None:
        raise TransientStorageError(f"feed {name!r} was deleted at the same time: run it again")
    check(row, row._replace(**{column: value for column, value in values.items() if column in FeedRow._fields}))
    return bool(values) and by_key.change(tx, feeds, {"id": row.id}, values)


def restored(tx: Transaction) -> int:
    """The database was restored from a backup: raise the epoch of every feed. Return how many feeds there are.

    Positions handed out before are refused, and cursors have no holder.
    """
    feeds, cursors = feed_tables(tx.tables).feeds, feed_tables(tx.tables).cursors
    raised = tx.connection.execute(update(feeds).values(epoch=feeds.c.epoch + 1)).rowcount
    tx.connection.execute(update(cursors).values(version=cursors.c.version + _UNSEEN, holder=None, until=0))
    spans = feed_tables(tx.tables).spans
    tx.connection.execute(update(spans).values(version=spans.c.version + _UNSEEN, worker=None, until=0))
    return raised


def purge(tx: Transaction, name: str) -> int | None:
    """Delete all messages of a feed and raise its epoch; return how many had a number. None: there is no such feed."""
    found = find_feed(tx, name)
    row = locked(tx, found.id) if found is not None else None
    if row is None:
        return None
    tables = feed_tables(tx.tables)
    # Claims before messages, as whoever settles a claim.
    _empty(tx, row.id, (tables.claims, tables.inbox, tables.messages))
    values: dict[str, ColumnElement[Any]] = {"epoch": tables.feeds.c.epoch + 1, "first_seq": tables.feeds.c.next_seq}
    by_key.change(tx, tables.feeds, {"id": row.id}, values)
    # Their holders lose them: what these have read is gone.
    moved = moved_to(tables.cursors, row.next_seq - 1)
    tx.connection.execute(update(tables.cursors).where(tables.cursors.c.feed == row.id).values(moved))
    tx.connection.execute(delete(tables.spans).where(tables.spans.c.feed == row.id))
    return row.next_seq - row.first_seq


def remove(tx: Transaction, name: str) -> bool:
    """Delete a feed with its messages and cursors; False: there is none.

    Waits for open transactions that have published to it: a message that they insert meanwhile would stay in the inbox for good.
    """
    tables = feed_tables(tx.tables)
    # By name and for a deletion: this lock waits for those who have pinned the row.
    row = by_key.lock(tx, tables.feeds, {"name": name}, "id")
    if row is None:
        return False
    _empty(tx, row.id, (tables.cursors, tables.spans, tables.claims, tables.inbox, tables.messages))
    return by_key.delete(tx, tables.feeds, {"id": row.id})


def remove_strays(tx: Transaction) -> None:
    """Delete the messages in the inbox whose feed is gone: other nodes of a cluster do not see the lock of :func:`remove`."""
    feeds, inbox = feed_tables(tx.tables).feeds, feed_tables(tx.tables).inbox
    # In a statement of its own: a DELETE with this condition may read a newer inbox than feeds.
    strays = select(inbox.c.feed).where(inbox.c.feed.not_in(select(feeds.c.id))).distinct()
    for feed in tx.connection.execute(strays).scalars().all():
        _empty(tx, feed, (inbox,))


def _empty(tx: Transaction, feed: int, tables: Sequence[Table]) -> None:
    """Delete all rows of a feed, which may be millions."""
    with long_statements(tx.connection):
        for table in tables:
            tx.connection.execute(delete(table).where(table.c.feed == feed))


def moved_to(cursors: Table, seq: int) -> dict[str, Any]:
    """What a move of a cursor to ``seq`` changes; its holder loses it."""
    return {
        "acked": seq,
        "handed": case((cursors.c.handed.is_not(None), seq), else_=None),
        "version": cursors.c.version + 1,
        "holder": None,
        "until": 0,
    }
