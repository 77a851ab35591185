"""Messages: append with numbers, read, trim."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from sqlalchemy import (
    BigInteger,
    Integer,
    Select,
    Table,
    Update,
    bindparam,
    case,
    delete,
    func,
    insert,
    select,
    update,
)

from queue_db.dialects.clock import moment
from queue_db.errors import ArgumentError
from queue_db.feeds.store import claim_rows, spans
from queue_db.feeds.store.rows import FeedRow, by_id, locked
from queue_db.feeds.tables import feed_tables
from queue_db.store.base import Transaction

#: Most messages that one call of :func:`trim` deletes: a range costs little for each message, and the transaction much.
TRIMMED_AT_ONCE = 10_000

# The same of a feed with claims, whose messages go one by one, and of a publisher beside as many as it has added.
_TRIMMED_BESIDE = 1000


class NewMessage(NamedTuple):
    """A message to publish, checked and encoded."""

    kind: str
    payload: str
    headers: str | None
    message_key: str | None
    client: str | None
    delay: int | None = None  #: microseconds until it can be claimed; 0: none; None: the feed's
    lifetime: int | None = None  #: microseconds until it expires; 0: never; None: the feed's
    uid: int | None = None  #: random; None: nobody looks for it before it has a number


class First(NamedTuple):
    """The number of the first of some new messages."""

    seq: int
    epoch: int  #: of the feed at that time


class Extent(NamedTuple):
    """Which messages a feed has, and how many of them it keeps."""

    next_seq: int
    first_seq: int
    keep_rows: int | None
    keep_unread: int
    max_attempts: int | None = None


class MessageRow(NamedTuple):
    """A message of a feed."""

    seq: int
    kind: str
    payload: str
    headers: str | None
    message_key: str | None
    client: str | None
    created_at: int


def timed(feed: FeedRow, messages: Sequence[NewMessage]) -> Sequence[NewMessage]:
    """The messages as they are stored, with the delay and lifetime of the feed where they have none of their own.

    :raises ArgumentError: one would expire before its delay is over. It is not refused before the feed is known.
    """
    if feed.max_attempts is None:
        return messages
    several = len(messages) > 1
    return [_timed(feed, f"message {at}" if several else "the message", message) for at, message in enumerate(messages)]


def _timed(feed: FeedRow, which: str, message: NewMessage) -> NewMessage:
    delay = (feed.delay if message.delay is None else message.delay) or None
    lifetime = (feed.lifetime if message.lifetime is None else message.lifetime) or None
    if delay and lifetime and delay >= lifetime:
        raise ArgumentError(
            f"{which}: with the delay and lifetime of feed {feed.name!r}, where it has none of its own, it expires before "
            "its delay is over: delay must be less than expires_in"
        )
    return message._replace(delay=delay, lifetime=lifetime)


def insert_rows(tx: Transaction, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert messages into ``table``; the database's clock sets their time."""
    if tx.store.clock is not None:
        now = tx.store.clock()
        rows = [{**row, "created_at": now} for row in rows]
    tx.connection.execute(insert(table), list(rows))


@lru_cache(maxsize=64)
def _take_numbers(feeds: Table) -> Update:
    return update(feeds).where(feeds.c.id == bindparam("feed")).values(next_seq=feeds.c.next_seq + bindparam("count"))


@lru_cache(maxsize=64)
def _numbers(feeds: Table) -> Select[Any]:
    columns = (feeds.c.next_seq, feeds.c.first_seq, feeds.c.keep_rows, feeds.c.keep_unread, feeds.c.max_attempts, feeds.c.epoch)
    return select(*columns).where(feeds.c.id == bindparam("feed"))


