"""Draining into a file system that is not local: here viewfs://, behind which Hadoop keeps a folder of this machine."""

import uuid
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pandas as pd
import pytest
from pyspark.errors import PySparkTypeError
from pyspark.sql import functions as f
from sqlalchemy import update

from queue_db import QueueDB, backoff
from queue_db.errors import ArgumentError, ConfigurationError, LeaseLostError
from queue_db.spark import drain, drain_to, read_results
from queue_db.spark.results import destination

ELSEWHERE = pytest.mark.rest("test_spark_drain.py drains into a folder of this machine; results that cannot be committed are below")

TWO = pytest.mark.parametrize("kind", ["sqlite", "postgresql"], scope="session")
ONE = pytest.mark.parametrize("kind", ["sqlite"], scope="session")
SCHEMA = "n long, twice long"


@pytest.fixture
def elsewhere(spark, tmp_path):
    """The address of an empty folder in another file system, and the folder behind it."""
    behind = tmp_path / "behind"
    behind.mkdir()
    # Of its own for each test: Hadoop keeps file systems by their names.
    authority = f"elsewhere-{uuid.uuid4().hex}"
    setting = f"fs.viewfs.mounttable.{authority}.link./results"
    spark.conf.set(setting, behind.as_uri())
    yield f"viewfs://{authority}/results/out", behind / "out"
    spark.conf.unset(setting)


@pytest.fixture
def db(url):
    with QueueDB(url) as db:
        yield db


@pytest.fixture
def fill(db, name):
    def enqueue(count, **options):
        db.queue(name).enqueue_many(("double", {"n": n}, options) for n in range(count))

    return enqueue


@pytest.fixture
def double():
    """A function for drain, which travels to the tasks with its code."""

    def work(jobs):
        numbers = [payload["n"] for payload in jobs["payload"]]
        return pd.DataFrame({"id": jobs["id"], "n": numbers, "twice": [2 * n for n in numbers]})

    return work


def expected(count):
    return [(n, 2 * n) for n in range(count)]


def pairs(rows):
    return sorted((row.n, row.twice) for row in rows.collect())


