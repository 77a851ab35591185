"""A read of a small queue in a table full of others' jobs looks at its own."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from queue_db.spark.ranges import store as ranges
from queue_db.store import Transaction
from tests.plans import planner
from tests.plans.filling import fill
from tests.plans.harness import DAY, Crowd
from tests.plans.touched import watch

OTHERS = 50_000


@pytest.mark.parametrize("analysed", [False, True], ids=["never analysed", "analysed"])
def test_a_read_of_two_jobs_far_apart(make_table: Callable[[], Crowd], *, analysed: bool) -> None:
    with make_table().open() as db:
        few = db.queue("few")
        mine = [few.enqueue("k", "first")]
        fill(db, "crowd", OTHERS, due_in=DAY)
        mine.append(few.enqueue("k", "last"))
        if analysed:
            planner.analyse(db)

        def read() -> list[int]:
            def look(connection: object) -> list[int]:
                found = []
                for part in ranges.queue_ranges(Transaction(connection, db.store), "few", 8, 1000):
                    assert not part.dense
                    some = ranges.ids(Transaction(connection, db.store), "few", part)
                    found += [row.id for row in ranges.jobs_of(Transaction(connection, db.store), "few", some)]
                return found

            return db.database.run(look, name="read", write=False)

        assert read() == mine
        touched = watch(db, read)
        assert touched.rows < OTHERS / 50, touched.plans
