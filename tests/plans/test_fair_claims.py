"""A claim of a fair queue reads a few jobs of a few groups, however many there are."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from sqlalchemy import text

from queue_db import QueueDB
from queue_db.dialects.clock import now_us
from tests.plans import planner
from tests.plans.filling import numbers
from tests.plans.harness import Crowd
from tests.plans.touched import watch

JOBS, GROUPS, LIMIT = 20_000, 10_000, 10

#: The most that a claim may touch: rows on servers, which read groups ahead; steps of the virtual machine on SQLite.
MOST = {"postgresql": 1_000, "mysql": 2_500, "mariadb": 4_000, "sqlite": 60_000}

#: The group of the job with the number ``n``.
GROUP = {"sqlite": f"'g' || (n % {GROUPS})"}


def fill(db: QueueDB) -> None:
    dialect = db.database.engine.dialect
    group, clock = GROUP.get(dialect.name, f"concat('g', n % {GROUPS})"), now_us().compile(dialect=dialect)
    with db.database.engine.begin() as connection:
        connection.execute(
            text(
                f"INSERT INTO {db.store.tables.jobs} (queue, payload, group_key, available_at)"
                f" SELECT 'many', 'null', {group}, {clock} - 1000000 FROM ({numbers(dialect.name, JOBS)}) made"
            )
        )


@pytest.fixture(scope="module", params=planner.STATES)
def crowd(make_table: Callable[[], Crowd], request: pytest.FixtureRequest) -> Crowd:
    """A fair queue with many groups."""
    crowd = make_table()
    with crowd.open() as db:
        if request.param == "analysed while empty":
            planner.analyse(db)
        db.queue("many").fair()
        fill(db)
        if request.param == "analysed":
            planner.analyse(db)
    return crowd


def test_a_claim_reads_a_few_jobs(crowd: Crowd, kind: str) -> None:
    with crowd.open() as db:
        queue = db.queue("many")
        for _ in range(3):
            assert len(queue.claim(LIMIT)) == LIMIT
        touched = watch(db, lambda: queue.claim(LIMIT))
    assert touched.rows <= MOST[kind], (touched.rows, touched.indexes, touched.plans)
