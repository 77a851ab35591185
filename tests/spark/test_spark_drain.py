"""Draining: every job's result once under the reader's rule, whatever dies, and no more repeated than was held."""

import gc
import os
import time
from collections import Counter

import pandas as pd
import pytest
from pyspark.errors import PySparkException
from sqlalchemy import delete, func, make_url, select, update

from queue_db import Optimistic, QueueDB, backoff
from queue_db.errors import ArgumentError, LeaseLostError, SchemaOutOfDateError
from queue_db.removal import Delete
from queue_db.spark import drain_to, read_results
from queue_db.store.base import Transaction
from tests.patience import HOURS
from tests.spark.preloaded import FROZEN

TWO = pytest.mark.parametrize("kind", ["sqlite", "postgresql"], scope="session")
ONE = pytest.mark.parametrize("kind", ["sqlite"], scope="session")
SCHEMA = "n long, twice long"


@pytest.fixture
def is_first():
    """Whether this marker is new: of two tasks that ask at the same moment, one is first."""

    def ask(marker):
        try:
            marker.touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

    return ask


@pytest.fixture
def fill(url, name):
    """Enqueue jobs with the numbers 0 … count."""

    def enqueue(count, **options):
        with QueueDB(url) as db:
            db.queue(name).enqueue_many(("double", {"n": n}, options) for n in range(count))

    return enqueue


@pytest.fixture
def doubling(is_first, tmp_path):
    """A function for drain that notes every job it works on; ``accident`` happens once, in the middle of a batch."""
    diary = tmp_path / "worked"
    diary.touch()
    marker = tmp_path / "happened"

    def make(accident=None):
        def double(jobs):
            rows = []
            for place, (job_id, payload) in enumerate(zip(jobs["id"], jobs["payload"], strict=True)):
                with diary.open("a") as file:
                    file.write(f"{payload['n']}\n")
                rows.append({"id": job_id, "n": payload["n"], "twice": 2 * payload["n"]})
                if accident and place == len(jobs) // 2 and is_first(marker):
                    accident(jobs)
            return pd.DataFrame(rows)

        return double

    make.worked = lambda: Counter(int(line) for line in diary.read_text().split())
    make.happened = marker.exists
    return make


@pytest.fixture
def die(url):
    """Kill this process, and end the leases of its jobs: they are of hours, so that a slow task loses none."""

    def end(ids):
        with QueueDB(url) as db:
            table = db.store.tables.jobs
            over = update(table).where(table.c.id.in_(ids)).values(available_at=0)
            db.database.run(lambda connection: connection.execute(over), name="end leases")
        os._exit(1)

    return end


def raw_rows(spark, path):
    return [(row.n, row.version) for row in spark.read.parquet(str(path)).collect()]


def results(spark, path):
    return sorted((row.n, row.twice) for row in read_results(spark, path, SCHEMA).collect())


def expected(count):
    return [(n, 2 * n) for n in range(count)]


@TWO
def test_all_is_drained(spark, url, name, fill, stats, doubling, tmp_path):
    fill(500)
    done = drain_to(spark, url, name, doubling(), SCHEMA, tmp_path / "out", partitions=2, batch=40)
    assert (done.completed, done.failed, done.counters.claimed, done.counters.lost) == (500, 0, 500, 0)
    assert results(spark, tmp_path / "out") == expected(500)
    assert set(doubling.worked().values()) == {1}
    assert (stats().available, stats().running, stats().dead) == (0, 0, 0)


@ONE
def test_the_collector_passes_over_the_modules_of_a_python_worker_and_no_other_process(spark, url, name, fill, tmp_path):
    """It runs after each task, and would visit all their objects: more CPU than a small task needs."""
    frozen, file = gc.get_freeze_count(), tmp_path / "frozen"

    def note(jobs):
        file.write_text(str(gc.get_freeze_count() - int(os.environ[FROZEN])))
        return pd.DataFrame({"id": jobs["id"], "n": 1, "twice": 2})

    fill(1)
    drain_to(spark, url, name, note, SCHEMA, tmp_path / "out", partitions=1)
    assert int(file.read_text()) > 1000
    assert gc.get_freeze_count() <= frozen  # some are gone


