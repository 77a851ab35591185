"""Feeds numbered by ticks (PostgreSQL): pages and trims read the same few rows, whatever the planner knows."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

import pytest
from sqlalchemy import Table, func, insert, literal, select, update

from queue_db import QueueDB
from queue_db.feeds import Feed
from queue_db.store.base import Transaction
from queue_db.store.feeds import messages, ranges, ticked, ticking
from tests.plans import planner
from tests.plans.harness import DAY, Crowd
from tests.plans.planner import STATES
from tests.plans.touched import Touched, watch

pytestmark = pytest.mark.parametrize("kind", ["postgresql"], scope="session")

FEW, MANY = 2_000, 40_000

#: The most that one trim looks at.
TRIMMED = 1_000


class BackError(Exception):
    """The transaction is rolled back."""


class Shape(NamedTuple):
    """Of what ticks a feed is."""

    #: Messages of a tick.
    each: int
    #: The most rows of messages and ticks that reading 10 messages may touch.
    most: int


#: Each publish was read at once, or they waited for a reader. One before and after the range, and the pages of the index.
SHAPES = (Shape(1, 300), Shape(ticked.MESSAGES, 4 * ticked.MESSAGES))


def fill(db: QueueDB, feed: Feed, upto: int, each: int) -> None:
    """Messages up to a number, in full ticks, as if one transaction had published them. Their ids are the numbers."""
    tables, of, low = db.store.tables.feeds, feed.row().id, feed.row(fresh=True).next_seq
    with db.database.begin() as connection:
        xid = connection.execute(select(func.txid_current())).scalar_one()
        snapshot = f"{xid + 1}:{xid + 1}:"
        number = func.generate_series(low, upto).column_valued("number")
        rows = select(literal(of), number, literal(xid), literal("n"), literal("1"))
        connection.execute(insert(tables.ticked).from_select(["feed", "id", "xid", "kind", "payload"], rows))
        last = func.generate_series(low + each - 1, upto, each).column_valued("last")
        columns = ["feed", "last_seq", "first_seq", "low_id", "high_id", "snapshot", "previous"]
        first = last - each + 1
        ticks = select(literal(of), last, first, first, last, literal(snapshot), literal(ticked.NOTHING))
        connection.execute(insert(tables.ticks).from_select(columns, ticks))
        state = ticked.TickState(ticked.Moment(snapshot, xid + 1, upto, upto))
        changed = update(tables.feeds).where(tables.feeds.c.id == of)
        connection.execute(changed.values(next_seq=upto + 1, tick_state=state.dump()))


def prepared(db: QueueDB, state: str) -> tuple[Table, Table]:
    """The tables to watch, whose statistics know another feed, and none of the messages of this one."""
    tables = db.store.tables.feeds
    watched = (tables.ticked, tables.ticks)
    planner.keep_still(db, *watched)
    db.feeds.set("known", ordering="ticks", keep_for=0)
    fill(db, db.feed("known"), FEW, 1)
    if state == "analysed while empty":
        planner.analyse(db, *watched)
    return watched


def acts(db: QueueDB, feed: Feed) -> dict[str, Callable[[], object]]:
    """What is done near the beginning of the feed."""
    core, row = db.core, feed.row(fresh=True)
    columns = ["seq", "payload"]
    start = feed.start()
    chosen = [message.position for message in feed.read(start, limit=10).messages]

    def page(high: int) -> Callable[[], object]:
        how = {"after": 300, "high": high, "limit": 10, "columns": columns}
        return lambda: core.read(ranges.page, row.id, row.ordering, **how)

    def trim() -> None:
        with suppress(BackError), db.database.begin() as connection:
            # Not only whole ticks; and back again, for the next look.
            assert ticking.TICKED.delete(Transaction(connection, db.store), row.id, 1, 331) == 330
            raise BackError

    return {
        "a page": lambda: feed.read(start, limit=10),
        "a span": page(310),
        "a page of a range": page(row.next_seq - 1),
        "some positions": lambda: feed.get(chosen),
        "the age of the first one": lambda: core.read(ranges.age, row, 300),
        "a trim": trim,
        "a trim of nothing": feed.trim,
    }


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("shape", SHAPES, ids=["one message a tick", "full ticks"])
def test_reading_and_trimming_touch_no_more_of_many_ticks_than_of_few(
    make_table: Callable[[], Crowd], state: str, shape: Shape, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(messages, "TRIMMED_AT_ONCE", TRIMMED)
    with make_table().open() as db:
        watched = prepared(db, state)
        db.feeds.set("orders", ordering="ticks", keep_for=DAY * 30)
        feed = db.feed("orders")

        def look() -> dict[str, Touched]:
            if state == "analysed":
                planner.analyse(db, *watched)
            found = {}
            for what, act in acts(db, feed).items():
                act()  # prepares its statements
                found[what] = watch(db, act, *watched)
            return found

        fill(db, feed, FEW, shape.each)
        few = look()
        fill(db, feed, MANY, shape.each)
        many = look()
        planner.renew(db)
        renewed = look()
    for what, touched in (*many.items(), *renewed.items()):
        # Rows of a trim are found, and then deleted at their places.
        assert set(touched.bad) <= ({"Tid Scan"} if what == "a trim" else set()), touched.plans
        assert touched.rows == few[what].rows, (what, touched.plans)
        assert 0 < touched.rows <= (4 * TRIMMED if "trim" in what else shape.most), (what, touched.rows)


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("shape", SHAPES, ids=["one message a tick", "full ticks"])
def test_a_tick_touches_no_more_after_many_than_after_few(make_table: Callable[[], Crowd], state: str, shape: Shape) -> None:
    with make_table().open() as db:
        watched = prepared(db, state)
        db.feeds.set("orders", ordering="ticks", keep_for=0)
        feed = db.feed("orders")
        # Within the transaction the row might be read again, on a second connection: the next statements would run on that one.
        number = feed.row().id

        def tick() -> None:
            with suppress(BackError), db.database.begin() as connection:
                assert ticking.tick(Transaction(connection, db.store), number) == 3
                raise BackError

        def look() -> Touched:
            late(db, feed)
            if state == "analysed":
                planner.analyse(db, *watched)
            tick()  # prepares its statements
            touched = watch(db, tick, *watched)
            feed.rank()
            return touched

        fill(db, feed, FEW, shape.each)
        few = look()
        fill(db, feed, MANY + 3, shape.each)
        many = look()
        planner.renew(db)
        renewed = look()
    for touched in (few, many, renewed):
        assert not touched.bad, touched.plans
        assert 0 < touched.rows <= min(few.rows, 50), touched.plans


def test_of_a_transaction_that_is_numbered_up_to_the_floor_no_entry_is_read(make_table: Callable[[], Crowd]) -> None:
    """It was open at the last tick, and has published many messages since: they are found by their ids."""
    with make_table().open() as db:
        tables = db.store.tables.feeds
        planner.keep_still(db, tables.ticked)
        db.feeds.set("orders", ordering="ticks", keep_for=0)
        of = db.feed("orders").row().id
        with db.database.begin() as connection:
            xid = connection.execute(select(func.txid_current())).scalar_one()
            number = func.generate_series(1, MANY).column_valued("number")
            rows = select(literal(of), number, literal(xid), literal("n"), literal("1"))
            connection.execute(insert(tables.ticked).from_select(["feed", "id", "xid", "kind", "payload"], rows))
        last = ticked.Moment(f"{xid}:{xid + 1}:{xid}", xid + 1, 10, 10)
        target = ticked.Moment(f"{xid + 1}:{xid + 1}:", xid + 1, MANY, MANY)
        pages = {}
        for cut in (5, 20):
            state = ticked.TickState(last, target, cut)

            def look(state: ticked.TickState = state) -> None:
                db.core.read(ticked.unnumbered, of, state, TRIMMED)

            look()  # prepares its statement
            pages[cut] = watch(db, look, tables.ticked).pages
        # PostgreSQL 13 reads the range of a transaction to its end, 18 to the floor.
        assert pages[20] < 50, pages


def late(db: QueueDB, feed: Feed) -> None:
    """Three messages wait: of two transactions that the last tick has seen open, and of one that began later."""
    tables, row = db.store.tables.feeds, feed.row(fresh=True)
    xids = []
    for _ in range(4):
        with db.database.begin() as connection:
            xids.append(connection.execute(select(func.txid_current())).scalar_one())
    first, second, third, last = xids
    seen = row.next_seq + 1
    # A snapshot lists the first one as open. The second one is above all that had ended.
    moment = ticked.Moment(f"{first}:{second}:{first}", third, seen, seen)
    with db.database.begin() as connection:
        for at, xid in enumerate((first, second, last)):
            values = {"feed": row.id, "id": row.next_seq + at, "xid": xid, "kind": "n", "payload": "1"}
            connection.execute(insert(tables.ticked).values(values))
        changed = update(tables.feeds).where(tables.feeds.c.id == row.id)
        connection.execute(changed.values(tick_state=ticked.TickState(moment).dump()))
