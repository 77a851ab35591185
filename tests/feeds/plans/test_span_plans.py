"""A claim of a span looks for expired ones in their index, and reads its own messages, however many wait behind them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from sqlalchemy import insert, literal, select, update

from queue_db import QueueDB
from queue_db.feeds import Span
from queue_db.feeds.tables import feed_tables
from tests.plans import planner
from tests.plans.harness import DAY, Crowd
from tests.plans.planner import STATES
from tests.plans.touched import Touched, watch

FEW, MANY = 1_000, 20_000

#: The most that a claim of 10 may touch: rows on servers, steps of the virtual machine on SQLite.
MOST = {"sqlite": 2_000}

#: Open spans of the cursor, and as many of another one.
OPEN = 1_000


def wait(db: QueueDB, feed: int, there: int, upto: int) -> None:
    """Copy the messages of a feed until ``upto`` have numbers."""
    tables = feed_tables(db.store.tables)
    messages, feeds = tables.messages, tables.feeds
    copied = [column for column in messages.c if column.name != "seq"]
    while there < upto:
        more = min(there, upto - there)
        rows = select(messages.c.seq + literal(there), *copied).where(messages.c.feed == feed, messages.c.seq <= more)
        with db.database.begin() as connection:
            connection.execute(insert(messages).from_select([messages.c.seq, *copied], rows))
            there += more
            connection.execute(update(feeds).where(feeds.c.id == feed).values(next_seq=there + 1))


def leased(db: QueueDB, feed: int, until: int) -> None:
    """Open spans, whose leases have not ended."""
    spans = feed_tables(db.store.tables).spans
    row = {"feed": feed, "high": 2**40, "version": 1, "attempts": 1, "until": until}
    with db.database.begin() as connection:
        for name in ("mailers", "others"):
            connection.execute(insert(spans), [{**row, "cursor_name": name, "low": 2**40 - at} for at in range(OPEN)])


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("ordering", ["counter", "ranked"])
def test_a_claim_touches_no_more_before_many_messages_than_before_few(
    make_table: Callable[[], Crowd], kind: str, state: str, ordering: str
) -> None:
    crowd = make_table()
    with crowd.open() as db:
        tables = feed_tables(db.store.tables)
        watched = (tables.messages, tables.spans, tables.inbox)
        db.feeds.set("orders", ordering=ordering)
        feed = db.feed("orders")
        shared = feed.shared("mailers")
        feed.publish_many([("n", number) for number in range(20)])
        feed.rank()
        planner.keep_still(db, *watched)
        if state == "analysed while empty":
            planner.analyse(db, *watched)
        leased(db, shared.feed_id, crowd.then + DAY * 1_000_000)

        def claim() -> Touched:
            if state == "analysed":
                planner.analyse(db, *watched)
            elif state == "never analysed":
                planner.forget(db, *watched)
            claimed: list[Span | None] = [shared.claim(10)]  # prepares its statements
            touched = watch(db, lambda: claimed.append(shared.claim(10)), *watched)
            assert [len(span.messages) for span in claimed if span is not None] == [10, 10]
            return touched

        wait(db, shared.feed_id, 20, FEW)
        few = claim()
        wait(db, shared.feed_id, FEW, MANY)
        many = claim()
    for touched in (few, many):
        assert not touched.bad, touched.plans
        assert f"{tables.spans.name}_cursor" in touched.indexes, touched.plans
    assert many.rows <= few.rows * 1.02, many.plans
    assert many.rows < MOST.get(kind, 100), (many.rows, many.plans)
