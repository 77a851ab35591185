"""Numbers over time: written by workers, counted by one process at a time, summed and deleted in steps."""

import os
import signal
import threading
from datetime import timedelta

import pytest
from sqlalchemy import func, select
from sqlalchemy.exc import IntegrityError

from queue_db import QueueDB, TransientStorageError
from queue_db.concurrency.queue_counters import QueueCounters
from queue_db.database.database import Database
from queue_db.monitoring.store import metrics as store_metrics
from queue_db.monitoring.tables import monitoring_tables
from queue_db.testing import SettableClock, counted_statements
from tests.patience import PATIENCE, wait_for
from tests.worker.serving import serving

SQLITE = pytest.mark.parametrize("kind", ["sqlite"])
DAY = 86_400


@pytest.fixture
def clock():
    found = SettableClock()
    found.advance(600 - (found.now().timestamp() % 600))  # at the beginning of ten minutes
    return found


@pytest.fixture
def opened(own_url, clock, monkeypatch):
    """Handles on a database of one's own, as several processes have them."""
    monkeypatch.setattr("queue_db.monitoring.sampling._UPKEEP", PATIENCE)
    dbs = []

    def open_it(**options):
        dbs.append(QueueDB(own_url, **{"clock": clock, **options}))
        # No count takes any time: on a busy machine the next one would come later.
        dbs[-1].metrics._sampling._timer = lambda: 0.0
        return dbs[-1]

    yield open_it
    for db in dbs:
        db.close()


def rows(db, width):
    table = monitoring_tables(db.store.tables).metrics
    return db.core.read(
        "test", lambda tx: tx.connection.execute(select(func.count()).select_from(table).where(table.c.width == width)).scalar()
    )


def states(one):
    return one.available, one.scheduled, one.running, one.dead


def test_a_sample_has_the_jobs_by_state_and_the_sums_of_the_last_minute(opened, clock):
    db = opened()
    mail, other = db.queue("mail"), db.queue("other")
    mail.enqueue_many([("k", number) for number in range(5)])
    mail.enqueue("later", delay=1000)
    other.enqueue("k")
    clock.advance(7)
    first, second, third = mail.claim(limit=3, lease=1000)
    assert first.complete()
    assert second.bury("no use")
    assert db.metrics.take()
    assert not db.metrics.take()
    found = {one.queue: one for one in opened().metrics.latest()}
    assert states(found["mail"]) == (2, 1, 1, 1)
    assert (found["mail"].completed, found["mail"].died, found["mail"].at) == (1, 1, clock.now())
    assert (found["other"].available, found["other"].oldest, found["other"].completed) == (1, 7.0, 0)
    assert 60 <= found["mail"].duration <= 70
    (row,) = db.metrics.history("mail", since=clock.now() - timedelta(seconds=10))
    assert (states(row), row.completed) == ((2, 1, 1, 1), 1)
    clock.advance(100)
    assert third.complete()
    assert db.metrics.take()
    found = {one.queue: one for one in db.metrics.latest()}
    assert (states(found["mail"]), found["mail"].completed) == ((2, 1, 0, 1), 1)


@SQLITE
def test_a_queue_that_becomes_empty_is_listed_for_a_day_with_zeros(opened, clock):
    db = opened()
    db.queue("mail").enqueue("k")
    assert db.metrics.take()
    (job,) = db.queue("mail").claim()
    assert job.complete()
    for _ in range(3):
        clock.advance(10)
        assert db.metrics.take()
    assert [states(one) for one in db.metrics.latest()] == [(0, 0, 0, 0)]
    history = db.metrics.history("mail", since=clock.now() - timedelta(seconds=60))
    assert [one.available for one in history] == [1, 0]
    clock.advance(DAY)
    assert db.metrics.take()
    assert db.metrics.latest() == []


@pytest.mark.rest("the tests below sum shorter times")
def test_ten_minutes_are_summed_when_they_are_over_and_old_rows_are_deleted(opened, clock):
    db = opened()
    queue, start = db.queue("mail"), clock.now()
    for number in range(66):  # eleven minutes
        queue.enqueue("k")
        if number % 2:
            (job,) = queue.claim()
            assert job.complete()
        assert db.metrics.take()
        assert rows(db, 600) == 0
        clock.advance(10)
    assert db.metrics.take()
    assert (rows(db, 10), rows(db, 600)) == (67, 1)
    rolled, rest = db.metrics.history("mail", since=start, width=600)
    assert (rolled.at, rolled.completed, rolled.duration) == (start, 30, 600.0)
    fine = db.metrics.history("mail", since=start)
    assert rolled.available == round(sum(one.available for one in fine[:60]) / 60)
    assert rolled.oldest == max(one.oldest or 0 for one in fine[:60])
    assert (rest.at, rest.completed) == (start + timedelta(seconds=600), 3)
    assert rest.available == round(sum(one.available for one in fine[60:]) / 7)
    clock.advance(DAY + 10)
    assert db.metrics.take()
    assert rows(db, 10) == 1
    assert rows(db, 600) == 2
    clock.advance(30 * DAY)
    assert db.metrics.take()
    assert rows(db, 600) <= 1


@SQLITE
def test_where_counts_are_rare_all_old_rows_are_summed_and_deleted_and_only_those(opened, clock, monkeypatch):
    monkeypatch.setattr("queue_db.monitoring.sampling._PRUNED", 2)
    db = opened()
    for _ in range(20):
        db.core.queue_counters.add("mail", completed=1)
        db.metrics.flush()
        clock.advance(600)
    clock.advance(DAY)
    with monkeypatch.context() as behind:
        behind.setattr(store_metrics, "roll_up", lambda *_: False)
        assert db.metrics.take()
    assert rows(db, 10) == 20
    clock.advance(10)
    db.queue("mail").enqueue("k")
    assert db.metrics.take()
    assert (rows(db, 10), rows(db, 600)) == (1, 20)
    assert sum(one.completed for one in db.metrics.history("mail", since=clock.now() - timedelta(days=3), width=600)) == 20


