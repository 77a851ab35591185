"""A DataFrame's rows as jobs by one call, all or none and once, also when a partition is run twice."""

import logging
import os
from datetime import UTC, datetime

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrameWriter
from pyspark.sql import functions as f
from sqlalchemy import make_url, text

from queue_db import QueueDB
from queue_db.errors import ArgumentError, SchemaOutOfDateError
from queue_db.spark import enqueue

TWO = pytest.mark.parametrize("kind", ["sqlite", "postgresql"], scope="session")
ONE = pytest.mark.parametrize("kind", ["sqlite"], scope="session")


@TWO
def test_every_row_becomes_a_job(spark, url, name):
    df = spark.range(0, 2500, 1, 3).selectExpr("id AS n", "concat('ü', id) AS text", "array(id, id) AS pair")
    assert enqueue(df, url, name, kind="count") == 2500
    with QueueDB(url) as db:
        payloads = [job.payload for job in db.queue(name).claim(2500)]
        assert {job["n"] for job in payloads} == set(range(2500))
        assert all(job == {"n": job["n"], "text": f"ü{job['n']}", "pair": [job["n"]] * 2} for job in payloads)


@ONE
def test_columns_become_options(spark, url, name):
    rows = [("b", 5, datetime(2001, 1, 1, tzinfo=UTC)), ("a", 1, datetime(2101, 1, 1, tzinfo=UTC)), ("c", None, None)]
    df = spark.createDataFrame(rows, "key string, rank int, due timestamp")
    options = {"priority": "rank", "run_at": "due"}
    assert enqueue(df, url, name, kind="k", payload=["key"], unique_key="key", columns=options) == 3
    with QueueDB(url) as db:
        queue = db.queue(name)
        assert [(job.payload, job.priority, job.unique_key) for job in queue.peek()] == [
            ({"key": "c"}, 0, "c"),
            ({"key": "b"}, 5, "b"),
        ]
        assert queue.stats().scheduled == 1


@TWO
def test_a_live_key_is_skipped(spark, url, name):
    df = spark.range(0, 30, 1, 2).selectExpr("cast(id AS string) AS key")
    assert enqueue(df.where("id < 10"), url, name, kind="k", unique_key="key") == 10
    assert enqueue(df, url, name, kind="k", unique_key="key") == 20
    with QueueDB(url) as db:
        assert db.queue(name).stats().available == 30


@TWO
@pytest.mark.parametrize("unique", [True, False])
def test_a_partition_that_dies_midway_repeats_nothing(spark, url, name, tmp_path, unique):
    marker = tmp_path / "died"

    @f.udf("string")
    def killing(key):
        if key == "15000" and not marker.exists():
            marker.touch()
            os._exit(1)
        return key

    df = spark.range(0, 20_000, 1, 1).select(killing(f.col("id").cast("string")).alias("key"))
    added = enqueue(df, url, name, kind="k", unique_key="key" if unique else None)
    assert marker.exists()
    with QueueDB(url) as db:
        keys = [job.payload["key"] for batch in range(4) for job in db.queue(name).claim(10_000)]
    assert sorted(keys, key=int) == [str(n) for n in range(20_000)]
    assert added == 20_000


@ONE
def test_odd_column_names(spark, url, name):
    df = spark.sql("SELECT 1 AS `order`, 2 AS `a.b`, 3 AS `c``d`")
    assert enqueue(df, url, name, kind="k") == 1
    with QueueDB(url) as db:
        assert db.queue(name).peek()[0].payload == {"order": 1, "a.b": 2, "c`d": 3}


@ONE
def test_what_is_wrong_is_said_before_spark_starts(spark, url, name, tmp_path):
    df = spark.range(1).selectExpr("id AS n")
    with pytest.raises(ArgumentError, match="column 'm' must be in the DataFrame once; it has n"):
        enqueue(df, url, name, kind="k", unique_key="m")
    with pytest.raises(ArgumentError, match="unknown options prioritys; known: delay"):
        enqueue(df, url, name, kind="k", columns={"prioritys": "n"})
    with pytest.raises(SchemaOutOfDateError):
        enqueue(df, f"sqlite:///{tmp_path}/empty.db", name, kind="k")


@pytest.mark.parametrize("kind", ["postgresql"], scope="session")
def test_the_password_is_in_no_error_and_no_log(spark, event_log, url, name):
    df = spark.range(2).selectExpr("'same' AS key")
    with pytest.raises(PySparkException) as caught:
        enqueue(df, url, name, kind="k", unique_key="key", on_duplicate="raise")
    assert "DuplicateJobError" in str(caught.value)
    written = [path.read_text() for path in event_log.rglob("events_*")]
    assert any("queue_db" in text for text in written)
    assert not any(make_url(url).password in text for text in [str(caught.value), *written])


@ONE
@pytest.mark.parametrize("published", [True, False])
def test_the_ledger_decides_whether_a_write_that_spark_reports_as_failed_was_published(
    spark, url, name, monkeypatch, caplog, published
):
    """The process that publishes may die before it can answer."""
    save = DataFrameWriter.save

    def save_and_die(self, *given, **named):
        if published:
            save(self, *given, **named)
        raise PySparkException("Python worker exited unexpectedly")

    monkeypatch.setattr(DataFrameWriter, "save", save_and_die)
    with QueueDB(url) as db, caplog.at_level(logging.WARNING, "queue_db.spark"):
        if published:
            assert enqueue(spark.range(7), url, name, kind="k") == 7
            assert "all rows are enqueued, although Spark failed" in caplog.text
        else:
            with pytest.raises(PySparkException, match="exited unexpectedly"):
                enqueue(spark.range(7), url, name, kind="k")
        assert db.queue(name).stats().available == (7 if published else 0)


@ONE
def test_a_ledger_that_cannot_be_read_after_the_write_does_not_fail_it(spark, fresh_url, monkeypatch, caplog):
    """The jobs are in the queue: an error would make the caller enqueue them again."""
    with QueueDB(fresh_url) as db:
        db.migrate()
        save = DataFrameWriter.save

        def save_and_lose(self, *given, **named):
            save(self, *given, **named)
            with db.database.engine.begin() as connection:
                connection.execute(text("ALTER TABLE jobs_published RENAME TO lost"))

        monkeypatch.setattr(DataFrameWriter, "save", save_and_lose)
        with caplog.at_level(logging.WARNING, "queue_db.spark"):
            assert enqueue(spark.range(7), fresh_url, "q", kind="k") == 7
        assert db.queue("q").stats().available == 7
    assert "all rows are enqueued" in caplog.text
