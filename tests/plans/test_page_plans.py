"""A page of jobs reads as much of many jobs as of few, wherever it begins."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from sqlalchemy import insert, text

from queue_db import Job, JobPage, QueueDB
from queue_db.dialects.clock import now_us
from queue_db.monitoring.listing import SCANNED
from queue_db.store.schema import BLOCKED
from queue_db.testing import counted_statements
from tests.plans import planner
from tests.plans.filling import numbers
from tests.plans.harness import Crowd
from tests.plans.touched import Touched, watch

MANY = 20_000
LIMIT = 50

#: The most that a page may touch: rows on servers (an entry and its row count twice), steps of the virtual machine on SQLite.
MOST = {"postgresql": 3 * LIMIT, "mysql": 5 * LIMIT, "mariadb": 5 * LIMIT, "sqlite": 200 * LIMIT}
#: The same of a page of dead jobs, which are read in parts if no queue is named.
MOST_OF_DEAD = {"postgresql": 3 * LIMIT, "mysql": 3 * LIMIT, "mariadb": 3 * LIMIT, "sqlite": 200 * LIMIT}
MOST_SCANNED = {"postgresql": 2 * SCANNED, "mysql": 3 * SCANNED, "mariadb": 3 * SCANNED, "sqlite": 100 * SCANNED}


def fill(db: QueueDB, columns: str, values: str) -> None:
    """Many jobs of the queue ``many`` with the same time, as a bulk load makes them; ``values`` over the number ``n``."""
    made = numbers(db.database.engine.dialect.name, MANY)
    with db.database.engine.begin() as connection:
        connection.execute(
            text(
                f"INSERT INTO {db.store.tables.jobs} (queue, payload, {columns}) SELECT 'many', 'null', {values} FROM ({made}) made"
            )
        )


@pytest.fixture(scope="module", params=planner.STATES)
def crowd(make_table: Callable[[], Crowd], request: pytest.FixtureRequest) -> Crowd:
    """Due ones, all of one time; blocked ones of one group; and dead ones, all of one time."""
    crowd = make_table()
    with crowd.open() as db:
        if request.param == "analysed while empty":
            planner.analyse(db, db.store.tables.jobs, db.store.tables.dead)
        clock = now_us().compile(dialect=db.database.engine.dialect)
        fill(db, "available_at", f"{clock} - 1000000")
        fill(db, "group_key, available_at", f"'g', {BLOCKED}")
        fill(db, "available_at, claim_token, worker", f"{clock} + 3600000000, 'token', 'worker'")
        jobs, dead = db.store.tables.jobs, db.store.tables.dead
        same = "id, queue, kind, payload, priority, version, attempts, max_attempts, created_at"
        with db.database.engine.begin() as connection:
            connection.execute(text(f"INSERT INTO {dead} ({same}, died_at) SELECT {same}, 17 FROM {jobs} WHERE group_key = 'g'"))
        if request.param == "analysed":
            planner.analyse(db, jobs, dead)
    return crowd


def look(db: QueueDB, state: str, **more: str) -> tuple[JobPage, Touched]:
    """The second page, and what it touches."""
    queue = db.queue("many")
    after = queue.jobs(state, limit=1000, **more).after  # type: ignore[arg-type]
    assert after is not None
    pages: list[JobPage] = []

    def read() -> None:
        pages.append(queue.jobs(state, after=after, limit=LIMIT, **more))  # type: ignore[arg-type]

    tables = db.store.tables
    touched = watch(db, read, tables.dead if state == "dead" else tables.jobs)
    return pages[-1], touched


@pytest.mark.parametrize("state", ["available", "blocked", "dead"])
def test_a_page_reads_its_jobs_and_no_others(crowd: Crowd, kind: str, state: str) -> None:
    with crowd.open() as db:
        page, touched = look(db, state)
    assert (len(page.jobs), page.after is None) == (LIMIT, False)
    assert not touched.bad, touched.plans
    assert touched.rows <= MOST[kind], touched.plans


@pytest.mark.parametrize("newest", [False, True])
@pytest.mark.parametrize("queue", ["many", None])
def test_a_page_of_the_dead_reads_its_jobs_and_no_others(crowd: Crowd, kind: str, queue: str | None, newest: bool) -> None:
    with crowd.open() as db:
        pages = [db.dead.list(queue, limit=10, newest=newest)]

        def read(after: Job | None) -> Touched:
            def act() -> None:
                pages.append(db.dead.list(queue, after=after, limit=LIMIT, newest=newest))

            return watch(db, act, db.store.tables.dead)

        for touched in (read(None), read(pages[0][-1])):
            assert len(pages.pop()) == LIMIT
            assert not touched.bad, touched.plans
            assert not touched.sorts, touched.plans
            assert touched.rows <= MOST_OF_DEAD[kind], touched.plans


def test_pages_of_the_dead_of_many_queues_take_as_many_statements_as_those_of_100(own_url: str) -> None:
    with QueueDB(own_url) as db:
        same = {"kind": "k", "payload": "null", "priority": 0, "version": 1, "attempts": 1, "max_attempts": 1, "created_at": 0}
        # Ids and deaths are in different orders, and ten jobs die at a time.
        deaths = {number: number * 7 % 150 // 10 for number in range(1, 151)}
        rows = [{**same, "id": number, "queue": f"q{number}", "died_at": at} for number, at in deaths.items()]
        with db.database.engine.begin() as connection:
            connection.execute(insert(db.store.tables.dead), rows)
        db.dead.count()  # the first statement checks the version of the tables
        for newest in (False, True):
            listed: list[Job] = []
            while True:
                with counted_statements(db.database.engine) as statements:
                    page = db.dead.list(limit=60, after=listed[-1] if listed else None, newest=newest)
                assert len(statements) <= 103  # 101 names; the page begins among those of one time
                listed += page
                if not page:
                    break
            assert [job.id for job in listed] == sorted(deaths, key=lambda number: (deaths[number], number), reverse=newest)


@pytest.mark.parametrize("state", ["available", "blocked", "dead", "running", "scheduled"])
def test_a_kind_that_is_not_there_is_sought_among_a_thousand(crowd: Crowd, kind: str, state: str) -> None:
    with crowd.open() as db:
        page, touched = look(db, state, kind="rare")
    assert (page.jobs, page.after is None) == ([], False)
    assert not touched.bad, touched.plans
    assert touched.rows <= MOST_SCANNED[kind], touched.plans


@pytest.mark.parametrize("state", ["blocked", "running"])
def test_a_page_of_a_group_reads_no_other_job(crowd: Crowd, kind: str, state: str) -> None:
    with crowd.open() as db:
        page, touched = look(db, state, group="g")
    assert (len(page.jobs), page.after is None) == (LIMIT if state == "blocked" else 0, False)
    assert not touched.bad, touched.plans
    assert touched.rows <= MOST_SCANNED[kind], touched.plans
    assert any("group" in index for index in touched.indexes), touched.plans