def append(tx: Transaction, feed: int, messages: Sequence[NewMessage]) -> First:
    """Give the next numbers to ``messages`` and insert them; return the first.

    Publishers of the same feed wait here until this transaction ends.

    :raises LookupError: the feed was deleted.
    """
    tables = feed_tables(tx.tables)
    if not tx.execute(_take_numbers(tables.feeds), {"feed": feed, "count": len(messages)}):
        raise LookupError(feed)
    found = tx.fetch(_numbers(tables.feeds), {"feed": feed})
    ((next_seq, first_seq, keep_rows, keep_unread, max_attempts, epoch),) = found
    first = next_seq - len(messages)
    rows = [{"feed": feed, "seq": seq, **message._asdict()} for seq, message in enumerate(messages, first)]
    insert_rows(tx, tables.messages, rows)
    keep(tx, feed, Extent(next_seq, first_seq, keep_rows, keep_unread, max_attempts), len(messages))
    return First(first, epoch)


@lru_cache(maxsize=64)
def _page(messages: Table) -> Select[Any]:
    feed, after = bindparam("feed", type_=BigInteger), bindparam("after", type_=BigInteger)
    found = select(*(messages.c[name] for name in MessageRow._fields)).where(messages.c.feed == feed, messages.c.seq > after)
    return found.order_by(messages.c.seq).limit(bindparam("limit", type_=Integer))


def read_messages(tx: Transaction, feed: FeedRow, after: int, limit: int) -> list[MessageRow]:
    """Up to ``limit`` messages with numbers above ``after``, by number."""
    values = {"feed": feed.id, "after": after, "limit": limit}
    return [MessageRow(*row) for row in tx.fetch(_page(feed_tables(tx.tables).messages), values)]


def numbers_by_uid(tx: Transaction, feed: FeedRow, uids: Collection[int], after: int, high: int) -> dict[int, int]:
    """The numbers of the messages with these ``uids``, among those with numbers above ``after`` and up to ``high``."""
    messages = feed_tables(tx.tables).messages
    among = (messages.c.feed == feed.id, messages.c.seq > after, messages.c.seq <= high)
    query = select(messages.c.uid, messages.c.seq).where(*among, messages.c.uid.in_(sorted(uids)))
    return {row.uid: row.seq for row in tx.connection.execute(query)}


def trim(tx: Transaction, row: FeedRow, *, skip: bool = False) -> int:
    """Delete the oldest messages that the feed's retention does not keep, at most :func:`at_once`; return how many.

    :param skip: none if another transaction has locked the feed.
    """
    if row.keep_rows is None and row.keep_for is None and row.max_attempts is None:
        return 0
    if row.max_attempts is None:
        # Without locks, so that publishers and rankers wait only if there is something to delete.
        latest = by_id(tx, row.id)
        if latest is None or _outdated(tx, latest, latest.first_seq) <= latest.first_seq:
            return 0
    found = locked(tx, row.id, skip=skip)
    if found is None:
        return 0
    row = found
    first, expired = row.first_seq, 0
    if row.max_attempts is not None:
        expired = claim_rows.expire(tx, row.id, at_once(row))
        # What was deleted under a claim has left gaps.
        first = max(first, claim_rows.lowest(tx, row.id) or row.next_seq)
    extent = Extent(row.next_seq, row.first_seq, row.keep_rows, row.keep_unread, row.max_attempts)
    end = _outdated(tx, row, first)
    return expired + trim_messages(tx, row.id, extent, end)


def at_once(row: FeedRow) -> int:
    """Most messages of a feed that one trim deletes."""
    return TRIMMED_AT_ONCE if row.max_attempts is None else min(TRIMMED_AT_ONCE, _TRIMMED_BESIDE)


@lru_cache(maxsize=64)
def _aged(messages: Table, settable: bool) -> Select[Any]:
    """The first of some messages that is young enough, and the last of them."""
    # In a subquery the database computes it once, and not for each row.
    since = select(moment(settable) - bindparam("keep_for", type_=BigInteger())).scalar_subquery()
    feed, first, end = (bindparam(name, type_=BigInteger) for name in ("feed", "first", "end"))
    among = (messages.c.feed == feed, messages.c.seq >= first, messages.c.seq < end)
    some = select(messages.c.seq, messages.c.created_at).where(*among).subquery()
    return select(func.min(case((some.c.created_at >= since, some.c.seq))), func.max(some.c.seq))


