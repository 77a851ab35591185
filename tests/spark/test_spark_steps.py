"""The steps of reads and writes, called in the order in which Spark calls them, but without a Spark. No JVM is needed for this."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.types import StructType
from sqlalchemy import func, select

from queue_db import QueueDB
from queue_db.spark import stream_reader
from queue_db.spark.encoding import CHUNK_JOBS
from queue_db.spark.masked_errors import SparkTaskError
from queue_db.spark.rows import SCHEMA as SCHEMA_READ
from queue_db.spark.source import QueueDataSource
from queue_db.spark.stream_reader import StreamReader
from queue_db.spark.tables import spark_tables
from queue_db.spark.writer import BatchWriter, Staged, StreamWriter

SCHEMA = StructType().add("payload", "string")
KEYED = StructType().add("payload", "string").add("unique_key", "string")

Make = Callable[..., Any]


@pytest.fixture
def read(url: str, name: str) -> Make:
    """A batch reader of the queue."""
    return lambda schema=SCHEMA_READ, **options: QueueDataSource({"url": url, "queue": name, **options}).reader(schema)


@pytest.fixture
def stream(url: str, name: str) -> Make:
    """A reader of a stream of the queue."""

    def make(**options: str) -> StreamReader:
        given = {"url": url, "queue": name, "stream": name, **options}
        return QueueDataSource(given).streamReader(SCHEMA_READ)  # type: ignore[return-value]

    return make


@pytest.fixture
def writer(url: str, name: str) -> Make:
    return lambda **options: QueueDataSource({"url": url, "queue": name, **options}).writer(SCHEMA, overwrite=False)


@pytest.fixture
def stream_writer(url: str, name: str) -> Make:
    return lambda **options: QueueDataSource({"url": url, "queue": name, **options}).streamWriter(SCHEMA, overwrite=False)


@pytest.fixture
def fill(db: QueueDB, name: str) -> Callable[[int], None]:
    """Enqueue this many jobs, whose payloads are their numbers."""
    return lambda count: db.queue(name).enqueue_many(("k", number) for number in range(count)) and None


class Time:
    """A clock for the reader that moves by hand, and counts the sleeps."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.slept: list[float] = []
        self.step = 0.0  #: passes at each reading of the clock

    def monotonic(self) -> float:
        self.now += self.step
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)


@pytest.fixture
def clock_of_reader(monkeypatch: pytest.MonkeyPatch) -> Time:
    time = Time()
    monkeypatch.setattr(stream_reader, "time", time)
    return time


def rows_of(reader: Any, parts: list[Any]) -> list[dict[str, Any]]:
    """All rows, read by copies as tasks have them."""
    return [row for part in parts for batch in pickle.loads(pickle.dumps(reader)).read(part) for row in batch.to_pylist()]  # noqa: S301


def numbers(rows: list[dict[str, Any]]) -> list[int]:
    return sorted(int(row["payload"]) for row in rows)


def count(db: QueueDB, table: str, *where: Callable[[Any], Any]) -> int:
    one = getattr(spark_tables(db.store.tables), table)
    with db.database.engine.connect() as connection:
        return connection.execute(select(func.count()).select_from(one).where(*(make(one.c) for make in where))).scalar_one()


def row_of_stream(db: QueueDB, name: str) -> Any:
    streams = spark_tables(db.store.tables).streams
    with db.database.engine.connect() as connection:
        return connection.execute(select(streams).where(streams.c.name == name)).one()


