"""Messages of a feed with the ordering ``ticks``, which are never written again: their numbers follow from the ticks.

A tick has those messages that one snapshot of the database shows and the one before does not, by id, between two ids. The number of
a message is the first number of its tick plus the messages of the tick before it. PostgreSQL only.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from sqlalchemy import (
    ARRAY,
    BigInteger,
    ColumnClause,
    ColumnElement,
    FromClause,
    Integer,
    Select,
    Table,
    TableValuedAlias,
    Text,
    and_,
    any_,
    bindparam,
    cast,
    column,
    delete,
    func,
    literal_column,
    or_,
    select,
    true,
    tuple_,
    union_all,
    update,
)
from sqlalchemy.types import UserDefinedType

from queue_db.store.base import Transaction
from queue_db.store.feeds.numbered import Numbered, Value
from queue_db.store.schema.feeds import FeedTables


class Snapshot(UserDefinedType[str]):
    """Which transactions had ended at a moment."""

    cache_ok = True

    def get_col_spec(self, **kw: Any) -> str:
        return "txid_snapshot"


#: Most messages of one tick: a reader of one of them reads those before it, and finds ticks by it. It may never be lowered below
#: what stored ticks have.
MESSAGES = 200

#: A snapshot that shows no transaction.
NOTHING = "1:1:"


class Moment(NamedTuple):
    """What the database showed at one moment."""

    #: ``xmin:xmax:`` and those in between that were open. Transactions from ``xmax`` on may have been open, too.
    snapshot: str = NOTHING
    #: The number of a transaction that was open then.
    xid: int = 0
    #: A message with this id or a lower one is of a transaction with a lower number than ``xid``.
    floor: int = 0
    #: The highest id of a message that the snapshot shows.
    seen: int = 0

    @property
    def open(self) -> list[int]:
        """Transactions that were open."""
        return [int(xid) for xid in self.snapshot.split(":")[2].split(",") if xid]

    @property
    def end(self) -> int:
        """The lowest number that no ended transaction had reached."""
        return int(self.snapshot.split(":")[1])


#: Where a row is in its table. Those of messages stay: they are never written again.
PLACE: ColumnClause[Any] = column("ctid")

#: It shows all transactions.
ALWAYS = Moment(f"{2**63 - 1}:{2**63 - 1}:")


class TickState(NamedTuple):
    """How far the messages of a feed are numbered: those that the database showed at a moment.

    And, towards a later moment, those up to the id ``cut``.
    """

    last: Moment = Moment()
    target: Moment | None = None
    cut: int = 0
    #: Messages with this id or a lower one have numbers, and transactions of another server: the database was restored then.
    base: int = 0

    @property
    def settled(self) -> bool:
        """Whether no transaction was open that may have published before the last moment."""
        last = self.last
        return self.target is None and not last.open and last.end >= last.xid and last.floor >= last.seen

    @classmethod
    def load(cls, text: str | None) -> TickState:
        """The state as the feed's row has it."""
        if text is None:
            return cls()
        last, target, cut, base = json.loads(text)
        return cls(Moment(*last), None if target is None else Moment(*target), cut, base)

    def dump(self) -> str:
        """For the feed's row."""
        return json.dumps(self)


def shown(xid: ColumnElement[int], snapshot: Any) -> ColumnElement[bool]:
    """Whether a snapshot shows what this transaction has written."""
    return func.txid_visible_in_snapshot(xid, snapshot)


class Glance(NamedTuple):
    """What a statement sees of a feed without a lock."""

    state: TickState
    #: The highest id of a message; 0: there is none.
    highest: int
    #: Whether this transaction had a number already.
    numbered: bool


@lru_cache(maxsize=64)
def _glance(tables: FeedTables) -> Select[Any]:
    feeds, ticked, feed = tables.feeds, tables.ticked, bindparam("of", type_=BigInteger)
    highest = select(func.max(ticked.c.id)).where(ticked.c.feed == feed).scalar_subquery()
    return select(feeds.c.tick_state, highest, func.txid_current_if_assigned()).where(feeds.c.id == feed)


def glance(tx: Transaction, feed: int) -> Glance | None:
    """How far the messages of a feed are numbered, and its last message; None: it was deleted."""
    found = tx.fetch(_glance(tx.tables.feeds), {"of": feed})
    if not found:
        return None
    ((state, highest, xid),) = found
    return Glance(TickState.load(state), highest or 0, xid is not None)


