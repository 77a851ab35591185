"""What a micro-batch may have: bytes of payloads, and jobs that were enqueued since a time. No JVM is needed for this."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, ReadMaxRows
from sqlalchemy import update

from queue_db import QueueDB
from queue_db.model import to_micros
from queue_db.spark.masked_errors import SparkTaskError
from queue_db.spark.source import QueueDataSource

Make = Callable[..., Any]

T = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)


@pytest.fixture(params=["queue", "feed"])
def of(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def stream(url: str, name: str, of: str) -> Make:
    """A reader of a stream of the queue or feed."""

    def make(**options: Any) -> Any:
        given = {"url": url, of: name, **({"stream": name} if of == "queue" else {})}
        source = QueueDataSource(given | {key: str(value) for key, value in options.items()})
        return source.streamReader(source.schema())

    return make


@pytest.fixture
def put(db: QueueDB, name: str, of: str) -> Callable[..., None]:
    """Enqueue or publish payloads, strings of so many bytes as JSON."""

    def them(*sizes: int, letter: str = "x") -> None:
        width = len(letter.encode())
        items = [("k", letter * ((size - 2) // width)) for size in sizes]
        if of == "queue":
            db.queue(name).enqueue_many(items)
        else:
            db.feed(name).publish_many(items)
            db.feed(name).rank()

    return them


def batches(reader: Any, limit: ReadLimit) -> list[int]:
    """The sizes of the micro-batches until nothing is left."""
    start, sizes = reader.initialOffset(), []
    while True:
        end = reader.latestOffset(start, limit)
        if end == start or len(sizes) > 50:
            return sizes
        sizes.append(sum(batch.num_rows for part in reader.partitions(start, end) for batch in reader.read(part)))
        start = end


def test_a_batch_has_as_many_bytes_as_the_option_says(stream: Make, put: Any) -> None:
    put(*[100] * 10)
    reader = stream(maxBytesPerTrigger=300)
    assert reader.getDefaultReadLimit() == ReadMaxBytes(300)
    assert batches(reader, reader.getDefaultReadLimit()) == [3, 3, 3, 1]


def test_one_that_is_larger_comes_alone(stream: Make, put: Any) -> None:
    put(100, 5000, 100, 100)
    assert batches(stream(maxBytesPerTrigger=250), ReadMaxBytes(250)) == [1, 1, 2]


def test_bytes_and_not_characters_are_counted(stream: Make, put: Any) -> None:
    put(*[302] * 4, letter="語")  # 100 characters of three bytes, and two quotes
    assert batches(stream(maxBytesPerTrigger=604), ReadMaxBytes(604)) == [2, 2]


def test_spark_limits_the_bytes_or_the_option_does(stream: Make, put: Any) -> None:
    put(*[100] * 10)
    reader = stream(maxBytesPerTrigger=10_000)
    assert batches(reader, ReadMaxBytes(500)) == [5, 5]


def test_the_smaller_of_two_limits_counts(stream: Make, put: Any, of: str) -> None:
    put(*[100] * 10)
    rows = {"maxJobsPerTrigger" if of == "queue" else "maxMessagesPerTrigger": 4}
    assert batches(stream(maxBytesPerTrigger=10_000, **rows), ReadMaxBytes(10_000)) == [4, 4, 2]


def test_rows_alone_and_bytes_by_the_option(stream: Make, put: Any) -> None:
    put(*[100] * 4)
    assert batches(stream(maxBytesPerTrigger=200), ReadMaxRows(3)) == [2, 2]


def test_all_that_is_available_has_no_limit(stream: Make, put: Any) -> None:
    put(*[100] * 10)
    assert batches(stream(maxBytesPerTrigger=100), ReadAllAvailable()) == [10]


@pytest.mark.parametrize("value", ["0", "-1", "1 MB"])
def test_a_bad_size(stream: Make, value: str) -> None:
    with pytest.raises(SparkTaskError, match="maxBytesPerTrigger"):
        stream(maxBytesPerTrigger=value).initialOffset()


@pytest.mark.parametrize("of", ["queue"], indirect=True)
class TestStartingTimestamp:
    @pytest.fixture
    def aged(self, db: QueueDB, name: str, put: Any) -> None:
        """Five jobs, enqueued one hour after the other."""
        put(*[10] * 5)
        jobs = db.store.tables.jobs
        ids = sorted(job.id for job in db.queue(name).peek(10))
        with db.database.engine.begin() as connection:
            for hours, job_id in enumerate(ids):
                at = to_micros(T + dt.timedelta(hours=hours))
                connection.execute(update(jobs).where(jobs.c.id == job_id).values(created_at=at))

    def test_older_jobs_stay_in_the_queue(self, stream: Make, aged: None, db: QueueDB, name: str) -> None:
        reader = stream(startingTimestamp="2026-03-01T02:00:00Z")
        start = reader.initialOffset()
        assert reader.reportLatestOffset()["backlog"] == 3
        assert reader.latestOffset(start, ReadMaxRows(2))["batch"] == 1
        assert batches(stream(startingTimestamp="2026-03-01T02:00:00Z"), ReadMaxRows(2)) == [2, 1]
        assert db.queue(name).stats().available == 2

    def test_with_available_now_it_ends(self, stream: Make, aged: None) -> None:
        reader = stream(startingTimestamp="2026-03-01T04:00:00+00:00")
        reader.prepareForTriggerAvailableNow()
        assert batches(reader, ReadMaxRows(10)) == [1]

    def test_a_bad_time(self, stream: Make) -> None:
        with pytest.raises(SparkTaskError, match="must be a time with its zone"):
            stream(startingTimestamp="2026-03-01").initialOffset()

    def test_a_batch_read_has_its_filter(self, url: str, name: str, of: str) -> None:
        source = QueueDataSource({"url": url, of: name, "startingTimestamp": "2026-03-01T00:00:00Z"})
        with pytest.raises(SparkTaskError, match="belongs to readStream: use filter"):
            source.reader(source.schema())