@TWO
def test_a_task_killed_at_work(spark, url, name, fill, stats, doubling, die, tmp_path):
    fill(120)
    dying = doubling(lambda jobs: die(jobs["id"].tolist()))
    drain_to(spark, url, name, dying, SCHEMA, tmp_path / "out", partitions=2, batch=20, lease=HOURS)
    assert doubling.happened()
    assert results(spark, tmp_path / "out") == expected(120)
    assert len(raw_rows(spark, tmp_path / "out")) == 120  # it had not published
    again = [n for n, times in doubling.worked().items() if times > 1]
    assert 0 < len(again) <= 20  # at most the batch that it held
    assert (stats().available, stats().running, stats().dead) == (0, 0, 0)


@TWO
def test_a_task_killed_between_publishing_and_completing(spark, url, name, fill, stats, doubling, is_first, die, tmp_path):
    marker = tmp_path / "died"

    class Killing(Delete):
        def remove(self, tx: Transaction, pairs):
            if is_first(marker):
                tx.connection.invalidate()  # on SQLite its transaction would keep the end of the leases out
                die([job_id for job_id, _ in pairs])
            return super().remove(tx, pairs)

    fill(120)
    settings = {"removal": Killing()}
    drain_to(spark, url, name, doubling(), SCHEMA, tmp_path / "out", partitions=2, batch=20, lease=HOURS, database=settings)
    raw = raw_rows(spark, tmp_path / "out")
    assert len(raw) == 140  # its batch is there twice
    assert results(spark, tmp_path / "out") == expected(120)
    latest = {row.n: row.version for row in read_results(spark, tmp_path / "out", SCHEMA).collect()}
    assert latest == {n: max(version for other, version in raw if other == n) for n in range(120)}
    assert (stats().available, stats().running, stats().dead) == (0, 0, 0)


@TWO
def test_a_task_that_raises_gives_its_jobs_back_at_once(spark, url, name, fill, doubling, is_first, tmp_path):
    marker = tmp_path / "failed"

    class Failing(Delete):
        def remove(self, tx: Transaction, pairs):
            if is_first(marker):
                raise RuntimeError("the database is on fire")
            return super().remove(tx, pairs)

    fill(60)
    began = time.monotonic()
    settings = {"removal": Failing()}
    drain_to(spark, url, name, doubling(), SCHEMA, tmp_path / "out", partitions=2, batch=20, lease=600.0, database=settings)
    assert marker.exists()
    assert time.monotonic() - began < 600.0  # not when the lease had ended
    assert results(spark, tmp_path / "out") == expected(60)


@TWO
def test_a_lease_lost_in_mid_batch(spark, url, name, fill, stats, doubling, tmp_path):
    def until_another_has_done_the_batch(jobs):
        with QueueDB(url) as db, db.database.begin("steal") as connection:
            table = db.store.tables.jobs
            mine = update(table).where(table.c.queue == name, table.c.claim_token.is_not(None))
            connection.execute(mine.values(version=table.c.version + 1, available_at=0, claim_token=None))
        deadline = time.monotonic() + 60
        while max(doubling.worked().values()) < 2 or stats().available or stats().running:
            assert time.monotonic() < deadline, "the batch with the lost leases was not taken over"
            time.sleep(0.05)

    fill(20)
    slow = doubling(until_another_has_done_the_batch)
    done = drain_to(spark, url, name, slow, SCHEMA, tmp_path / "out", partitions=2, batch=20)
    assert done.counters.lost == 20
    assert done.completed == 20
    assert len(raw_rows(spark, tmp_path / "out")) == 40
    assert results(spark, tmp_path / "out") == expected(20)
    assert (stats().available, stats().running, stats().dead) == (0, 0, 0)


