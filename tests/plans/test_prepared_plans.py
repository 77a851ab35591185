"""A plan is kept for a minute, in which a table can grow a lot: one made while it is empty must not read all of it later."""

from __future__ import annotations

import random

import pytest
from sqlalchemy import text

from queue_db import Optimistic, QueueDB

NAMES = text("SELECT name, cardinality(parameter_types) FROM pg_prepared_statements")


def plans(fresh_url: str, planner: str) -> list[str]:
    """Of all that a worker prepares while the table is empty, on a connection whose planner is told so."""
    with QueueDB(fresh_url) as maker:
        maker.migrate()
    with QueueDB(fresh_url, Optimistic(window=3, pick="slice", rng=random.Random(1)), pool_size=1) as db:
        with db.database.connections.one() as connection:
            connection.exec_driver_sql(planner)
        queue = db.queue("plans")
        assert queue.claim(5) == []
        # Few enough to stay in a page or two.
        queue.enqueue_many([("work", number) for number in range(90)])
        for limit in (1, 5):
            for _ in range(10):
                queue.complete_many(queue.claim(limit))
        # Of one job and of several: from the head and from a slice, and the completion; and the first claim, which knew nothing.
        with db.database.connections.one() as connection:
            prepared = connection.execute(NAMES).all()
            shown = [
                connection.exec_driver_sql(f"EXPLAIN EXECUTE {name} ({', '.join(['NULL'] * number)})").scalars().all()
                for name, number in prepared
            ]
        return ["\n".join(lines) for lines in shown]


@pytest.mark.usefixtures("no_second_look")
@pytest.mark.parametrize("kind", ["postgresql"])
def test_what_is_prepared_while_the_table_is_empty_reads_none_of_it_whole(fresh_url: str) -> None:
    found = plans(fresh_url, "SELECT 1")
    assert len(found) >= 7
    assert not [plan for plan in found if "Seq Scan on jobs" in plan]
    # Nor sorts what the index has in order already.
    assert not [plan for plan in found if "Sort Key: jobs.available_at" in plan]


@pytest.mark.parametrize("kind", ["postgresql"])
def test_left_to_itself_the_planner_would_read_it_whole(fresh_url: str) -> None:
    assert any("Seq Scan on jobs" in plan for plan in plans(fresh_url, "SET enable_seqscan = on"))