class TestStreamReader:
    def test_claim_partition_read_complete(self, stream: Make, fill: Make, db: QueueDB, name: str) -> None:
        fill(2000)
        reader = stream(partitions="2")
        start = reader.initialOffset()
        assert start["batch"] == 0
        end = reader.latestOffset(start, reader.getDefaultReadLimit())
        assert end["batch"] == 1
        parts = reader.partitions(start, end)
        assert len(parts) == 2
        assert numbers(rows_of(reader, parts)) == list(range(2000))
        assert reader.reportLatestOffset() == {"backlog": 0, "oldestSeconds": 0.0, "held": 2000, "batch": 1}
        reader.commit(end)
        assert count(db, "held", lambda c: c.stream == row_of_stream(db, name).id) == 0
        assert stream().initialOffset() == end

    def test_each_page_is_read_once(self, stream: Make, fill: Make, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(stream_reader, "fitting", lambda rows, count: 3)
        fill(20)
        reader = stream(partitions="1")
        start = reader.initialOffset()
        (part,) = reader.partitions(start, reader.latestOffset(start, ReadAllAvailable()))
        assert [batch.num_rows for batch in reader.read(part)] == [8, 3, 3, 3, 3]

    def test_spark_limits_a_batch_or_the_option_does(self, stream: Make, fill: Make) -> None:
        fill(20)
        reader = stream(maxJobsPerTrigger="5")
        assert reader.getDefaultReadLimit() == ReadMaxRows(5)
        start, sizes = reader.initialOffset(), []
        for limit in (ReadMaxRows(3), reader.getDefaultReadLimit(), object(), ReadAllAvailable()):
            end = reader.latestOffset(start, limit)
            sizes.append(sum(part.part.jobs for part in reader.partitions(start, end)))
            start = end
        assert sizes == [3, 5, 5, 7]

    def test_available_now_takes_what_was_there_when_it_began(self, stream: Make, fill: Make, clock_of_reader: Time) -> None:
        fill(4)
        reader = stream()
        reader.prepareForTriggerAvailableNow()
        fill(3)
        start = reader.initialOffset()
        end = reader.latestOffset(start, ReadAllAvailable())
        assert sum(part.part.jobs for part in reader.partitions(start, end)) == 4
        assert reader.latestOffset(end, ReadAllAvailable()) == end
        assert clock_of_reader.slept == []

    def test_available_now_on_an_empty_queue_takes_nothing(self, stream: Make, fill: Make) -> None:
        reader = stream()
        reader.prepareForTriggerAvailableNow()
        fill(3)
        start = reader.initialOffset()
        assert reader.latestOffset(start, ReadAllAvailable()) == start

    def test_a_reader_that_finds_nothing_sleeps_a_moment(self, stream: Make, fill: Make, clock_of_reader: Time) -> None:
        reader = stream()
        start = reader.initialOffset()
        for _ in range(20):
            assert reader.latestOffset(start, ReadAllAvailable()) == start
        assert len(clock_of_reader.slept) == 20
        assert all(0.05 <= seconds <= 0.1 for seconds in clock_of_reader.slept)
        fill(1)
        reader.latestOffset(start, ReadAllAvailable())
        assert len(clock_of_reader.slept) == 20

    def test_and_sends_a_heartbeat_once_a_minute(self, stream: Make, db: QueueDB, name: str, clock_of_reader: Time) -> None:
        reader = stream()
        start = reader.initialOffset()
        seen = []
        for seconds in (59.0, 2.0, 59.0, 2.0):
            clock_of_reader.now += seconds
            before = row_of_stream(db, name).seen_at
            reader.latestOffset(start, ReadAllAvailable())
            seen.append(row_of_stream(db, name).seen_at > before)
        assert seen == [False, True, False, True]

    def test_the_backlog_is_counted_once_a_second(self, stream: Make, fill: Make, clock_of_reader: Time) -> None:
        reader, seen = stream(), []
        for seconds in (0.0, 0.9, 0.2):
            clock_of_reader.now += seconds
            fill(2)
            seen.append(reader.reportLatestOffset()["backlog"])
        assert seen == [2, 2, 6]
        assert reader.reportLatestOffset()["held"] == 0

    def test_and_less_often_if_that_takes_long(self, stream: Make, fill: Make, clock_of_reader: Time) -> None:
        reader, seen = stream(), []
        for seconds in (0.0, 90.0, 20.0):
            clock_of_reader.now += seconds
            clock_of_reader.step = 1.0  # two seconds pass while it counts, which may take a fiftieth of the time
            fill(2)
            seen.append(reader.reportLatestOffset()["backlog"])
            clock_of_reader.step = 0.0
        assert seen == [2, 2, 6]

    def test_the_report_is_about_its_own_stream(self, stream: Make, fill: Make, name: str) -> None:
        fill(5)
        other, reader = stream(stream=f"{name}-0"), stream()
        assert reader.reportLatestOffset() | {"oldestSeconds": 0} == {"backlog": 5, "oldestSeconds": 0, "held": 0, "batch": 0}
        other.latestOffset(other.initialOffset(), ReadMaxRows(2))
        reader.latestOffset(reader.initialOffset(), ReadMaxRows(1))
        report = reader.reportLatestOffset()
        assert (report["held"], report["batch"]) == (1, 1)

    def test_a_reader_opens_its_stream_once_and_the_next_one_fences_it_off(
        self, stream: Make, fill: Make, db: QueueDB, name: str
    ) -> None:
        fill(1)
        reader = stream(retentionDays="2")
        start = reader.initialOffset()
        end = reader.latestOffset(start, ReadAllAvailable())
        reader.partitions(start, end)
        row = row_of_stream(db, name)
        assert (row.epoch, row.retention) == (1, 2 * 86_400_000_000)
        assert row.holder
        stream().initialOffset()
        with pytest.raises(SparkTaskError, match="was taken over"):
            reader.commit(end)

    def test_streams_without_a_reader_release_their_jobs_but_not_the_one_that_is_opened(
        self, stream: Make, fill: Make, db: QueueDB, name: str
    ) -> None:
        fill(4)
        offsets = {}
        for one in (name, f"{name}-gone"):
            reader = stream(stream=one)
            start = reader.initialOffset()
            offsets[one] = reader.latestOffset(start, ReadMaxRows(2))
        streams = spark_tables(db.store.tables).streams
        with db.database.engine.begin() as connection:
            connection.execute(streams.update().where(streams.c.queue == name).values(seen_at=0))
        stream().commit(offsets[name])
        assert db.queue(name).stats().available == 2
        assert row_of_stream(db, name).acked == 1

    def test_a_batch_that_never_ends_is_cut_after_its_deliveries(self, stream: Make, fill: Make, db: QueueDB, name: str) -> None:
        fill(1)
        start = end = None
        for _ in range(3):
            reader = stream(maxDeliveries="2")
            start = start or reader.initialOffset()
            end = end or reader.latestOffset(start, ReadAllAvailable())
            reader.partitions(start, end)
        reader.commit(end)
        assert db.queue(name).stats().dead == 1

    def test_a_batch_without_partitions_is_read_as_nothing(self, stream: Make) -> None:
        assert list(stream().read(None)) == []

    def test_rows_that_are_gone_fail_the_task(self, stream: Make, fill: Make) -> None:
        fill(5)
        reader = stream()
        start = reader.initialOffset()
        end = reader.latestOffset(start, ReadAllAvailable())
        (part,) = reader.partitions(start, end)
        reader.commit(end)
        with pytest.raises(SparkTaskError, match=r"0 of 5 jobs were found"):
            list(reader.read(part))

    @pytest.mark.parametrize("offset", [{}, {"batch": "first", "claim": "c"}, {"batch": None, "claim": "c"}, {"batch": 1}])
    def test_offsets_of_something_else_are_refused(self, stream: Make, offset: dict[str, Any]) -> None:
        with pytest.raises(SparkTaskError, match="is not one of a queue_db stream"):
            stream().latestOffset(offset, ReadAllAvailable())


class TestBatchReader:
    def test_an_empty_queue_has_one_empty_partition(self, read: Make) -> None:
        reader = read()
        (part,) = reader.partitions()
        assert rows_of(reader, [part]) == []

    def test_partitions_are_not_smaller_than_they_are_worth(self, read: Make, fill: Make) -> None:
        fill(999)
        assert len(read(partitions="8").partitions()) == 1
        fill(4000)
        assert 4 <= len(read(partitions="8").partitions()) <= 5
        assert len(read(partitions="2").partitions()) == 2

    @pytest.mark.parametrize("dense", [True, False])
    def test_each_page_is_read_once(
        self, read: Make, fill: Make, db: QueueDB, name: str, dense: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("queue_db.spark.batch_reader.fitting", lambda rows, count: 3)
        fill(10)
        if not dense:
            db.queue(f"{name}-other").enqueue_many(("k", number) for number in range(200))
        fill(10)
        reader = read()
        (part,) = reader.partitions()
        assert part.pieces[0].range.dense is dense
        assert [batch.num_rows for batch in reader.read(part)] == [8, 3, 3, 3, 3]
        assert numbers(rows_of(reader, [part])) == sorted([*range(10)] * 2)

    def test_some_columns(self, read: Make, fill: Make, name: str) -> None:
        fill(1)
        reader = read(StructType().add("queue", "string").add("payload", "string"))
        assert rows_of(reader, reader.partitions()) == [{"queue": name, "payload": "0"}]

    def test_pages_without_a_row_are_left_out(self, read: Make, db: QueueDB, name: str) -> None:
        other = db.queue(f"{name}-other")
        for number in range(20):
            db.queue(name).enqueue("k", number, priority=int(number == 19))
            other.enqueue_many(("k", number) for number in range(10))
        reader = read(filter="priority = 1")
        (part,) = reader.partitions()
        assert [batch.to_pylist()[0]["payload"] for batch in reader.read(part)] == ["19"]


def rows(*payloads: Any) -> Any:
    return iter([pa.RecordBatch.from_pydict({"payload": list(map(str, payloads))})])


def much() -> list[str]:
    """So many payloads that they are staged and do not travel in the message."""
    return [f'"{number:0>2000}"' for number in range(300)]


class TestBatchWriter:
    def test_rows_are_jobs_after_the_commit(self, writer: Make, db: QueueDB, name: str) -> None:
        one = writer()
        messages = [one.write(rows(1, 2)), one.write(iter([])), one.write(rows(3))]
        assert [(message.chunks, message.jobs, message.brought is not None) for message in messages] == [
            (0, 2, True),
            (0, 0, False),
            (0, 1, True),
        ]
        assert db.queue(name).stats().available == 0
        one.commit(messages)
        assert sorted(job.payload for job in db.queue(name).claim(9)) == [1, 2, 3]
        assert count(db, "published", lambda c: c.queue == name, lambda c: c.kept == 0, lambda c: c.version == 0) == 1

    def test_two_writes_without_a_name_are_two_loads(self, writer: Make, db: QueueDB, name: str) -> None:
        for _ in range(2):
            one = writer()
            one.commit([one.write(rows(1))])
        assert db.queue(name).stats().available == 2

    def test_a_load_with_a_name_is_kept_and_its_chunks_are_not(self, writer: Make, db: QueueDB, name: str) -> None:
        one, again = (writer(txnAppId=name, txnVersion="7") for _ in range(2))
        first, second = (each.write(rows(*much())) for each in (one, again))
        assert first.chunks
        assert second.chunks
        one.commit([first])
        again.commit([second])
        assert db.queue(name).stats().available == 300
        assert count(db, "staged", lambda c: c.attempt.in_([first.attempt, second.attempt])) == 0
        assert count(db, "published", lambda c: c.app == name, lambda c: c.kept == 1, lambda c: c.version == 7) == 1
        later = writer(txnAppId=name, txnVersion="7").write(rows(*much()))
        assert (later.attempt, later.chunks, later.jobs) == (0, 0, 300)

    def test_an_abort_deletes_the_chunks(self, writer: Make, db: QueueDB) -> None:
        one = writer()
        message = one.write(rows(*much()))
        one.abort([None, Staged(0, 0, 1), message])
        assert count(db, "staged", lambda c: c.attempt == message.attempt) == 0

    def test_a_commit_without_all_messages_is_refused(self, writer: Make, db: QueueDB, name: str) -> None:
        one = writer()
        with pytest.raises(SparkTaskError, match="a task has sent no message"):
            one.commit([one.write(rows(1)), None])
        assert db.queue(name).stats().available == 0

    def test_at_least_once_enqueues_at_once_and_the_rest_does_nothing(self, writer: Make, db: QueueDB, name: str) -> None:
        one = writer(guarantee="at_least_once")
        messages = [one.write(rows(1, 2)), one.write(iter([])), one.write(rows(*range(CHUNK_JOBS + 1)))]
        assert messages == [Staged(0, 0, 2), Staged(0, 0, 0), Staged(0, 0, CHUNK_JOBS + 1)]
        assert db.queue(name).stats().available == CHUNK_JOBS + 3
        one.commit([*messages, None])
        one.abort([*messages, None])
        assert db.queue(name).stats().available == CHUNK_JOBS + 3
        assert count(db, "published", lambda c: c.queue == name) == 0


def keyed(*keys: str) -> Any:
    return iter([pa.RecordBatch.from_pydict({"payload": ["1"] * len(keys), "unique_key": list(keys)})])


@pytest.mark.parametrize("guarantee", ["exactly_once", "at_least_once"])
class TestRefusedKeys:
    """A key that is taken: the error names the row, and the job, or the other row, that has the key."""

    @pytest.fixture
    def refused(self, url: str, name: str, guarantee: str) -> Make:
        """The error of a write of these partitions."""
        options = {"url": url, "queue": name, "onDuplicate": "raise", "guarantee": guarantee}
        one = QueueDataSource(options).writer(KEYED, overwrite=False)

        def refused(*partitions: Any) -> str:
            with pytest.raises(SparkTaskError) as caught:
                one.commit([one.write(keyed(*partition)) for partition in partitions])
            return str(caught.value)

        return refused

    @pytest.mark.parametrize("again", [False, True])
    def test_by_a_live_job(self, refused: Make, db: QueueDB, name: str, again: bool, guarantee: str) -> None:
        """Also where a later row has the key too."""
        job_id = db.queue(name).enqueue("k", unique_key="a")
        partitions = ["b", "ca", "da"] if again else ["b", "ca"]
        error = refused(*partitions)
        if guarantee == "exactly_once":
            assert f"queue {name!r}, row 2 of partition {len(partitions) - 1}: " in error
        assert f"unique_key 'a' is taken by a job in the queue, or one whose unique_for is not over (id {job_id})" in error
        assert "of the same" not in error

    def test_by_a_row_of_the_partition(self, refused: Make, db: QueueDB, name: str, guarantee: str) -> None:
        error = refused([*map(str, range(1500)), "a", "b", "a"])
        where = " of partition 0" if guarantee == "exactly_once" else ""
        taken = f"queue {name!r}, row 1503{where}: unique_key 'a' is taken by row 1501{where}"
        assert taken in error
        assert db.queue(name).stats().available == 0

    def test_by_a_row_of_another_partition(self, refused: Make, db: QueueDB, name: str, guarantee: str) -> None:
        """At least once, each partition is enqueued by itself, so the other row is a job."""
        error = refused("ba", [*map(str, range(300)), "a"])
        if guarantee == "exactly_once":
            assert f"queue {name!r}, row 301 of partition 1: unique_key 'a' is taken by row 2 of partition 0" in error
        else:
            assert f"queue {name!r}, row 301: unique_key 'a' is taken by a job in the queue" in error


class TestStreamWriter:
    def test_each_micro_batch_once(self, stream_writer: Make, db: QueueDB, name: str) -> None:
        one = stream_writer()
        for batch in (0, 0, 1):
            staged = one.write(rows(1, 2))
            one.commit([Staged(staged.attempt, staged.chunks, staged.jobs, name, staged.brought)], batch)
        assert db.queue(name).stats().available == 4
        assert count(db, "published", lambda c: c.app == f"query:{name}", lambda c: c.kept == 1) == 2

    def test_a_task_sends_the_id_of_its_query(self, stream_writer: Make, monkeypatch: pytest.MonkeyPatch) -> None:
        context = SimpleNamespace(getLocalProperty={"sql.streaming.queryId": "the query"}.get)
        monkeypatch.setattr("queue_db.spark.writer.TaskContext", SimpleNamespace(get=lambda: context))
        assert [stream_writer().write(rows(*some)).query for some in ((), (1,), much())] == ["the query"] * 3

    def test_its_query_must_be_known(self, stream_writer: Make, db: QueueDB, name: str) -> None:
        one = stream_writer()
        one.commit([], 0)
        for queries in ([None], [None, "a"], ["a", "b"]):
            with pytest.raises(SparkTaskError, match="no id of the streaming query"):
                one.commit([Staged(0, 0, 0, query) for query in queries], 0)
        with pytest.raises(SparkTaskError, match="a task has sent no message"):
            one.commit([Staged(0, 0, 0, "a"), None], 0)
        assert count(db, "published", lambda c: c.queue == name) == 0

    def test_an_abort_deletes_the_chunks(self, stream_writer: Make, db: QueueDB) -> None:
        one = stream_writer()
        message = one.write(rows(*much()))
        one.abort([message, None], 3)
        assert message.chunks
        assert count(db, "staged", lambda c: c.attempt == message.attempt) == 0

    def test_the_ledger_keeps_the_last_hundred_to_two_hundred_versions(self, stream_writer: Make, db: QueueDB, name: str) -> None:
        one = stream_writer()
        for batch in (99, 100, 199, 200, 201):
            one.commit([Staged(0, 0, 0, name)], batch)
        published = spark_tables(db.store.tables).published
        with db.database.engine.connect() as connection:
            kept = connection.execute(select(published.c.version).where(published.c.app == f"query:{name}")).scalars().all()
        assert sorted(kept) == [100, 199, 200, 201]


def test_the_writers_are_pickled_into_tasks(writer: Make, stream_writer: Make) -> None:
    for one, kind in ((writer(), BatchWriter), (stream_writer(), StreamWriter)):
        copy = pickle.loads(pickle.dumps(one))  # noqa: S301
        assert isinstance(copy, kind)
        assert copy.write(rows(1)).jobs == 1