@TWO
@ELSEWHERE
def test_results_are_written_where_the_address_says(spark, url, name, db, fill, elsewhere, double, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    fill(200)
    # Some in a group, one after the other, and some with a key: what hangs on them leaves with them.
    db.queue(name).enqueue_many(("double", {"n": 200 + n}, {"group": "g", "unique_key": f"k{n}"}) for n in range(3))
    address, behind = elsewhere
    done = drain_to(spark, url, name, double, SCHEMA, address, partitions=2, batch=60)
    assert (done.completed, done.failed, done.counters.lost, done.drained) == (203, 0, 0, True)
    assert pairs(read_results(spark, address, SCHEMA)) == expected(203)
    assert list(behind.glob("*/*.parquet")), "nothing is at the address"
    assert not Path("viewfs:").exists(), "the address was taken for a folder"
    stats = db.queue(name).stats()
    assert (stats.available, stats.running, stats.scheduled, stats.dead) == (0, 0, 0, 0)
    assert not list(behind.rglob("_temporary"))


@ONE
@ELSEWHERE
def test_as_a_dataframe_and_again(spark, url, name, fill, elsewhere, double):
    fill(10)
    assert pairs(drain(spark, url, name, double, SCHEMA, elsewhere[0], partitions=2)) == expected(10)
    assert pairs(drain(spark, url, name, double, SCHEMA, elsewhere[0], partitions=2)) == expected(10)


@ONE
@pytest.mark.parametrize(
    "address", ["nowhere://bucket/results", "s3a://bucket/results", "dbfs:/results", "abfss://a@b/c", "hdfs:///r"]
)
@ELSEWHERE
def test_a_file_system_that_cannot_be_written_is_refused_before_any_job_is_touched(
    spark, url, name, db, fill, double, tmp_path, monkeypatch, address
):
    monkeypatch.chdir(tmp_path)
    fill(3)
    before = [(job.id, job.version, job.attempts) for job in db.queue(name).peek(10)]
    with pytest.raises(ConfigurationError, match=r"Spark cannot write .* no job was touched"):
        drain_to(spark, url, name, double, SCHEMA, address, partitions=2)
    assert [(job.id, job.version, job.attempts) for job in db.queue(name).peek(10)] == before
    assert list(tmp_path.iterdir()) == [], "the address was taken for a folder"


@ONE
@pytest.mark.parametrize("scheme", ["", "nowhere://"])
@ELSEWHERE
def test_a_column_that_tasks_cannot_return_is_refused_before_anything_is_written(spark, url, name, double, tmp_path, scheme):
    with pytest.raises(PySparkTypeError, match=r"CharType\(3\) is not supported in conversion to Arrow"):
        drain_to(spark, url, name, double, "code char(3)", f"{scheme}{tmp_path}/results")
    assert list(tmp_path.iterdir()) == []


@ONE
def test_results_that_cannot_be_committed_leave_their_jobs_in_the_queue(spark, url, name, db, fill, elsewhere, double):
    address, behind = elsewhere
    fill(20)
    root = str(behind)

    def block(jobs):
        # The folder of the results becomes a file while the tasks are at work: no round can be written any more.
        folder = Path(root)
        if folder.is_dir():
            folder.rename(f"{root}.moved")
            folder.touch()
        return double(jobs)

    with pytest.raises(Exception, match=r"(?i)not a directory|parent path|exist|mkdir|could not"):
        drain_to(spark, url, name, block, SCHEMA, address, partitions=1, batch=20)
    stats = db.queue(name).stats()
    assert stats.available + stats.running == 20, "a job without a result has left the queue"
    behind.unlink()
    jobs = db.store.tables.jobs
    with db.database.begin() as connection:  # the leases end
        connection.execute(update(jobs).where(jobs.c.queue == name).values(available_at=0))
    done = drain_to(spark, url, name, double, SCHEMA, address, partitions=1)
    assert done.completed == 20
    assert pairs(read_results(spark, address, SCHEMA)) == expected(20)


@ONE
@ELSEWHERE
def test_failures_the_dead_and_limits(spark, url, name, db, fill, elsewhere, double):
    address, _ = elsewhere
    fill(8, max_attempts=2)
    first = drain_to(spark, url, name, double, SCHEMA, address, partitions=2, max_jobs=4)
    assert (first.completed, first.drained, db.queue(name).stats().available) == (4, False, 4)
    # Enqueued only now: a claim picks at random, and the limited drain could have had them.
    for n in (8, 9):
        db.queue(name).enqueue("double", {"n": n}, max_attempts=2)

    def picky(jobs):
        if len(jobs) == 1 and jobs["payload"][0]["n"] == 9:
            raise ValueError("nine")
        if any(payload["n"] == 9 for payload in jobs["payload"]):
            raise ValueError("not together")
        rows = double(jobs)
        return rows.assign(dead_reason=["eight" if n == 8 else None for n in rows["n"]])

    how = {"retry_after": backoff.constant(0)}
    done = drain_to(spark, url, name, picky, SCHEMA, address, partitions=2, database=how)
    assert (done.completed, done.failed, done.drained) == (4, 3, True)
    assert sorted((job.payload["n"], job.last_error) for job in db.dead.list(name)) == [(8, "eight"), (9, "ValueError: nine")]
    assert pairs(read_results(spark, address, SCHEMA)) == expected(8)


@ONE
@ELSEWHERE
def test_jobs_whose_leases_were_lost_meanwhile_are_not_completed(spark, url, name, db, fill, elsewhere, double):
    """Somebody else takes the jobs after the task has ended, before the results are committed: by hand, in a task of Spark's."""
    address, _ = elsewhere
    fill(4)

    def rob(jobs):
        with QueueDB(url) as other, other.database.begin() as connection:
            table = other.store.tables.jobs
            stolen = update(table).where(table.c.queue == name)
            connection.execute(stolen.values(version=table.c.version + 1, available_at=2**62))
        return double(jobs)

    with pytest.raises(LeaseLostError, match="all 4 leases were lost"):
        drain_to(spark, url, name, rob, SCHEMA, address, partitions=1, batch=4)
    assert read_results(spark, address, SCHEMA).count() == 0
    assert len(db.queue(name).claim(10)) == 0
    with db.database.begin() as connection:
        table = db.store.tables.jobs
        connection.execute(update(table).where(table.c.queue == name).values(available_at=0))
    assert len(db.queue(name).claim(10)) == 4


@ONE
@pytest.mark.parametrize("local", [True, False])
@ELSEWHERE
def test_results_have_columns_of_any_type(spark, url, name, fill, elsewhere, tmp_path, local):
    fill(3)
    moment = datetime(2026, 3, 1, 4, 5, 6, 7, tzinfo=UTC)

    def work(jobs):
        values = {"at": moment, "price": Decimal("1.10"), "blob": b"\x00x", "list": [1, 2], "nothing": None, "completed": 1}
        return pd.DataFrame({"id": jobs["id"]} | {column: [value] * len(jobs) for column, value in values.items()})

    schema = "at timestamp, price decimal(5,2), blob binary, list array<int>, nothing string, completed int"
    path = tmp_path / "local" if local else elsewhere[0]
    rows = drain(spark, url, name, work, schema, path, partitions=1).withColumn("at", f.unix_micros("at")).collect()
    expected = (1_772_337_906_000_007, Decimal("1.10"), b"\x00x", [1, 2], None, 1)
    assert [tuple(row)[2:] for row in rows] == [expected] * 3


@ELSEWHERE
def test_what_is_an_address_and_what_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for text in ("s3a://bucket/results", "hdfs:///r", "dbfs:/r", "abfss://a@b.c/d", "gs://b", "viewfs://c/d", "S3://b/c"):
        assert destination(text) == text
    assert destination("s3a://bucket/results/") == "s3a://bucket/results"
    for text in ("out", "./a:b", "/x/y:z", "C:\\out", "C:/out"):
        assert destination(text) == tmp_path / text
    assert destination(tmp_path / "a") == destination(f"file://{tmp_path}/a") == destination(f"file:{tmp_path}/a") == tmp_path / "a"
    for wrong in ("file://host/a", "file:a", Path("s3a://bucket/results")):
        with pytest.raises(ArgumentError, match="path="):
            destination(wrong)