@lru_cache(maxsize=64)
def _ids(tables: FeedTables, towards: bool) -> Any:
    """The ids of messages without a number, by id and up to ``most`` of each of two sorts; ``towards``: those of the target.

    The first ones have ids up to the last moment's floor. Their transactions were open then, so few index entries are read.
    """
    ticked = tables.ticked
    names = ("feed", "cut", "base", "floor", "seen", "xmax", "xid", "target_seen")
    value = {name: bindparam(f"of_{name}", type_=BigInteger) for name in names}
    last, target = (cast(bindparam(name, type_=Text), Snapshot()) for name in ("last", "target"))
    visible = [shown(ticked.c.xid, target)] if towards else []
    most = bindparam("most", type_=Integer)
    mine = select(ticked.c.id).where(ticked.c.feed == value["feed"], *visible).limit(most)
    listed = func.unnest(bindparam("open", type_=ARRAY(BigInteger))).table_valued("value").render_derived()
    # One by one: a range of transactions is not in the order of the ids, and a planner may read all messages for that.
    begun = func.generate_series(value["xmax"], value["xid"] - 1, type_=BigInteger).table_valued("value").render_derived()
    low = func.greatest(value["cut"], value["base"])
    # Where all are numbered up to the floor, nothing is read: the range of a transaction ends with its last message, not there.
    xids = union_all(*(select(some.c.value).where(low < value["floor"]) for some in (listed, begun))).subquery("xids")
    # A range over both columns: if the planner believes that one transaction has all messages, only this index fits.
    place = tuple_(ticked.c.xid, ticked.c.id)
    late = mine.where(place > tuple_(xids.c.value, low), place <= tuple_(xids.c.value, value["floor"]))
    each = late.order_by(ticked.c.xid, ticked.c.id).lateral("late")
    earlier = select(each.c.id).select_from(xids).join(each, true()).order_by(each.c.id).limit(most)
    later = mine.order_by(ticked.c.id).where(
        ticked.c.id > func.greatest(value["floor"], value["cut"]), or_(ticked.c.id > value["seen"], ~shown(ticked.c.xid, last))
    )
    if towards:
        later = later.where(ticked.c.id <= value["target_seen"])
    return union_all(*(select(some.subquery()) for some in (earlier, later)))


def unnumbered(tx: Transaction, feed: int, state: TickState, most: int) -> list[int]:
    """The first ids of messages that have no number yet, at least ``most`` if there are so many; of the target, if there is one."""
    last, target = state.last, state.target
    values: dict[str, Any] = {
        "of_feed": feed,
        "of_cut": state.cut,
        "of_base": state.base,
        "of_floor": last.floor,
        "of_seen": last.seen,
        "of_xmax": last.end,
        "of_xid": last.xid,
        "last": last.snapshot,
        "open": last.open,
        "most": most,
    }
    if target is not None:
        values |= {"target": target.snapshot, "of_target_seen": target.seen}
    return sorted(row[0] for row in tx.fetch(_ids(tx.tables.feeds, target is not None), values))


def first_unnumbered(tx: Transaction, feed: int, seen: Glance) -> int | None:
    """The lowest id of a message without a number; None: there is none."""
    if seen.highest <= seen.state.last.seen and seen.state.settled:
        return None
    return next(iter(unnumbered(tx, feed, seen.state._replace(target=None), 1)), None)


