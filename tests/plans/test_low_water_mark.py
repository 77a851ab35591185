"""Claims start where the last one found its first job, not at the beginning of an index full of entries that cannot go away."""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import text

from queue_db import LeasedJob, Queue, QueueDB
from queue_db.dialects.server import long_statements
from queue_db.store.low_water_marks import BEGINNING, LONGEST_RESCAN_INTERVAL, MOST_RANGES, REMEMBERED
from queue_db.verbs.next_due import next_due
from tests.marks import begin_anew
from tests.plans.filling import MANY, fill
from tests.plans.harness import FEW, Crowd
from tests.plans.touched import watch

#: Jobs that come and go while somebody's snapshot is open. Deleting is slow on InnoDB.
CHURN = {"sqlite": 100_000, "postgresql": MANY, "mysql": 150_000, "mariadb": 300_000}

#: By how much the dead entries must weigh less. PostgreSQL goes to the row of each, InnoDB steps over those of a page together.
GAIN = {"postgresql": 1_000, "mysql": 5, "mariadb": 5}


def test_an_open_snapshot_does_not_slow_claims_down(kind: str, make_table: Callable[[], Crowd]) -> None:
    crowd = make_table()
    with crowd.open() as db, crowd.open() as other, other.database.engine.connect() as opened:
        # A busy machine reads or deletes all of them for longer than connections wait.
        long = long_statements
        queue = db.queue("churned")
        marks = begin_anew(queue.core, queue.name, lambda: 0.0)  # only the first claim is a rescan
        fill(db, queue.name, 1_000, due_in=-7200)
        queue.claim(1)
        clean = watch(db, lambda: queue.claim(1))

        reader = opened if kind == "sqlite" else opened.execution_options(isolation_level="REPEATABLE READ")
        if kind == "sqlite":
            reader.exec_driver_sql("BEGIN")  # the driver begins no transaction for a query
        seen = reader.execute(text(f"SELECT count(*) FROM {crowd.table}")).scalar_one()
        fill(db, queue.name, CHURN[kind], due_in=-3600)
        with db.database.engine.connect() as connection, long(connection), connection.begin():
            connection.execute(text(f"DELETE FROM {crowd.table}"))
        fill(db, queue.name, 1_000, due_in=-60)
        with long(reader):
            assert reader.execute(text(f"SELECT count(*) FROM {crowd.table}")).scalar_one() == seen == 1_000

        marks = begin_anew(queue.core, queue.name, lambda: 0.0)
        begun = watch(db, lambda: queue.claim(1))
        remembered = watch(db, lambda: queue.claim(1))
        if kind == "sqlite":
            # What is deleted is gone from the index at once, for a snapshot has pages of its own: there is nothing to remember.
            assert not marks.raised
            assert begun.rows <= clean.rows + 10
            return
        assert all(floor > BEGINNING for _, floor in marks.ranges())
        burden = begun.pages - clean.pages
        assert burden > CHURN[kind] / 500, "the dead entries are not in the way: this shows nothing"
        assert remembered.pages - clean.pages < burden / GAIN[kind]


def test_priorities_that_have_gone_do_not_slow_claims_down(kind: str, make_table: Callable[[], Crowd]) -> None:
    crowd = make_table()
    with crowd.open() as db:
        queue = db.queue("many")
        fill(db, queue.name, FEW, due_in=86_400, priority="-1")
        fill(db, queue.name, 40, due_in=-60, priority="5")
        seconds = [0.0]
        touched = []
        for seen in (0, 2 * MOST_RANGES):
            marks = begin_anew(queue.core, queue.name, lambda: seconds[0])
            marks.add(*range(seen))
            for _ in range(2):
                seconds[0] += REMEMBERED + LONGEST_RESCAN_INTERVAL
                assert len(queue.claim(1)) == 1  # it rescans
            claimed: list[LeasedJob] = []
            touched.append(watch(db, lambda claimed=claimed: claimed.extend(queue.claim(1))).rows)
            assert [job.priority for job in claimed] == [5]
            assert 0 < len(marks.ranges()) <= 3
    fresh, after = touched
    assert after <= 1.1 * fresh + 10
    assert after < FEW / 10 or kind == "sqlite"


def test_a_worker_that_finds_nothing_due_begins_there_next_time(kind: str, queue: Queue, db: QueueDB) -> None:
    queue.enqueue("k", delay=1000)
    assert 0 < (next_due(db.core, [queue.name])[queue.name] or 0) <= 1000
    # What is deleted on SQLite leaves no entries to step over.
    assert db.core.marks[queue.name].raised is (kind != "sqlite")
