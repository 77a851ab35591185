"""The first job of a group is found without a look at the others, however many there are."""

from __future__ import annotations

from queue_db import QueueDB
from queue_db.groups.dialects import GroupDialect
from tests.plans import planner
from tests.plans.touched import Touched, watch

KEYS = ["g0", "g1", "without jobs"]


def touched_by(db: QueueDB, name: str, each: int) -> Touched:
    """By the look for the first jobs of groups with ``each`` jobs."""
    db.queue(name).enqueue_many([("k", None, {"group": f"g{number % 2}"}) for number in range(2 * each)])
    planner.analyse(db)
    jobs, found, on = db.store.tables.jobs, [], GroupDialect.of(db.store.dialect)
    touched = watch(
        db,
        lambda: found.extend(db.core.read("test", lambda tx: on.first_in_groups(tx, jobs, name, KEYS, 1, locks=False))),
    )
    assert sorted(place for place, *_ in found) == [0, 1]
    return touched


def test_the_first_jobs_of_long_groups_are_found_as_those_of_short_ones(fresh_url: str, kind: str) -> None:
    with QueueDB(fresh_url, pool_size=1) as db:
        db.migrate()
        touched_by(db, "prepares", 10)  # SQLite counts the steps of preparing a statement too
        short, long = touched_by(db, "short", 10), touched_by(db, "long", 1000)
    assert long.rows <= short.rows + 10, long.plans
    assert not long.bad, long.plans