@TWO
def test_work_that_takes_longer_than_its_lease(spark, url, name, fill, stats, doubling, tmp_path):
    def until_the_lease_is_over(jobs):
        with QueueDB(url) as db:
            table = db.store.tables.jobs
            claimed_at = db.core.now()
            deadline = time.monotonic() + 60
            while db.core.now() < claimed_at + 2_000_000:
                assert time.monotonic() < deadline
                time.sleep(0.05)
            held = select(func.count()).where(table.c.queue == name, table.c.attempts == 1, table.c.claim_token.is_not(None))
            assert db.database.run(lambda connection: connection.execute(held).scalar_one(), name="held", write=False) == 4

    fill(4, max_attempts=1)
    slow = doubling(until_the_lease_is_over)
    done = drain_to(spark, url, name, slow, SCHEMA, tmp_path / "out", partitions=1, batch=4, lease=1.0)
    assert (done.completed, done.failed, done.counters.lost, done.drained) == (4, 0, 0, True)
    assert stats().dead == 0


@ONE
def test_when_every_lease_was_lost_that_is_an_error(spark, url, name, fill, tmp_path):
    def taken_away(jobs):
        with QueueDB(url) as db, db.database.begin("steal") as connection:
            table = db.store.tables.jobs
            connection.execute(delete(table).where(table.c.queue == name))
        return pd.DataFrame({"id": jobs["id"], "n": 0, "twice": 0})

    fill(10)
    with pytest.raises(LeaseLostError, match="all 10 leases were lost.*Give a longer lease, or fewer jobs"):
        drain_to(spark, url, name, taken_away, SCHEMA, tmp_path / "out", partitions=1, batch=10)


@ONE
def test_some_jobs_of_one_kind(spark, url, name, fill, stats, doubling, tmp_path):
    fill(20)
    with QueueDB(url) as db:
        db.queue(name).enqueue_many(("other", n) for n in range(5))
    done = drain_to(spark, url, name, doubling(), SCHEMA, tmp_path / "out", partitions=2, kind="double", max_jobs=7)
    assert (done.completed, done.drained) == (7, False)
    done = drain_to(spark, url, name, doubling(), SCHEMA, tmp_path / "out", partitions=2, kind="double", timeout=600.0)
    assert (done.completed, done.drained, stats().available) == (13, True, 5)


@ONE
def test_when_spark_gives_up_the_rest_is_in_the_queue(spark, url, name, fill, stats, doubling, tmp_path):
    class Failing(Delete):
        def remove(self, tx: Transaction, pairs):
            raise RuntimeError("the database is on fire")

    fill(50)
    with pytest.raises(PySparkException, match="on fire"):
        drain_to(spark, url, name, doubling(), SCHEMA, tmp_path / "out", partitions=1, batch=20, database={"removal": Failing()})
    assert (stats().available, stats().running) == (50, 0)
    drain_to(spark, url, name, doubling(), SCHEMA, tmp_path / "out", partitions=2)
    assert results(spark, tmp_path / "out") == expected(50)


@TWO
def test_a_job_whose_function_raises_fails_alone(spark, url, name, fill, doubling, tmp_path):
    def picky(jobs):
        if any(payload["n"] == 7 for payload in jobs["payload"]):
            raise ValueError("not seven")
        return pd.DataFrame(
            {"id": jobs["id"], "n": [p["n"] for p in jobs["payload"]], "twice": [2 * p["n"] for p in jobs["payload"]]}
        )

    fill(40, max_attempts=3)
    settings = {"retry_after": backoff.constant(0.1)}
    done = drain_to(spark, url, name, picky, SCHEMA, tmp_path / "out", partitions=2, batch=20, database=settings)
    assert (done.completed, done.failed) == (39, 3)
    assert results(spark, tmp_path / "out") == [pair for pair in expected(40) if pair[0] != 7]
    with QueueDB(url) as db:
        assert db.queue(name).stats().dead == 1
        (dead,) = db.dead.list(name)
        assert (dead.payload, dead.attempts, dead.last_error) == ({"n": 7}, 3, "ValueError: not seven")


