"""Feeds with the ordering ``ticks``: a publish is one insert, and a tick numbers what is committed without a write to it.

A tick notes a snapshot of the database. The messages that this snapshot shows and the one before does not are the tick's: each
committed message is of exactly one, however long its transaction was open. An open transaction delays nothing but its own messages.
PostgreSQL only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

from sqlalchemy import Select, Table, Text, Update, bindparam, cast, func, insert, select, update

from queue_db.dialects import Dialect
from queue_db.errors import PermanentStorageError
from queue_db.model import Capability
from queue_db.store.base import Transaction
from queue_db.store.feeds.messages import Extent, NewMessage, insert_rows, keep
from queue_db.store.feeds.rows import FeedRow, pin
from queue_db.store.feeds.ticked import ALWAYS, MESSAGES, NOTHING, Moment, Ticked, TickState, first_unnumbered, glance, unnumbered

#: Most messages numbered in one transaction.
TICKED_AT_ONCE = 1000

#: Most ids from its first message to its last, if they are of transactions that were open at the last tick: others are in between.
IDS = 1000

TICKED = Ticked()


class RestoredError(PermanentStorageError):
    """The database was restored from a backup of another server, and ``db.feeds.restored()`` was not called."""


def append(tx: Transaction, feed: FeedRow, messages: Sequence[NewMessage]) -> None:
    """Insert ``messages``. Their order is the order of their numbers later.

    :raises LookupError: the feed was deleted.
    """
    tx.begin()
    # It also gives the transaction its number, which must come before the ids.
    pin(tx, feed)
    inbox = tx.tables.feeds.inbox
    name = f"{inbox.name}_id_seq"
    sequence = name if inbox.schema is None else f'"{inbox.schema}".{name}'
    rows = [{"feed": feed.id, **message._asdict()} for message in messages]
    computed = {"id": func.nextval(sequence), "xid": func.txid_current()}
    insert_rows(tx, tx.tables.feeds.ticked, rows, **computed)


def tick(tx: Transaction, feed: int) -> int:
    """Give the next numbers to messages that have none, at most :data:`TICKED_AT_ONCE`; return how many.

    0 if another transaction is numbering them.

    :raises RestoredError: the database was restored from a backup of another server, and ``db.feeds.restored()`` was not called.
    """
    seen = glance(tx, feed)
    if seen is None or (seen.highest <= seen.state.last.seen and first_unnumbered(tx, feed, seen) is None):
        return 0
    tx.begin()
    found = tx.fetch(_lock(tx.dialect, tx.tables.feeds.feeds, tx.store.capabilities), {"of": feed})
    if not found:
        return 0
    *kept, text = found[0]
    state, extent = TickState.load(text), Extent(*kept)
    # The ids of the first statement were given before this transaction had a number.
    floor = state.last.floor if seen.numbered else max(seen.highest, state.last.floor)
    numbered = 0
    # Twice: what was left of the last target may be purged.
    for _ in range(2):
        if numbered:
            break
        if state.target is None:
            # In a statement after the lock: the snapshot is later than that of the last tick.
            now = _now(tx, feed)
            _check(state.last, now)
            state = state._replace(target=now._replace(floor=max(floor, state.last.floor)))
        state, numbered = _number(tx, feed, state, extent.next_seq)
    extent = extent._replace(next_seq=extent.next_seq + numbered)
    values = {"of": feed, "numbered": extent.next_seq, "state": state.dump()}
    tx.connection.execute(_advance(tx.tables.feeds.feeds), values)
    keep(tx, feed, extent, numbered, TICKED)
    return numbered


@lru_cache(maxsize=64)
def _lock(dialect: Dialect, feeds: Table, capabilities: frozenset[Capability]) -> Select[Any]:
    query = select(*(feeds.c[name] for name in Extent._fields), feeds.c.tick_state).where(feeds.c.id == bindparam("of"))
    return dialect.lock_rows(query, skip=Capability.SKIP_LOCKED in capabilities, pinned=True)


@lru_cache(maxsize=64)
def _advance(feeds: Table) -> Update:
    return update(feeds).where(feeds.c.id == bindparam("of")).values(next_seq=bindparam("numbered"), tick_state=bindparam("state"))


def restored(tx: Transaction, feed: FeedRow) -> None:
    """The database came from a backup, maybe of another server, where transactions had other numbers.

    All messages that are there get their numbers; snapshots of this server count from here on. It waits for open publishers.
    """
    feeds = tx.tables.feeds.feeds
    # As for a deletion: this lock waits for those who have pinned the row.
    query = select(feeds.c.next_seq, feeds.c.tick_state).where(feeds.c.name == feed.name, feeds.c.id == feed.id)
    row = tx.connection.execute(tx.dialect.lock_rows(query, skip=False)).first()
    if row is None:
        return
    now = _now(tx, feed.id)
    everything = ALWAYS._replace(floor=now.seen, seen=now.seen)
    next_seq, state = row.next_seq, TickState.load(row.tick_state)
    while state.last != everything:
        state = state if state.target is not None else state._replace(target=everything)
        state, numbered = _number(tx, feed.id, state, next_seq)
        next_seq += numbered
    # No transaction is open that has published.
    state = TickState(now._replace(floor=now.seen), base=now.seen)
    tx.connection.execute(update(feeds).where(feeds.c.id == feed.id).values(next_seq=next_seq, tick_state=state.dump()))


@lru_cache(maxsize=64)
def _show(ticked: Table) -> Select[Any]:
    highest = select(func.max(ticked.c.id)).where(ticked.c.feed == bindparam("of")).scalar_subquery()
    return select(
        cast(func.txid_current_snapshot(), Text).label("snapshot"), func.txid_current().label("xid"), highest.label("seen")
    )


def _now(tx: Transaction, feed: int) -> Moment:
    """What the database shows now, without a floor."""
    ((snapshot, xid, seen),) = tx.fetch(_show(tx.tables.feeds.ticked), {"of": feed})
    return Moment(snapshot, xid, 0, seen or 0)


def _check(last: Moment, now: Moment) -> None:
    """Refuse a moment that is before the last one."""
    if now.end < last.end:
        raise RestoredError(
            f"transactions have lower numbers than before ({now.end} after {last.end}): the database was restored from a backup. "
            "Call db.feeds.restored() once"
        )


def _number(tx: Transaction, feed: int, state: TickState, first: int) -> tuple[TickState, int]:
    """Number messages up to the target, from ``first``; return how far they are numbered now, and how many were."""
    assert state.target is not None  # noqa: S101
    found = unnumbered(tx, feed, state, TICKED_AT_ONCE + 1)
    ids, seq, rows = found[:TICKED_AT_ONCE], first, []
    for some in _runs(ids, state.last.seen):
        last = seq + len(some) - 1
        # The last snapshot shows no message with a higher id than it has seen.
        previous = state.last.snapshot if some[0] <= state.last.seen else NOTHING
        row = {"feed": feed, "first_seq": seq, "last_seq": last, "low_id": some[0], "high_id": some[-1]}
        rows.append({**row, "snapshot": state.target.snapshot, "previous": previous})
        seq = last + 1
    if rows:
        tx.connection.execute(insert(tx.tables.feeds.ticks), rows)
    return (state._replace(cut=ids[-1]) if len(found) > len(ids) else TickState(state.target, base=state.base)), len(ids)


def _runs(ids: Sequence[int], seen: int) -> Iterator[list[int]]:
    """The ids of each tick."""
    run: list[int] = []
    for one in ids:
        late = bool(run) and run[0] <= seen
        if run and (len(run) == MESSAGES or (late and (one > seen or one - run[0] >= IDS))):
            yield run
            run = []
        run.append(one)
    if run:
        yield run
