"""The rows of the table ``claims``: one for each numbered message of a feed with claims, as long as the message is there.

Locks in this order: feeds, rows of claims by number, messages, jobs.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import delete, func, insert, or_, select

from queue_db.feeds.tables import feed_tables
from queue_db.model import Capability
from queue_db.store.base import Store, Transaction


def add(tx: Transaction, feed: int, low: int, high: int) -> None:
    """Let the messages with these numbers, which this transaction has inserted, be claimed."""
    claims, messages = feed_tables(tx.tables).claims, feed_tables(tx.tables).messages
    new = select(
        messages.c.feed,
        messages.c.seq,
        func.coalesce(messages.c.created_at + messages.c.delay, 0),
        messages.c.created_at + messages.c.lifetime,
    ).where(messages.c.feed == feed, messages.c.seq >= low, messages.c.seq <= high)
    tx.connection.execute(insert(claims).from_select(["feed", "seq", "until", "expires_at"], new))


def remove(tx: Transaction, feed: int, seqs: Sequence[int]) -> None:
    """Delete messages whose rows in ``claims`` the caller has locked, and these rows."""
    for table in (feed_tables(tx.tables).claims, feed_tables(tx.tables).messages):
        tx.connection.execute(delete(table).where(table.c.feed == feed, table.c.seq.in_(seqs)))


def expire(tx: Transaction, feed: int, limit: int) -> int:
    """Delete up to ``limit`` messages whose lifetime is over; return how many."""
    claims = feed_tables(tx.tables).claims
    over = claims.c.expires_at <= tx.moment
    query = select(claims.c.seq).where(claims.c.feed == feed, over).order_by(claims.c.expires_at).limit(limit)
    seqs = list(tx.connection.execute(query, tx.time()).scalars())
    if not seqs:
        return 0
    # By primary key, as claims lock them. A claim may have extended one meanwhile; and one that another transaction has locked can
    # wait for the next trim, but whoever holds the feed must not wait for a caller's transaction.
    held = select(claims.c.seq).where(claims.c.feed == feed, claims.c.seq.in_(seqs), over).order_by(claims.c.seq)
    seqs = list(tx.connection.execute(tx.dialect.lock_rows(held, skip=_skips(tx.store)), tx.time()).scalars())
    remove(tx, feed, seqs)
    return len(seqs)


def lowest(tx: Transaction, feed: int) -> int | None:
    """The number of the first message that is there; None: there is none."""
    claims = feed_tables(tx.tables).claims
    return tx.connection.execute(select(func.min(claims.c.seq)).where(claims.c.feed == feed)).scalar()


def slowest(tx: Transaction, feed: int) -> int | None:
    """The number before the first message that is claimed or delayed now: retention waits for it. None: none is."""
    claims = feed_tables(tx.tables).claims
    live = claims.c.until > tx.moment
    query = select(func.min(claims.c.seq)).where(claims.c.feed == feed, live)
    first = tx.connection.execute(query, tx.time()).scalar()
    return None if first is None else first - 1


def hold(tx: Transaction, feed: int, end: int, least: int) -> tuple[list[int], int]:
    """Lock the rows with numbers below ``end``, so that nobody claims them; return the numbers, and where they end.

    They end before the first one that another transaction has locked, and before the first one that is claimed or delayed now, but
    for that not before ``least``. Nobody waits here: the caller holds the feed, and another transaction may be a caller's.
    """
    claims, now = feed_tables(tx.tables).claims, tx.moment
    below = (claims.c.feed == feed, claims.c.seq < end)
    query = select(claims.c.seq, claims.c.until, now.label("now")).where(*below).order_by(claims.c.seq)
    skip = _skips(tx.store)
    found = tx.connection.execute(tx.dialect.lock_rows(query, skip=skip), tx.time()).all()
    if skip:
        locked = {row.seq for row in found}
        there = tx.connection.execute(select(claims.c.seq).where(*below).order_by(claims.c.seq)).scalars()
        end = next((seq for seq in there if seq not in locked), end)
    live = next((row.seq for row in found if row.until > row.now), end)
    end = min(end, max(live, least))
    return [row.seq for row in found if row.seq < end], end


def _skips(store: Store) -> bool:
    return Capability.SKIP_LOCKED in store.capabilities


def hidden(tx: Transaction, feed: int, low: int, high: int) -> set[int]:
    """Of the numbers from ``low`` to ``high`` those of messages that are claimed, delayed or expired now."""
    claims, now = feed_tables(tx.tables).claims, tx.moment
    query = select(claims.c.seq).where(claims.c.feed == feed, claims.c.seq >= low, claims.c.seq <= high)
    closed = or_(claims.c.until > now, claims.c.expires_at <= now)
    return set(tx.connection.execute(query.where(closed), tx.time()).scalars())
