"""The counts that processes take for monitors, and the names of the queues, read a bounded number of rows of any queue."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from sqlalchemy import text

from queue_db import QueueDB
from queue_db.dialects.clock import now_us
from queue_db.monitoring.sampling import Sampling
from queue_db.store.schema import BLOCKED, NEVER
from tests.plans import planner
from tests.plans.filling import numbers
from tests.plans.harness import Crowd
from tests.plans.touched import Touched, watch

MANY = 20_000
CAP = 500

#: The most that a count up to ``CAP`` of each state may touch: it reads five times as many entries, and each again where it sums
#: them up. Rows on servers (an entry and its row, and a row of a derived table), steps of the virtual machine on SQLite, where
#: all jobs are five million.
MOST = {"postgresql": 8 * CAP, "mysql": 16 * CAP, "mariadb": 16 * CAP, "sqlite": 1_500 * CAP}
#: The most for the names of two queues.
MOST_OF_NAMES = {"postgresql": 20, "mysql": 40, "mariadb": 40, "sqlite": 500}


@pytest.fixture(scope="module", params=planner.STATES)
def crowd(make_table: Callable[[], Crowd], request: pytest.FixtureRequest) -> Crowd:
    """In the queue ``many`` due, blocked, running, held and dead jobs, in two priorities; a few in the queue ``small``."""
    crowd = make_table()
    with crowd.open() as db:
        tables = db.store.tables
        if request.param == "analysed while empty":
            planner.analyse(db, tables.jobs, tables.dead)
        clock = now_us().compile(dialect=db.database.engine.dialect)
        made = numbers(db.database.engine.dialect.name, MANY)
        priority = "n % 2"
        with db.database.engine.begin() as connection:
            for columns, values in (
                ("available_at", f"{clock} - 100000000 + n"),
                ("group_key, available_at", f"'g', {BLOCKED}"),
                ("available_at, claim_token, worker", f"{clock} + 3600000000 + n, 'token', 'worker'"),
                ("available_at", f"{NEVER}"),
            ):
                connection.execute(
                    text(
                        f"INSERT INTO {tables.jobs} (queue, payload, priority, {columns}) "
                        f"SELECT 'many', 'null', {priority}, {values} FROM ({made}) made"
                    )
                )
            same = "id, queue, kind, payload, priority, version, attempts, max_attempts, created_at"
            connection.execute(text(f"INSERT INTO {tables.dead} ({same}) SELECT {same} FROM {tables.jobs} WHERE group_key = 'g'"))
        db.queue("small").enqueue_many([("n", None)] * 7)
        if request.param == "analysed":
            planner.analyse(db, tables.jobs, tables.dead)
    return crowd


def touch(db: QueueDB, act: Callable[[], object]) -> Touched:
    return watch(db, act, db.store.tables.jobs, db.store.tables.dead)


@pytest.mark.rest("test_bounded_plans.py counts what verbs read")
def test_a_count_reads_no_more_than_it_counts(crowd: Crowd, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a queue with more in each state; the count of the other queue is exact."""
    monkeypatch.setattr("queue_db.monitoring.sampling.MOST", CAP, raising=False)
    with crowd.open() as db:
        found = []
        touched = touch(db, lambda: found.extend(Sampling(db.core).counted()))
        many, small = found
    assert touched.rows <= MOST[kind], touched.plans
    assert not touched.bad, touched.plans
    assert (small.queue, small.available, small.capped) == ("small", 7, ())
    assert many.capped == ("available", "blocked", "dead", "running", "scheduled")
    assert (many.available, many.blocked, many.running, many.dead) == (CAP,) * 4
    assert many.oldest_available_age >= 100  # the oldest of all, whatever its priority


def test_names_of_queues_cost_one_row_each(crowd: Crowd, kind: str) -> None:
    with crowd.open() as db:
        found: list[str] = []
        touched = touch(db, lambda: found.extend(db.queues()))
    assert found == ["many", "small"]
    assert touched.rows <= MOST_OF_NAMES[kind], touched.plans
