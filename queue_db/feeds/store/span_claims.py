"""The claim of a span: an expired one, or the next messages of the feed.

A database that changes rows in a WITH clause does it in one statement, which returns the messages too.

The version of a new span is that of the cursor plus the time. A server that crashes may lose the last claim and give its id again,
but with another version, so the verbs of the late holder are LOST. A restore of a backup raises the cursor's version for the same
reason.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from sqlalchemy import (
    BigInteger,
    Boolean,
    ColumnElement,
    Insert,
    Integer,
    Select,
    String,
    Table,
    Text,
    Update,
    and_,
    bindparam,
    exists,
    func,
    insert,
    literal,
    not_,
    null,
    or_,
    select,
    true,
    union_all,
    update,
)

from queue_db.dialects import Dialect
from queue_db.dialects.clock import moment
from queue_db.feeds.dialects.durability import commits_early
from queue_db.feeds.store.messages import MessageRow
from queue_db.feeds.store.rows import FeedRow
from queue_db.feeds.store.spans import SpanRow
from queue_db.feeds.tables import FeedTables, feed_tables
from queue_db.model import Capability
from queue_db.store.base import Transaction, next_attempt


class SpanRequest(NamedTuple):
    """What a claim wants."""

    most: int  #: messages
    lease: int  #: microseconds
    worker: str
    skip: bool = False  #: go on without messages that were trimmed
    least: int = 0  #: claim nothing if there are fewer messages than this, and others wait for their numbers
    late: bool = False  #: claim new messages although the lease of a span is over


class Look(NamedTuple):
    """The state of a shared cursor before a claim."""

    next_seq: int  #: of the feed
    first_seq: int
    epoch: int
    handed: int | None  #: None: the cursor is not shared
    now: int  #: the database's time
    expired: bool  #: the lease of a span is over
    waiting: bool  #: messages wait for their numbers

    @property
    def trimmed(self) -> int:
        """How many messages were trimmed before they were claimed."""
        return max(0, self.first_seq - 1 - (self.handed or 0))

    @property
    def left(self) -> int:
        """How many messages there are to claim."""
        return self.next_seq - 1 - max(self.handed or 0, self.first_seq - 1)

    def allows(self, want: SpanRequest) -> bool:
        """Whether new messages may be claimed: what the statement of :func:`claim` asks."""
        return (
            self.left > 0
            and (want.late or not self.expired)
            and (want.skip or not self.trimmed)
            and (self.left >= want.least or not self.waiting)
        )


class SpanClaim(NamedTuple):
    """The answer to a claim."""

    look: Look
    span: SpanRow | None = None
    skipped: int = 0  #: messages before the span that were trimmed
    messages: Sequence[MessageRow] | None = None  #: of the span; None: they were not read


def _expired(spans: Table, settable: bool, feed: Any, name: Any) -> ColumnElement[bool]:
    return and_(spans.c.feed == feed, spans.c.cursor_name == name, spans.c.until <= moment(settable))


def _state(tables: FeedTables, settable: bool) -> Select[Any]:
    feeds, cursors, spans = tables.feeds, tables.cursors, tables.spans
    feed, name = bindparam("of", type_=BigInteger()), bindparam("called", type_=String())
    return (
        select(
            *(feeds.c[column] for column in ("next_seq", "first_seq", "epoch")),
            cursors.c.handed,
            moment(settable).label("now"),
            exists(select(spans.c.id).where(_expired(spans, settable, feed, name))).label("expired"),
            exists(select(tables.inbox.c.id).where(tables.inbox.c.feed == feed)).label("waiting"),
        )
        .select_from(cursors.join(feeds, feeds.c.id == cursors.c.feed))
        .where(cursors.c.feed == feed, cursors.c.name == name)
    )


@lru_cache(maxsize=64)
def _look(tables: FeedTables, settable: bool) -> Select[Any]:
    return _state(tables, settable)


def look(tx: Transaction, feed: FeedRow, name: str) -> Look | None:
    """What there is to claim; None: there is no such cursor."""
    query = _look(feed_tables(tx.tables), tx.store.clock is not None)
    found = tx.fetch(query, {"of": feed.id, "called": name, **tx.time()})
    return _looked(found[0]) if found else None


def _looked(values: Sequence[Any]) -> Look:
    *numbers, expired, waiting = values
    return Look._make([*numbers, bool(expired), bool(waiting)])


_STATE = len(Look._fields)
_SEQ, _PAYLOAD = MessageRow._fields.index("seq"), MessageRow._fields.index("payload")


# --- new messages -----------------------------------------------------------------------------------------------------


def claim(tx: Transaction, feed: FeedRow, name: str, want: SpanRequest) -> SpanClaim | None:
    """Claim the next messages of the cursor; None: there is no such cursor.

    Other claims of this cursor wait here until the commit.
    """
    if tx.dialect.changes_in_with:
        statement = _claim(tx.dialect, feed_tables(tx.tables), tx.store.clock is not None)
        values = {"of": feed.id, "called": name, **tx.time(), **want._asdict()}
        found = tx.fetch(statement, values)
        return _claimed(found) if found else None
    seen = look(tx, feed, name)
    if seen is None:
        return None
    if seen.handed is None or not seen.allows(want):
        return SpanClaim(seen)
    return _hand_out(tx, feed.id, name, seen, want)


def _claimed(found: Sequence[Sequence[Any]]) -> SpanClaim:
    # The parts of a UNION ALL have no promised order.
    (head,) = [row for row in found if row[_SEQ] is None]
    values = json.loads(head[_PAYLOAD])
    seen, (*span, skipped) = Look._make(values[:_STATE]), values[_STATE:]
    if span[0] is None:
        return SpanClaim(seen)
    messages = [MessageRow._make(row) for row in found if row is not head]
    messages.sort()  # in order they cost nothing
    return SpanClaim(seen, SpanRow._make([*span, None]), skipped, messages)


@lru_cache(maxsize=64)
def _claim(dialect: Dialect, tables: FeedTables, settable: bool) -> Any:
    """State, lock, move, insert and read in one statement, which a reader finds in tests/sql.

    The lock gives the cursor as the last claim has left it, and the conditions are checked on that. ``next_seq`` and the messages
    are those of the moment when the statement began, so each message of the span is found, unless it was trimmed.
    No parameter is named as a column that is set: SQLAlchemy would set the column.
    """
    cursors, spans, big = tables.cursors, tables.spans, BigInteger()
    feed, name = bindparam("of", type_=big), bindparam("called", type_=String())
    state = _state(tables, settable).cte("state")
    low = func.greatest(cursors.c.handed + 1, state.c.first_seq)
    there = state.c.next_seq - low
    held = dialect.lock_rows(
        select(cursors.c.feed, cursors.c.name, cursors.c.handed, cursors.c.version, low.label("low"), state.c.next_seq)
        .where(
            and_(cursors.c.feed == feed, cursors.c.name == name, there > 0),
            or_(not_(state.c.expired), bindparam("late", type_=Boolean())),
            or_(state.c.first_seq <= cursors.c.handed + 1, bindparam("skip", type_=Boolean())),
            or_(there >= bindparam("least", type_=big), not_(state.c.waiting)),
        )
        .select_from(cursors.join(state, true())),
        skip=False,
    ).cte("held")
    moved = (
        update(cursors)
        .where(cursors.c.feed == held.c.feed, cursors.c.name == held.c.name)
        .values(
            handed=func.least(held.c.low + bindparam("most", type_=big), held.c.next_seq) - 1,
            seen_at=moment(settable),
        )
        .returning(
            cursors.c.feed,
            cursors.c.name,
            held.c.low,
            cursors.c.handed.label("high"),
            held.c.version,
            (held.c.low - held.c.handed - 1).label("skipped"),
        )
        .cte("moved")
    )
    now = moment(settable, after_waiting=True)
    values: dict[str, Any] = {
        "feed": moved.c.feed,
        "cursor_name": moved.c.name,
        "low": moved.c.low,
        "high": moved.c.high,
        "version": moved.c.version + now,
        "attempts": literal(1),
        "worker": bindparam("worker", type_=String()),
        "until": now + bindparam("lease", type_=big),
    }
    made = (
        insert(spans)
        .from_select(list(values), select(*values.values()).where(commits_early()))
        .returning(*(spans.c[column] for column in ("id", "low", "high", "version", "attempts")))
        .cte("made")
    )
    messages = tables.messages
    page = (
        select(*(messages.c[column] for column in MessageRow._fields))
        .where(messages.c.feed == feed, messages.c.seq >= made.c.low, messages.c.seq <= made.c.high)
        .order_by(messages.c.seq)
        .limit(bindparam("most", type_=Integer))
        .lateral("page")
    )
    # In one column of one row: a column of each message costs the reader more.
    parts = func.json_build_array(*state.c, *made.c, moved.c.skipped)
    columns = [(parts.cast(Text) if column == "payload" else null()).label(column) for column in MessageRow._fields]
    head = select(*columns).select_from(state.outerjoin(made, true()).outerjoin(moved, true()))
    return union_all(head, select(*page.c).select_from(made.join(page, true())))


@lru_cache(maxsize=64)
def _locked(dialect: Dialect, cursors: Table) -> Select[Any]:
    mine = and_(cursors.c.feed == bindparam("of"), cursors.c.name == bindparam("called"))
    return dialect.lock_rows(select(cursors.c.handed, cursors.c.version).where(mine), skip=False)


@lru_cache(maxsize=64)
def _move(cursors: Table, settable: bool) -> Update:
    mine = and_(cursors.c.feed == bindparam("of"), cursors.c.name == bindparam("called"))
    return update(cursors).where(mine).values(handed=bindparam("upto"), seen_at=moment(settable))


@lru_cache(maxsize=64)
def _insert(spans: Table, settable: bool) -> Insert:
    given: dict[str, Any] = {
        column: bindparam(column) for column in ("feed", "cursor_name", "low", "high", "version", "attempts", "worker")
    }
    return insert(spans).values(**given, until=moment(settable) + bindparam("lease", type_=BigInteger()))


def _hand_out(tx: Transaction, feed: int, name: str, seen: Look, want: SpanRequest) -> SpanClaim:
    """The statements of :func:`_claim` one after the other, without the messages."""
    tables = feed_tables(tx.tables)
    cursors, spans, settable = tables.cursors, tables.spans, tx.store.clock is not None
    tx.begin()  # here and not by the run: the look alone, which mostly finds nothing to claim, needs no transaction
    mine = {"of": feed, "called": name}
    found = tx.fetch(_locked(tx.dialect, cursors), mine)
    if not found or found[0][0] is None:
        return SpanClaim(seen)
    ((handed, version),) = found
    low = max(handed + 1, seen.first_seq)
    if low > handed + 1 and not want.skip:
        return SpanClaim(seen)  # moved back since the look: the next one sees what was trimmed
    row = SpanRow(0, low, min(low + want.most, seen.next_seq) - 1, version + seen.now, 1, None)
    if row.high < low:
        return SpanClaim(seen)  # other consumers have claimed what there was
    tx.execute(_move(cursors, settable), {**mine, "upto": row.high, **tx.time()})
    values = {"low": low, "high": row.high, "version": row.version, "attempts": 1, "worker": want.worker, "lease": want.lease}
    new = {"feed": feed, "cursor_name": name, **values, **tx.time()}
    (span,) = tx.connection.execute(_insert(spans, settable), new).inserted_primary_key or (0,)
    return SpanClaim(seen, row._replace(id=span), low - handed - 1)


# --- expired spans ----------------------------------------------------------------------------------------------------


@lru_cache(maxsize=64)
def _lock_expired(dialect: Dialect, spans: Table, settable: bool, skip: bool) -> Select[Any]:
    mine = _expired(spans, settable, bindparam("of"), bindparam("called"))
    first = select(*(spans.c[column] for column in SpanRow._fields)).where(mine).order_by(spans.c.until).limit(1)
    return dialect.lock_rows(first, skip=skip)


@lru_cache(maxsize=64)
def _take_over(spans: Table, settable: bool) -> Update:
    # The lease counts from here: the statement before this one may have waited for the lock.
    return (
        update(spans)
        .where(spans.c.id == bindparam("span"))
        .values(
            version=spans.c.version + 1,
            attempts=next_attempt(spans),
            worker=bindparam("holder"),
            until=moment(settable) + bindparam("lease"),
        )
    )


def take_over(tx: Transaction, feed: int, name: str, worker: str, lease: int, max_attempts: int) -> tuple[SpanRow, bool] | None:
    """Claim the span whose lease has ended first, for ``lease`` microseconds.

    Return it, and whether it was claimed: not if it had ``max_attempts`` claims before. None: there is none that is not locked.
    """
    spans, settable = feed_tables(tx.tables).spans, tx.store.clock is not None
    skip = Capability.SKIP_LOCKED in tx.store.capabilities
    first = _lock_expired(tx.dialect, spans, settable, skip)
    found = tx.fetch(first, {"of": feed, "called": name, **tx.time()})
    if not found:
        return None
    span = SpanRow._make(found[0])
    if span.attempts >= max_attempts:
        return span, False
    changed = {"span": span.id, "holder": worker, "lease": lease, **tx.time()}
    tx.execute(_take_over(spans, settable), changed)
    return span._replace(version=span.version + 1, attempts=span.attempts + 1), True
