"""Jobs that are marked as done cost the claims of their queue nothing, and the sweeper reads them and no others."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from queue_db import LeasedJob, QueueDB
from tests.marks import begin_anew
from tests.plans.filling import fill
from tests.plans.harness import FEW, Crowd
from tests.plans.test_bounded_plans import MOST
from tests.plans.touched import watch

MARKED = 1_000


def mark(db: QueueDB, queue: str) -> None:
    """Complete jobs whose lease is over by now, so that nothing but the mark keeps them from being due."""
    fill(db, queue, MARKED, due_in=-7200)
    jobs = db.queue(queue).claim(MARKED, lease=0.000_001)
    assert len(jobs) == MARKED
    assert all(db.queue(queue).complete_many(jobs))


def test_a_claim_does_not_step_over_marked_jobs(kind: str, make_table: Callable[[], Crowd]) -> None:
    crowd = make_table()
    rows = []
    with crowd.open(removal="delete_mark") as db:
        for name in ("clean", "marked"):
            if name == "marked":
                mark(db, name)
            queue = db.queue(name)
            begin_anew(queue.core, queue.name, lambda: 0.0)  # as in a new process
            fill(db, name, 20, due_in=-60)
            claimed: list[LeasedJob] = []
            rows.append(watch(db, lambda queue=queue, claimed=claimed: claimed.extend(queue.claim(10))).rows)
            assert len(claimed) == 10
    assert rows[1] <= rows[0] + MARKED / 10


@pytest.mark.parametrize("filled", [0, FEW])
def test_a_sweep_reads_marked_jobs_only(kind: str, make_table: Callable[[], Crowd], filled: int) -> None:
    crowd = make_table()
    with crowd.open(removal="delete_mark") as db:
        if filled:
            fill(db, "waiting", filled, due_in=86_400)
        assert db.sweep() == 0  # the first one looks everywhere
        swept: list[int] = []
        nothing = watch(db, lambda: swept.append(db.sweep()))
        mark(db, "marked")
        hundred = watch(db, lambda: swept.append(db.sweep(100)))
        assert swept == [0, 100]
        for touched in (nothing, hundred):
            assert not touched.bad, touched.plans
            assert f"{crowd.table}_claim" in touched.indexes, touched.plans
        assert nothing.rows <= MOST[kind] / 10
        assert hundred.rows <= MOST[kind]
        assert db.queue("waiting").stats().scheduled == filled


def test_the_first_sweep_finds_what_others_have_marked_in_their_queues(kind: str, make_table: Callable[[], Crowd]) -> None:
    crowd = make_table()
    with crowd.open() as db:
        fill(db, "mine", 30, due_in=-60)
        jobs = db.store.tables.jobs
        with db.database.engine.begin() as connection:
            connection.execute(jobs.update().values(delete_mark=1))
        assert [db.sweep(10), db.sweep(), db.sweep()] == [10, 20, 0]