@ONE
@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (lambda jobs: pd.DataFrame({"id": [], "n": [], "twice": []}), "the function returned no row for this job"),
        (lambda jobs: pd.DataFrame({"id": jobs["id"]}), "KeyError"),
        (lambda jobs: pd.DataFrame({"id": [-1], "n": [1], "twice": [2]}), "ValueError: the function must return at most one row"),
        (lambda jobs: pd.DataFrame({"id": jobs["id"], "n": 1.5, "twice": 2}), "ArrowInvalid"),
        (lambda jobs: None, "TypeError"),
    ],
    ids=["no row", "no column", "another's row", "another type", "nothing"],
)
def test_an_answer_that_does_not_fit_fails_the_job(spark, url, name, fill, tmp_path, answer, reason):
    fill(1, max_attempts=1)
    done = drain_to(spark, url, name, answer, SCHEMA, tmp_path / "out", partitions=1)
    assert (done.completed, done.failed) == (0, 1)
    with QueueDB(url) as db:
        assert reason in db.dead.list(name)[0].last_error


@ONE
def test_an_empty_queue(spark, url, name, doubling, tmp_path):
    done = drain_to(spark, url, name, doubling(), SCHEMA, tmp_path / "out", partitions=2)
    assert (done.completed, done.counters.claimed) == (0, 0)
    read = read_results(spark, tmp_path / "out", SCHEMA)
    assert read.count() == 0
    assert read.columns == ["id", "version", "n", "twice"]


@ONE
def test_until_idle_leaves_what_is_scheduled(spark, url, name, fill, stats, doubling, tmp_path):
    fill(10)
    fill(5, delay=3600)
    done = drain_to(spark, url, name, doubling(), SCHEMA, tmp_path / "out", partitions=2, until="idle")
    assert (done.completed, stats().scheduled) == (10, 5)


@ONE
def test_a_strategy_is_made_in_each_task(spark, url, name, fill, doubling, tmp_path):
    fill(50)
    drain_to(spark, url, name, doubling(), SCHEMA, tmp_path / "out", partitions=2, strategy=lambda: Optimistic(window=3))
    assert results(spark, tmp_path / "out") == expected(50)


@ONE
def test_odd_folder_names(spark, url, name, fill, doubling, tmp_path):
    out = tmp_path / "a b%20{c} [d]*"
    fill(10)
    drain_to(spark, url, name, doubling(), SCHEMA, out, partitions=2)
    assert results(spark, out) == expected(10)


@ONE
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"until": "later"}, "must be empty or idle"),
        ({"partitions": 0}, "partitions=0"),
        ({"batch": 0}, "batch=0"),
        ({"lease": 0}, "lease=0"),
        ({"within": -1}, "within=-1"),
        ({"max_jobs": 0}, "max_jobs=0"),
        ({"timeout": 0}, "timeout=0"),
        ({"kind": ""}, "kind is empty"),
        ({"schema": "ID long, n long"}, "columns id are added by drain"),
        ({"schema": "long"}, "must be the columns"),
        ({"strategy": Optimistic()}, "give its name, or a function"),
    ],
)
def test_wrong_arguments(spark, url, name, tmp_path, change, message):
    given = {"function": lambda jobs: jobs, "schema": SCHEMA, "path": tmp_path / "out"} | change
    with pytest.raises(ArgumentError, match=message):
        drain_to(spark, url, name, **given)


def test_a_database_without_tables_is_found_out_before_spark_starts(spark, name, tmp_path):
    with pytest.raises(SchemaOutOfDateError):
        drain_to(spark, f"sqlite:///{tmp_path}/empty.db", name, lambda jobs: jobs, SCHEMA, tmp_path / "out")


@pytest.mark.parametrize("kind", ["postgresql"], scope="session")
def test_the_password_is_in_no_error_and_no_log(spark, event_log, url, name, fill, tmp_path):
    def leave(jobs):
        raise SystemExit(1)

    fill(1)
    with pytest.raises(PySparkException) as caught:
        drain_to(spark, url, name, leave, SCHEMA, tmp_path / "out", partitions=1, lease=0.2)
    written = [path.read_text() for path in event_log.rglob("events_*")]
    assert any("MapInArrow" in text for text in written)
    assert not any(make_url(url).password in text for text in [str(caught.value), *written])