@SQLITE
def test_where_jobs_were_not_counted_they_are_those_of_the_row_before(opened, clock):
    db = opened()
    queue = db.queue("mail")
    queue.enqueue_many([("k", number) for number in range(3)])
    assert db.metrics.take()
    clock.advance(10)
    for job in queue.claim(limit=2):
        assert job.complete()
    db.metrics.flush()
    found = db.metrics.history("mail", since=clock.now() - timedelta(seconds=60))
    assert [(one.available, one.completed) for one in found] == [(3, 0), (3, 2)]


def test_reports_of_many_processes_at_once_all_count(opened):
    dbs = [opened() for _ in range(4)]
    queues = [f"q{number}" for number in range(5)]
    together = threading.Barrier(len(dbs))
    failed = []

    def report(db):
        for _ in range(3):
            together.wait(PATIENCE)
            for queue in queues:
                db.core.queue_counters.add(queue, completed=1, lost=2)
            while True:
                try:
                    db.metrics.flush()
                    break
                except Exception as error:  # noqa: BLE001 - tried again, as the next call does
                    failed.append(error)

    threads = [threading.Thread(target=report, args=[db]) for db in dbs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    found = dbs[0].core.read("store_metrics.recent", store_metrics.recent, 60)[1]
    assert {name: (int(row.completed), int(row.lost)) for name, row in found.items()} == dict.fromkeys(queues, (12, 24)), failed


@SQLITE
def test_rows_that_other_processes_write_are_tried_again(opened, clock, monkeypatch):
    db = opened()
    db.queue("mail").enqueue("k")
    for verb in ("add", "set_depths"):
        real, failures = getattr(store_metrics, verb), [IntegrityError("INSERT", {}, Exception()), None] * 2

        def fails_first(*arguments, real=real, failures=failures):
            if failures:
                raise TransientStorageError("a deadlock, or the row is there") from failures.pop()
            real(*arguments)

        monkeypatch.setattr(store_metrics, verb, fails_first)
    db.core.queue_counters.add("mail", completed=1)
    assert db.metrics.take()
    (found,) = db.metrics.history("mail", since=clock.now() - timedelta(seconds=10))
    assert (found.completed, found.available) == (1, 1)


def test_what_could_not_be_written_is_written_by_the_next_call(opened, clock, monkeypatch):
    db = opened()
    db.core.queue_counters.add("mail", completed=3)
    with monkeypatch.context() as broken:
        broken.setattr(store_metrics, "_start", lambda *_: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            db.metrics.flush()
    db.core.queue_counters.add("mail", completed=1)
    db.metrics.flush()
    (found,) = db.metrics.history("mail", since=clock.now() - timedelta(seconds=10))
    assert found.completed == 4


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_the_child_of_a_fork_waits_for_no_lock_and_begins_with_no_counts():
    counters, database = QueueCounters(), Database("sqlite://")
    counters.add("mail", completed=1)
    with counters._lock, database.counting:
        child = os.fork()
        if not child:
            signal.alarm(int(PATIENCE))
            counters.add("mail", completed=2)
            with database.counting:
                os._exit(0 if counters.take() == {"mail": {"completed": 2}} else 1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert counters.take() == {"mail": {"completed": 1}}


def test_where_nobody_takes_them_counts_are_bounded_and_that_is_logged_once(monkeypatch, caplog):
    monkeypatch.setattr("queue_db.concurrency.queue_counters.MOST_QUEUES", 2)
    counters = QueueCounters()
    for number in (1, 2, 3, 4, 1):
        counters.add(f"q{number}", completed=1)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert counters.take() == {"q1": {"completed": 2}, "q2": {"completed": 1}}


def completed(db):
    return sum(int(row.completed) for row in db.core.read("store_metrics.recent", store_metrics.recent, DAY)[1].values())


def test_a_worker_writes_them_without_a_service_and_what_it_did_last_at_its_end(opened, monkeypatch):
    monkeypatch.setattr("queue_db.monitoring.registration.METRICS_EVERY", 0.05)
    db = opened(clock=None)
    queue, go = db.queue("mail"), threading.Event()
    queue.enqueue_many([("k", number) for number in range(10)])
    with serving(queue, lambda job: go.wait(PATIENCE)):
        wait_for(db.metrics.latest)
        assert completed(db) == 0
        go.set()
        wait_for(lambda: completed(db) == 10)
    monkeypatch.setattr("queue_db.monitoring.registration.METRICS_EVERY", 1e6)
    # Another worker, which begins to count at zero.
    queue.enqueue("k")
    serving(queue, lambda job: None).run(until_empty=True)
    assert completed(db) == 11


@SQLITE
def test_the_latest_numbers_read_no_jobs(opened):
    db = opened()
    db.queue("mail").enqueue("k")
    assert db.metrics.take()
    with counted_statements(db.database.engine) as sent:
        assert len(db.metrics.latest()) == 1
        db.metrics.history(since=db.metrics.latest()[0].at, width=600)
    tables = {word.strip('"`') for one in sent for word in one.split() if word.strip('"`').startswith("jobs")}
    assert {name.partition(".")[0] for name in tables} <= {"jobs_samples", "jobs_metrics"}