def _outdated(tx: Transaction, row: FeedRow, first: int) -> int:
    """The end of the messages that retention does not keep, of the next ones from ``first``."""
    end = row.first_seq
    limit = _read_by_all(tx, row.id, row.next_seq, row.keep_unread, min(row.next_seq, first + at_once(row)))
    if row.keep_rows is not None:
        end = min(limit, max(end, row.next_seq - row.keep_rows))
    if row.keep_for is not None and end < limit:
        # Numbers follow the order of commits, not of creation: the first message that is young enough ends the cut.
        values = {"feed": row.id, "first": row.first_seq, "end": limit, "keep_for": row.keep_for, **tx.time()}
        query = _aged(feed_tables(tx.tables).messages, tx.store.clock is not None)
        ((young, last),) = tx.fetch(query, values)
        end = max(end, young if young is not None else (last or row.first_seq - 1) + 1)
    return min(end, limit)


def _read_by_all(tx: Transaction, feed: int, next_seq: int, keep_unread: int, end: int) -> int:
    """``end``, lowered so that of the messages that a cursor has not acknowledged the last ``keep_unread`` stay."""
    slowest = spans.slowest(tx.connection, feed_tables(tx.tables), feed) if keep_unread else None
    return end if slowest is None else min(end, max(slowest + 1, next_seq - keep_unread))


def keep(tx: Transaction, feed: int, extent: Extent, new: int) -> None:
    """After ``new`` messages were added: let them be claimed, and delete those above ``keep_rows``.

    The caller holds the feed's row. At most :data:`_TRIMMED_BESIDE` more are deleted than were added: after ``keep_rows`` was
    lowered there may be a million, too many for a publisher's transaction.
    """
    if extent.max_attempts is not None:
        claim_rows.add(tx, feed, extent.next_seq - new, extent.next_seq - 1)
    if extent.keep_rows is None or extent.next_seq - extent.first_seq <= extent.keep_rows:
        return
    first = extent.first_seq
    if extent.max_attempts is not None:
        first = max(first, claim_rows.lowest(tx, feed) or extent.next_seq)
    trim_messages(tx, feed, extent, min(extent.next_seq - extent.keep_rows, first + new + _TRIMMED_BESIDE))


def trim_messages(tx: Transaction, feed: int, extent: Extent, end: int) -> int:
    """Delete the messages with numbers below ``end``; return how many.

    Of those that are claimed or delayed, or that a cursor has not acknowledged, the last ``keep_unread`` stay. The caller holds
    the feed's row.
    """
    feeds, messages = feed_tables(tx.tables).feeds, feed_tables(tx.tables).messages
    least = extent.next_seq - extent.keep_unread
    end = _read_by_all(tx, feed, extent.next_seq, extent.keep_unread, end)
    if extent.max_attempts is not None:
        if extent.keep_unread:
            # First without a lock: the rows of live claims need none.
            slowest = claim_rows.slowest(tx, feed)
            end = end if slowest is None else min(end, max(slowest + 1, least))
        # Then what is left, locked: others may have claimed it meanwhile.
        seqs, end = claim_rows.hold(tx, feed, end, min(least, end))
        # By primary key: InnoDB looks at the row behind a range too, and waits for whoever deletes it.
        if seqs:
            claim_rows.remove(tx, feed, seqs)
        gone = len(seqs)
    else:
        # From first_seq: below it the index may have many entries of deleted rows.
        mine = (messages.c.feed == feed, messages.c.seq >= extent.first_seq, messages.c.seq < end)
        gone = tx.connection.execute(delete(messages).where(*mine)).rowcount
    if gone:
        tx.connection.execute(update(feeds).where(feeds.c.id == feed, feeds.c.first_seq < end).values(first_seq=end))
    return gone
