"""How streams end: stopped with a batch that is written, after a long pause, or at a job that no query gets done."""

import json
import time
from contextlib import suppress

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming import StreamingQueryListener
from sqlalchemy import update

from queue_db import QueueDB
from queue_db.spark import Lag, complete_on_commit, lags, register
from queue_db.spark.tables import spark_tables

TWO = pytest.mark.parametrize("kind", ["sqlite", "postgresql"], scope="session")
ONE = pytest.mark.parametrize("kind", ["postgresql"], scope="session")


@pytest.fixture
def db(url, name):
    with QueueDB(url) as db:
        db.queue(name).enqueue_many(("k", {"n": n}) for n in range(8))
        yield db


@pytest.fixture
def start(spark, url, name, tmp_path):
    """Start the query of this test, that gives each micro-batch to ``sink``."""
    register(spark)

    def begin(sink, *, trigger=None, **given):
        source = spark.readStream.format("queue_db").options(url=url, queue=name, stream=name, **given).load()
        writer = source.writeStream.foreachBatch(sink).option("checkpointLocation", str(tmp_path / "checkpoint"))
        return writer.trigger(**(trigger or {"availableNow": True})).start()

    return begin


@pytest.fixture
def written():
    return []


@pytest.fixture
def sink(written):
    def write(rows, batch):
        # Looks twice at the DataFrame, as foreachBatch may.
        found = [json.loads(row.payload)["n"] for row in rows.collect()]
        assert rows.count() == len(found)
        written.extend(found)

    return write


@pytest.fixture
def stopped(start, sink, written, tmp_path):
    """A query that is stopped between two triggers: its batch is written, and in the commit log."""
    query = start(sink, trigger={"processingTime": "1 hour"})
    until(lambda: (tmp_path / "checkpoint" / "commits" / "0").exists() or query.exception())
    query.stop()
    assert sorted(written) == list(range(8))
    return query


def until(found, seconds=120):
    deadline = time.monotonic() + seconds
    while not found():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.05)


def held(db, name):
    return db.queue(name).stats().held


class Lags(StreamingQueryListener):
    """Keeps the lags of each micro-batch, by its number."""

    def __init__(self):
        self.seen = {}

    def onQueryStarted(self, event):  # noqa: N802 - Spark's name
        pass

    def onQueryProgress(self, event):  # noqa: N802
        self.seen[event.progress.batchId] = lags(event.progress)

    def onQueryIdle(self, event):  # noqa: N802
        pass

    def onQueryTerminated(self, event):  # noqa: N802
        pass


@ONE
def test_a_listener_gets_the_lag_of_a_queue_and_of_a_feed(spark, url, name, db, start, sink, tmp_path):
    db.feed(name).publish_many(("k", n) for n in range(5))
    listener = Lags()
    spark.streams.addListener(listener)
    try:
        queue = start(sink, maxJobsPerTrigger=3)
        queue.awaitTermination()
        until(lambda: len(listener.seen) >= 3)
        (first,), (last,) = listener.seen[0], lags(queue.lastProgress)
        assert (first.behind, first.held) == (5, 3)
        assert first.oldest >= 0
        assert last.held == 2
        listener.seen.clear()
        feed = spark.readStream.format("queue_db").options(url=url, feed=name, maxMessagesPerTrigger=2).load()
        rates = spark.readStream.format("rate").load().selectExpr("cast(value AS string) AS payload")
        writer = feed.select("payload").union(rates).writeStream.format("noop")
        query = writer.option("checkpointLocation", str(tmp_path / "feed")).start()
        until(lambda: 0 in listener.seen or query.exception())
        query.stop()
        # The other source of the query is not ours.
        (lag,) = listener.seen[0]
        assert (lag.behind, lag.held) == (3, 0)
    finally:
        spark.streams.removeListener(listener)
    assert lags(None) == []
    assert Lag(1, 0.5) == Lag(1, 0.5, 0)


@ONE
def test_a_query_that_is_stopped_holds_nothing_that_it_has_committed(spark, url, name, db, start, sink, written, tmp_path):
    listener = complete_on_commit(spark, url)
    try:
        query = start(sink, trigger={"processingTime": "1 hour"})
        until(lambda: (tmp_path / "checkpoint" / "commits" / "0").exists() or query.exception())
        query.stop()
        until(lambda: held(db, name) == 0)
    finally:
        spark.streams.removeListener(listener)
    # The checkpoint is good, and nothing comes twice.
    db.queue(name).enqueue("k", {"n": 8})
    start(sink).awaitTermination()
    assert sorted(written) == list(range(9))


@ONE
def test_what_was_not_committed_is_not_completed(spark, url, name, db, start, sink, written):
    seen = []
    listener = complete_on_commit(spark, url)
    original = listener.onQueryTerminated
    listener.onQueryTerminated = lambda event: (original(event), seen.append(event))
    try:

        def fail(rows, batch):
            sink(rows, batch)
            raise RuntimeError("after the sink")

        query = start(fail)
        with pytest.raises(StreamingQueryException, match="after the sink"):
            query.awaitTermination()
        until(lambda: seen)  # the listener has had its last event of this query
    finally:
        spark.streams.removeListener(listener)
    assert (held(db, name), db.streams.list(name)[0].maybe_written) == (8, 8)


@ONE
def test_a_stopped_query_is_completed_by_its_checkpoint(name, db, stopped, tmp_path):
    assert held(db, name) == 8
    assert db.streams.complete(name, checkpoint=tmp_path / "checkpoint") == 8
    assert (held(db, name), db.queue(name).stats().available) == (0, 0)


@TWO
def test_a_query_that_comes_back_late_completes_what_it_has_committed(url, name, db, stopped, start, sink, written):
    """Its retention is over, and it was not released: its own return must not give its written jobs back."""
    streams = spark_tables(db.store.tables).streams
    with db.database.begin() as connection:
        connection.execute(update(streams).where(streams.c.name == name).values(seen_at=0))
    start(sink).awaitTermination()
    assert sorted(written) == list(range(8)), "written twice"
    assert (held(db, name), db.queue(name).stats().available) == (0, 0)


@TWO
@pytest.mark.rest("tests/spark/streams counts the attempts of a batch without a JVM")
def test_a_job_at_which_every_query_fails_goes_to_the_dead(name, db, start, sink, written):
    def poisoned(rows, batch):
        if rows.where("payload LIKE '%:5}'").count():
            raise RuntimeError("no fives")
        sink(rows, batch)

    failures = 0
    for _ in range(10):
        query = start(poisoned, maxDeliveries="2")
        with suppress(StreamingQueryException):
            query.awaitTermination()
        if query.exception() is None:
            break
        assert "no fives" in str(query.exception())
        failures += 1
    assert sorted(written) == [0, 1, 2, 3, 4, 6, 7]
    (dead,) = db.dead.list(name)
    assert (dead.payload, dead.attempts, failures) == ({"n": 5}, 3, 3)
    assert "maxDeliveries" in dead.last_error
    assert (held(db, name), db.queue(name).stats().available) == (0, 0)
