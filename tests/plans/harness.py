"""A table of many jobs for each database, and what each verb touched in it while there were only ten thousand."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest
from sqlalchemy import select

from queue_db import QueueDB
from queue_db.dialects.clock import now_us
from tests.plans import planner
from tests.plans.filling import MANY, fill
from tests.plans.touched import Touched
from tests.plans.verbs import VERBS

FEW = 10_000
DAY = 86_400


@dataclass
class Crowd:
    """One table, whose queue ``crowd`` holds jobs that are due tomorrow."""

    url: str
    table: str
    #: What each verb touched when there were ten thousand jobs.
    before: dict[str, Touched] = field(default_factory=dict)
    #: The day after tomorrow: by this clock all jobs wait, by the database's own all are delayed.
    then: int = 0

    def open(self, **options: object) -> QueueDB:
        # One connection: counters and handlers of a session then tell of everything.
        return QueueDB(self.url, table=self.table, pool_size=1, **options)  # type: ignore[arg-type]

    def open_then(self, **options: object) -> QueueDB:
        return self.open(clock=lambda: self.then, **options)


@pytest.fixture(scope="module")
def make_table(
    kind: str, shared_urls: Callable[[str], str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[], Crowd]]:
    """An empty table of one's own; on servers in the database that all tests share."""
    made: list[Crowd] = []
    # A file does not get smaller when a table is dropped.
    file = tmp_path_factory.mktemp("plans") / "jobs.db"
    url = f"sqlite:///{file}" if kind == "sqlite" else shared_urls(kind)

    def make() -> Crowd:
        crowd = Crowd(url, f"plans_{uuid.uuid4().hex[:8]}")
        made.append(crowd)
        with crowd.open() as db:
            db.migrate()
            with db.database.engine.connect() as connection:
                crowd.then = connection.execute(select(now_us())).scalar_one() + 2 * DAY * 1_000_000
            planner.keep_still(db)
        return crowd

    yield make
    for crowd in made if kind != "sqlite" else ():
        with crowd.open() as db:
            db.migrate(revision="base")
    for path in file.parent.glob("jobs.db*"):
        path.unlink()


def crowded(crowd: Crowd) -> Crowd:
    """Fill the table, with a look at each verb on the way."""
    with crowd.open() as db:
        fill(db, "crowd", FEW, due_in=DAY)
    crowd.before = {name: verb(crowd.open_then, "crowd") for name, verb in VERBS.items()}
    with crowd.open() as db:
        fill(db, "crowd", MANY - FEW, due_in=DAY + 1)
    return crowd


@pytest.fixture(scope="module")
def stale_crowd(make_table: Callable[[], Crowd]) -> Crowd:
    """Filled after it was analysed."""
    crowd = make_table()
    with crowd.open() as db:
        # A few jobs of another queue: of a table with no row at all some servers keep no statistics.
        fill(db, "other", 20, due_in=DAY)
        # Without an entry in an index SQLite before 3.46 takes the table for larger than it was.
        db.queue("other").enqueue("k", unique_key="other", group="other", delay=DAY)
        planner.analyse(db)
    return crowded(crowd)


@pytest.fixture(scope="module")
def crowd(state: str, stale_crowd: Crowd) -> Crowd:
    """The full table, with what the planner knows of it in ``state``."""
    with stale_crowd.open() as db:
        if state == "never analysed":
            planner.forget(db)
        elif state == "analysed":
            planner.analyse(db)
    return stale_crowd
