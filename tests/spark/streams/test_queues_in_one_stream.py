"""One stream of several queues: each row is delivered once, in the batch that has its queue's claim. No JVM is needed for this."""

from __future__ import annotations

import pickle
import random
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows

from queue_db import QueueDB
from queue_db.spark import queue_names, queues_stream_reader
from queue_db.spark.masked_errors import SparkTaskError
from queue_db.spark.queues_stream_reader import QueuesStreamReader
from queue_db.spark.source import QueueDataSource
from queue_db.spark.stream_reader import StreamReader

Make = Callable[..., QueuesStreamReader]


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each call looks for new queues, and none sleeps."""
    monkeypatch.setattr(queues_stream_reader, "_LOOK_EVERY", -1.0)
    monkeypatch.setattr(queues_stream_reader.time, "sleep", lambda seconds: None)


@pytest.fixture
def make(url: str, name: str) -> Make:
    """A reader of the stream, as a new process of the driver makes it."""

    def new(**options: Any) -> QueuesStreamReader:
        given = {"url": url, "queues": f"{name}.*", "stream": name} | {key: str(value) for key, value in options.items()}
        source = QueueDataSource(given)
        return source.streamReader(source.schema())  # type: ignore[return-value]

    return new


@pytest.fixture
def fill(db: QueueDB, name: str) -> Callable[..., None]:
    """Enqueue jobs into the queue of the pattern; their payloads are numbers of their own."""
    number = iter(range(1_000_000))

    def enqueue(queue: str, count: int, payload: Any = None) -> None:
        jobs = [("k", next(number) if payload is None else payload) for _ in range(count)]
        db.queue(f"{name}.{queue}").enqueue_many(jobs)

    return enqueue


def rows(reader: QueuesStreamReader, start: Any, end: Any) -> list[dict[str, Any]]:
    """All rows between two offsets, read by copies as tasks have them."""
    parts = pickle.loads(pickle.dumps(reader.partitions(start, end)))  # noqa: S301
    copy = pickle.loads(pickle.dumps(reader))  # noqa: S301
    return [row for part in parts for batch in copy.read(part) for row in batch.to_pylist()]


def of_queues(found: list[dict[str, Any]], name: str) -> Counter[str]:
    return Counter(row["queue"].removeprefix(f"{name}.") for row in found)


def left(db: QueueDB, name: str) -> int:
    return sum(db.queue(queue).stats().available for queue in db.queues() if queue.startswith(f"{name}."))


def test_a_batch_has_jobs_of_each_queue(make: Make, fill: Any, db: QueueDB, name: str) -> None:
    fill("a", 3)
    fill("b", 5)
    db.queue(f"{name}-other").enqueue("k", 0)
    reader = make()
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadMaxRows(100))
    assert of_queues(rows(reader, start, end), name) == {"a": 3, "b": 5}
    assert (left(db, name), db.queue(f"{name}-other").stats().available) == (0, 1)
    assert {row.queue: row.held for row in db.streams.list() if row.name.startswith(f"{name}/")} == {
        f"{name}.a": 3,
        f"{name}.b": 5,
    }
    assert reader.latestOffset(end, ReadMaxRows(100)) == end
    assert [row.held for row in db.streams.list() if row.name.startswith(f"{name}/")] == [0, 0]


def test_a_queue_that_appears_later_is_picked_up_and_replayed(make: Make, fill: Any, name: str) -> None:
    fill("a", 2)
    reader = make()
    start = reader.initialOffset()
    first = reader.latestOffset(start, ReadMaxRows(100))
    fill("new", 4)
    second = reader.latestOffset(first, ReadMaxRows(100))
    found = rows(reader, first, second)
    assert of_queues(found, name) == {"new": 4}
    # The driver dies; the next one finds both offsets in the checkpoint.
    again = make()
    assert {row["id"] for row in rows(again, first, second)} == {row["id"] for row in found}
    again.commit(second)
    assert again.latestOffset(second, ReadMaxRows(100)) == second


def test_a_claim_that_spark_did_not_note_is_handed_out_again(make: Make, fill: Any, name: str) -> None:
    fill("a", 3)
    fill("b", 3)
    reader = make()
    start = reader.initialOffset()
    noted = reader.latestOffset(start, ReadMaxRows(100))
    fill("a", 3)
    assert make().latestOffset(start, ReadMaxRows(100)) == noted


def test_a_claim_of_a_later_queue_that_spark_did_not_note_is_handed_out_again(make: Make, fill: Any, name: str) -> None:
    fill("a", 1)
    reader = make()
    noted = reader.latestOffset(reader.initialOffset(), ReadMaxRows(100))
    fill("new", 3)
    lost = reader.latestOffset(noted, ReadMaxRows(100))  # the driver dies before Spark writes this offset
    again = make()
    found = again.latestOffset(noted, ReadMaxRows(100))
    assert found == lost
    assert of_queues(rows(again, noted, found), name) == {"new": 3}
    again.commit(found)
    assert again.latestOffset(found, ReadMaxRows(100)) == found


def test_a_later_queue_is_handed_out_though_the_claim_of_the_next_one_failed(
    make: Make, fill: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill("a", 1)
    reader = make()
    noted = reader.latestOffset(reader.initialOffset(), ReadMaxRows(100))
    fill("b", 2)
    fill("c", 2)
    claim, claimed = StreamReader.claim, list[Any]()

    def fails_at_the_third(self: StreamReader, *arguments: Any) -> Any:
        claimed.append(self)
        if len(claimed) == 3:  # of a, which is to be completed, and one of the new queues
            raise OSError("the connection is gone")
        return claim(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(StreamReader, "claim", fails_at_the_third)
        with pytest.raises(SparkTaskError, match="the connection is gone"):
            make().latestOffset(noted, ReadMaxRows(100))
    again = make()
    again.prepareForTriggerAvailableNow()
    found = again.latestOffset(noted, ReadMaxRows(100))
    assert of_queues(rows(again, noted, found), name) == {"b": 2, "c": 2}


def test_a_later_queue_with_nothing_due_is_asked_once(
    make: Make, fill: Any, db: QueueDB, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill("a", 1)
    reader = make()
    noted = reader.latestOffset(reader.initialOffset(), ReadMaxRows(100))
    db.queue(f"{name}.new").enqueue("k", delay=1000)
    claim, claimed = StreamReader.claim, list[str]()

    def counted(self: StreamReader, *arguments: Any) -> Any:
        claimed.append(self._queue)
        return claim(self, *arguments)

    monkeypatch.setattr(StreamReader, "claim", counted)
    for _ in range(3):
        assert reader.latestOffset(noted, ReadMaxRows(100)) == noted
    assert sorted(claimed) == [f"{name}.a", f"{name}.new"]


def test_of_a_queue_that_is_left_out_only_what_is_claimed_is_handed_out(make: Make, fill: Any, db: QueueDB, name: str) -> None:
    fill("a", 1)
    fill("b", 1)
    reader = make()
    noted = reader.latestOffset(reader.initialOffset(), ReadMaxRows(100))
    fill("b", 2)
    claimed = reader.latestOffset(noted, ReadMaxRows(100))  # the driver dies before Spark writes this offset
    fill("a", 1)
    fill("b", 4)
    narrower = make(queues=f"{name}.a")
    found = narrower.latestOffset(noted, ReadMaxRows(100))
    assert found["queues"][f"{name}.b"] == claimed["queues"][f"{name}.b"]
    assert of_queues(rows(narrower, noted, found), name) == {"a": 1, "b": 2}
    narrower.commit(found)
    assert narrower.latestOffset(found, ReadMaxRows(100)) == found
    assert (db.queue(f"{name}.b").stats().available, left(db, name)) == (4, 4)
    # Given again, it goes on from there.
    wider = make()
    assert of_queues(rows(wider, found, wider.latestOffset(found, ReadMaxRows(100))), name) == {"b": 4}


def test_the_older_reader_is_fenced_off(make: Make, fill: Any) -> None:
    fill("a", 1)
    reader, start = (one := make()), one.initialOffset()
    make().initialOffset()
    with pytest.raises(SparkTaskError, match="was taken over or released"):
        reader.latestOffset(start, ReadMaxRows(1))


class TestLimits:
    def test_small_queues_come_whole_and_large_ones_get_the_rest(self, make: Make, fill: Any, name: str) -> None:
        for queue, count in (("large", 500), ("a", 3), ("z", 4)):
            fill(queue, count)
        reader = make()
        start = reader.initialOffset()
        end = reader.latestOffset(start, ReadMaxRows(60))
        first = of_queues(rows(reader, start, end), name)
        assert first["a"] == 3
        assert first["z"] == 4
        assert 20 <= first["large"] <= 53
        fill("a", 3)
        second = of_queues(rows(reader, end, reader.latestOffset(end, ReadMaxRows(60))), name)
        assert second == {"a": 3, "large": 57}

    def test_more_queues_than_jobs_take_turns(self, make: Make, fill: Any, name: str) -> None:
        for number in range(5):
            fill(str(number), 3)
        reader = make()
        offset, found = reader.initialOffset(), []
        for _ in range(15):
            end = reader.latestOffset(offset, ReadMaxRows(2))
            some = of_queues(rows(reader, offset, end), name)
            assert some.total() <= 2
            found.append(some)
            offset = end
        assert sum(found, Counter()) == {str(number): 3 for number in range(5)}
        assert len(sum(found[:3], Counter())) == 5

    def test_bytes(self, make: Make, fill: Any, name: str) -> None:
        fill("a", 20, payload="x" * 98)  # 100 bytes
        fill("b", 2, payload="x" * 98)
        reader = make(maxBytesPerTrigger=1000)
        limit = reader.getDefaultReadLimit()
        assert limit == ReadMaxBytes(1000)
        offset, sizes = reader.initialOffset(), []
        while (end := reader.latestOffset(offset, limit)) != offset:
            sizes.append(len(rows(reader, offset, end)))
            offset = end
        assert sum(sizes) == 22
        assert max(sizes) <= 10
        assert sizes[0] >= 7

    def test_all_available_has_no_limit(self, make: Make, fill: Any) -> None:
        fill("a", 20, payload="x" * 98)
        reader = make(maxBytesPerTrigger=100)
        start = reader.initialOffset()
        assert len(rows(reader, start, reader.latestOffset(start, ReadAllAvailable()))) == 20

    def test_available_now_takes_what_is_there_when_it_begins(self, make: Make, fill: Any, name: str) -> None:
        fill("a", 3)
        reader = make()
        reader.prepareForTriggerAvailableNow()
        fill("a", 1)
        fill("new", 1)
        start = reader.initialOffset()
        end = reader.latestOffset(start, ReadMaxRows(100))
        assert of_queues(rows(reader, start, end), name) == {"a": 3}
        assert reader.latestOffset(end, ReadMaxRows(100)) == end

    def test_a_paused_queue_waits_alone(self, make: Make, fill: Any, db: QueueDB, name: str) -> None:
        fill("a", 1)
        fill("b", 1)
        db.queue(f"{name}.a").pause()
        reader = make()
        start = reader.initialOffset()
        end = reader.latestOffset(start, ReadMaxRows(100))
        assert of_queues(rows(reader, start, end), name) == {"b": 1}
        db.queue(f"{name}.a").resume()
        assert of_queues(rows(reader, end, reader.latestOffset(end, ReadMaxRows(100))), name) == {"a": 1}

    def test_partitions_are_no_more_than_asked_for(self, make: Make, fill: Any, name: str) -> None:
        for number in range(7):
            fill(str(number), 2)
        reader = make(partitions=3)
        start = reader.initialOffset()
        end = reader.latestOffset(start, ReadMaxRows(100))
        assert len(reader.partitions(start, end)) == 3
        assert len(rows(reader, start, end)) == 14


def test_too_many_queues_fail_the_query(make: Make, fill: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_names, "MOST_QUEUES", 2)
    for number in range(3):
        fill(str(number), 1)
    with pytest.raises(SparkTaskError, match="matches 3 queues.*2 is the limit"):
        make().initialOffset()


def test_a_queue_with_a_long_name_has_a_stream_too(make: Make, fill: Any, name: str) -> None:
    long = "q" * (99 - len(name))
    fill(long, 2)
    reader = make()
    start = reader.initialOffset()
    assert of_queues(rows(reader, start, reader.latestOffset(start, ReadMaxRows(9))), name) == {long: 2}


def test_a_checkpoint_of_one_queue_is_refused(make: Make, fill: Any) -> None:
    with pytest.raises(SparkTaskError, match="is not one of a queue_db stream of several queues"):
        make().latestOffset({"batch": 1, "claim": "c"}, ReadMaxRows(9))


def test_progress_is_of_all_queues(make: Make, fill: Any) -> None:
    fill("a", 3)
    fill("b", 5)
    reader = make()
    start = reader.initialOffset()
    reader.latestOffset(start, ReadMaxRows(4))
    report = reader.reportLatestOffset()
    assert report is not None
    assert (report["backlog"], report["held"], report["queues"]) == (4, 4, 2)
    assert report["oldestSeconds"] >= 0


def test_a_name_that_leaves_no_room_is_refused(make: Make) -> None:
    with pytest.raises(SparkTaskError, match="stream has 80 characters; 67 is the limit"):
        make(stream="s" * 80).initialOffset()


class Died(Exception):
    """The driver is gone."""


class Query:
    """A query that dies at any step and starts again, as Spark runs it: a log of offsets, and one of committed batches."""

    def __init__(self, make: Make, seed: int) -> None:
        self.make = make
        self.chance = random.Random(seed)
        self.offsets: list[dict[str, Any]] = []
        self.committed = 0
        self.sink: dict[int, list[int]] = {}
        self.mortal = True

    def may_die(self) -> None:
        if self.mortal and self.chance.random() < 0.15:
            raise Died

    def start(self, rounds: int) -> None:
        """A new process, up to ``rounds`` batches."""
        reader = self.make()
        start = self.offsets[self.committed - 1] if self.committed else reader.initialOffset()
        for _ in range(rounds):
            end = self.next(reader, start)
            if end == start:
                return
            self.may_die()
            self.sink[self.committed] = [row["id"] for row in rows(reader, start, end)]
            self.may_die()
            self.committed += 1
            self.may_die()
            if self.chance.random() < 0.5:
                reader.commit(end)
            start = end

    def next(self, reader: QueuesStreamReader, start: dict[str, Any]) -> dict[str, Any]:
        """The offset that is in the log, or a new one."""
        if len(self.offsets) == self.committed:
            end = reader.latestOffset(start, ReadMaxRows(self.chance.choice([1, 5, 40])))
            self.may_die()
            if end == start:
                return end
            self.offsets.append(end)
        return self.offsets[self.committed]


def run(make: Make, fill: Any, seed: int) -> tuple[Counter[int], int]:
    """How often each job is in the sink of a query that dies while jobs and queues appear, and how many jobs there were."""
    query, enqueued = Query(make, seed), 0
    for _ in range(10):
        count = query.chance.choice([1, 7])
        fill(f"{query.chance.randrange(3)}", count)
        enqueued += count
        with suppress(Died):
            query.start(2)
    query.mortal = False
    query.start(1000)
    return Counter(job for some in query.sink.values() for job in some), enqueued


@pytest.mark.parametrize(
    "seed", [0, pytest.param(1, marks=pytest.mark.rest("another seed")), pytest.param(2, marks=pytest.mark.rest("another seed"))]
)
def test_each_job_is_in_the_sink_once_wherever_the_driver_dies(make: Make, fill: Any, db: QueueDB, name: str, seed: int) -> None:
    found, enqueued = run(make, fill, seed)
    assert len(found) == enqueued
    assert set(found.values()) <= {1}
    assert left(db, name) == 0


@pytest.mark.rest("the control of the test of new queues")
def test_a_reader_that_forgets_new_queues_loses_jobs(make: Make, fill: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative control: a batch leaves out the queues that its start does not have."""
    partitions = QueuesStreamReader.partitions

    def forgets(self: QueuesStreamReader, start: dict[str, Any], end: dict[str, Any]) -> Any:
        known = {queue: position for queue, position in end["queues"].items() if queue in start["queues"]}
        return partitions(self, start, {"queues": known})

    monkeypatch.setattr(QueuesStreamReader, "partitions", forgets)
    found, enqueued = run(make, fill, 0)
    assert len(found) < enqueued