class Ticked:
    """The number follows from the tick."""

    stored = False

    def between(self, tables: FeedTables, feed: Value, after: Value, high: Value | None, limit: Value | None) -> Numbered:
        ticks = tables.ticks
        mine = and_(ticks.c.feed == feed, ticks.c.last_seq > after)
        if high is not None:
            mine = and_(mine, _begin_by(ticks, high))
        if limit is not None:
            # Numbers have no gaps, but the messages after this one may be trimmed.
            first = ticks.alias("first_tick")
            there = select(first.c.first_seq - 1).where(first.c.feed == feed, first.c.last_seq > after)
            start = func.greatest(there.order_by(first.c.last_seq).limit(1).scalar_subquery(), after)
            mine = and_(mine, _begin_by(ticks, start + limit))
        rows = _numbered(tables, _with_snapshots(ticks).where(mine).order_by(ticks.c.last_seq))
        conditions = [rows.c.seq > after]
        if high is not None:
            conditions.append(rows.c.seq <= high)
        return Numbered(rows, conditions, [rows.c.tick, rows.c.seq])

    def among(self, tables: FeedTables, feed: int, seqs: Sequence[int]) -> Numbered:
        ticks, wanted = tables.ticks, _unnest(seqs)
        # One look for each number, whatever the planner knows of the feed.
        tick_of = select(ticks).where(ticks.c.feed == feed, ticks.c.last_seq >= wanted.c.value).order_by(ticks.c.last_seq).limit(1)
        tick = tick_of.lateral("tick_of")
        once = select(tick).select_from(wanted.join(tick, true())).distinct().subquery("wanted_ticks")
        rows = _numbered(tables, _with_snapshots(once).order_by(once.c.last_seq))
        return Numbered(rows, [rows.c.seq.in_(seqs)], [rows.c.tick, rows.c.seq])

    def delete(self, tx: Transaction, feed: int, first: int, end: int) -> int:
        tables = tx.tables.feeds
        ticks, ticked = tables.ticks, tables.ticked
        # A tick that goes on after the end begins there from now on: at this id.
        there = self.between(tables, feed, end - 1, end, None)
        pivot = tx.connection.execute(select(there.rows.c.id).where(*there.conditions)).scalar()
        # From first: below it the index may have many entries of deleted rows.
        mine = and_(ticks.c.feed == feed, ticks.c.last_seq >= first, _begin_by(ticks, end - 1))
        rows = _numbered(tables, _with_snapshots(ticks).where(mine).order_by(ticks.c.last_seq), PLACE)
        places = select(rows.c[PLACE.name]).where(rows.c.seq < end).scalar_subquery()
        # By their places in the table, and nothing else: a planner that does not know the feed takes all its messages for one row.
        gone = tx.connection.execute(delete(ticked).where(any_(func.array(places, type_=ARRAY(Text))) == PLACE)).rowcount
        tx.connection.execute(delete(ticks).where(ticks.c.feed == feed, ticks.c.last_seq >= first, ticks.c.last_seq < end))
        if pivot is not None:
            rest = update(ticks).where(mine, ticks.c.last_seq >= end)
            tx.connection.execute(rest.values(first_seq=end, low_id=pivot))
        return gone

    def waiting(self, tx: Transaction, feeds: Sequence[int], most: int) -> dict[int, int]:
        seen = {feed: glance(tx, feed) for feed in feeds}
        return {
            feed: 0 if one is None else min(most, len(unnumbered(tx, feed, one.state._replace(target=None), most)))
            for feed, one in seen.items()
        }

    def last_waiting(self, tx: Transaction, feed: int, upto: int | None = None) -> int | None:
        seen = glance(tx, feed)
        if seen is None:
            return None
        upto = seen.highest if upto is None else upto
        found = first_unnumbered(tx, feed, seen)
        return None if found is None or found > upto else upto

    def may_wait(self, tables: FeedTables, feed: Value) -> ColumnElement[bool]:
        return true()  # only a tick looks

    def tables(self, tables: FeedTables) -> Sequence[Table]:
        return (tables.ticks, tables.ticked)


def _unnest(values: Sequence[int]) -> TableValuedAlias:
    """Numbers as rows with the column ``value``."""
    return func.unnest(bindparam(None, list(values), ARRAY(BigInteger), unique=True)).table_valued("value").render_derived()


def _begin_by(ticks: FromClause, seq: ColumnElement[int] | int) -> ColumnElement[bool]:
    """Whether a tick begins at a number or before it. The second condition follows from the first: the index has a range for it."""
    return and_(ticks.c.first_seq <= seq, ticks.c.last_seq < seq + MESSAGES)


def _with_snapshots(ticks: FromClause) -> Select[Any]:
    """Ticks, with snapshots instead of their texts."""
    columns = [ticks.c[name] for name in ("feed", "first_seq", "last_seq", "low_id", "high_id")]
    return select(*columns, *(cast(ticks.c[name], Snapshot()).label(name) for name in ("snapshot", "previous")))


def _in_tick(ticked: Table, tick: FromClause) -> ColumnElement[bool]:
    """Whether a message is of a tick."""
    return and_(
        ticked.c.feed == tick.c.feed,
        ticked.c.id >= tick.c.low_id,
        ticked.c.id <= tick.c.high_id,
        shown(ticked.c.xid, tick.c.snapshot),
        ~shown(ticked.c.xid, tick.c.previous),
    )


def _numbered(tables: FeedTables, ticks: Select[Any], *more: ColumnElement[Any]) -> FromClause:
    """The messages of some ticks, with their numbers and those of their ticks; and ``more`` of their rows."""
    ticked = tables.ticked
    # OFFSET: the snapshots are made of their texts once for a tick, and not for each message.
    few = ticks.offset(literal_column("0")).subquery("some_ticks")
    place = func.row_number().over(order_by=ticked.c.id)
    content = [one for one in ticked.c if one.name not in {"feed", "xid"}]
    each = select(*content, *more, (few.c.first_seq - 1 + place).label("seq")).where(_in_tick(ticked, few)).lateral("numbered")
    return select(*each.c, few.c.last_seq.label("tick")).select_from(few.join(each, true())).subquery("messages")
