"""The steps of reading and writing a feed, called in the order in which Spark calls them, but without a Spark. No JVM is needed."""

from __future__ import annotations

import json
import logging
import pickle
from collections.abc import Callable
from datetime import timedelta, timezone
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.types import StructType
from sqlalchemy import delete, func, select

from queue_db import QueueDB
from queue_db.feeds.store import rows
from queue_db.feeds.tables import feed_tables
from queue_db.spark import feed_reader, feed_stream_reader
from queue_db.spark.feeds.store import ranges
from queue_db.spark.masked_errors import SparkTaskError
from queue_db.spark.rows import MESSAGES
from queue_db.spark.source import QueueDataSource
from queue_db.spark.tables import spark_tables
from queue_db.spark.writer import Staged
from queue_db.testing import SettableClock

Make = Callable[..., Any]


@pytest.fixture(autouse=True)
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long the reader has slept; it does not."""
    found: list[float] = []
    time = SimpleNamespace(sleep=found.append, monotonic=lambda: 1000.0)
    monkeypatch.setattr(feed_stream_reader, "time", time)
    return found


@pytest.fixture
def stream(url: str, name: str) -> Make:
    """A reader of a stream of the feed."""

    def make(schema: StructType = MESSAGES, **options: str) -> Any:
        return QueueDataSource({"url": url, "feed": name, **options}).streamReader(schema)

    return make


@pytest.fixture
def read(url: str, name: str) -> Make:
    """The rows of a batch read."""

    def rows(schema: StructType = MESSAGES, **options: str) -> list[dict[str, Any]]:
        reader = QueueDataSource({"url": url, "feed": name, **options}).reader(schema)
        return rows_of(reader, reader.partitions())

    return rows


@pytest.fixture
def publish(db: QueueDB, name: str) -> Callable[..., None]:
    """Publish this many messages, whose payloads are their numbers."""

    def messages(count: int, kind: str = "k") -> None:
        first = len(db.feed(name).read(limit=10_000).messages)
        db.feed(name).publish_many((kind, number) for number in range(first + 1, first + count + 1))
        db.feed(name).rank()

    return messages


@pytest.fixture
def trim(db: QueueDB, name: str) -> Callable[[int], None]:
    """Trim the feed, so that this many messages are left."""

    def keep(left: int) -> None:
        db.feeds.set(name, keep_rows=left, keep_unread=0)
        db.feed(name).trim()
        db.feeds.set(name, keep_rows=0)

    return keep


def rows_of(reader: Any, parts: list[Any]) -> list[dict[str, Any]]:
    """All rows, read by copies as tasks have them."""
    return [row for part in parts for batch in pickle.loads(pickle.dumps(reader)).read(part) for row in batch.to_pylist()]  # noqa: S301


def numbers(rows: list[dict[str, Any]]) -> list[int]:
    return [int(row["payload"]) for row in rows]


def batch(reader: Any, start: dict[str, Any], end: dict[str, Any]) -> list[int]:
    return numbers(rows_of(reader, reader.partitions(start, end)))


class TestStream:
    def test_a_batch_is_what_lies_between_two_positions(self, stream: Make, publish: Make, db: QueueDB, name: str) -> None:
        publish(10)
        reader = stream(maxMessagesPerTrigger="4")
        start, found = reader.initialOffset(), []
        for _ in range(3):
            end = reader.latestOffset(start, reader.getDefaultReadLimit())
            found.append(batch(reader, start, end))
            reader.commit(end)
            start = end
        assert found == [[1, 2, 3, 4], [5, 6, 7, 8], [9, 10]]
        assert start == {"position": db.feed(name).end()}
        assert db.feed(name).cursors() == []

    def test_a_replay_after_a_restart_is_the_same_batch(self, stream: Make, publish: Make) -> None:
        publish(3)
        reader = stream()
        start = reader.initialOffset()
        end = reader.latestOffset(start, ReadAllAvailable())
        first = rows_of(reader, reader.partitions(start, end))
        publish(3)
        again = stream()
        assert rows_of(again, again.partitions(start, end)) == first
        assert batch(again, end, again.latestOffset(end, ReadAllAvailable())) == [4, 5, 6]

    def test_any_number_of_queries(self, stream: Make, publish: Make) -> None:
        publish(5)
        readers = [stream() for _ in range(3)]
        starts = [reader.initialOffset() for reader in readers]
        ends = [reader.latestOffset(start, ReadMaxRows(4)) for reader, start in zip(readers, starts, strict=True)]
        for reader, start, end in zip(readers, starts, ends, strict=True):
            assert batch(reader, start, end) == [1, 2, 3, 4]
            reader.commit(end)

    def test_messages_without_a_number_get_one(self, stream: Make, db: QueueDB, name: str) -> None:
        reader = stream()
        start = reader.initialOffset()
        with db.database.begin() as connection:
            db.feed(name).publish_many([("k", 1), ("k", 2)], using=connection)
        assert batch(reader, start, reader.latestOffset(start, ReadAllAvailable())) == [1, 2]

    def test_a_query_starts_before_the_first_publish(self, stream: Make, publish: Make, slept: list[float]) -> None:
        reader = stream()
        start = reader.initialOffset()
        assert reader.latestOffset(start, ReadAllAvailable()) == start
        assert len(slept) == 1
        publish(1)
        assert batch(reader, start, reader.latestOffset(start, ReadAllAvailable())) == [1]
        assert len(slept) == 1

    def test_available_now_ends_at_what_was_there(self, stream: Make, publish: Make, slept: list[float]) -> None:
        publish(3)
        reader = stream(maxMessagesPerTrigger="2")
        reader.prepareForTriggerAvailableNow()
        start = reader.initialOffset()
        publish(3)
        middle = reader.latestOffset(start, ReadMaxRows(2))
        end = reader.latestOffset(middle, ReadMaxRows(2))
        assert [batch(reader, start, middle), batch(reader, middle, end)] == [[1, 2], [3]]
        assert reader.latestOffset(end, ReadMaxRows(2)) == end
        assert slept == []

    def test_available_now_without_a_feed_reads_nothing(self, stream: Make, publish: Make) -> None:
        reader = stream()
        reader.prepareForTriggerAvailableNow()
        publish(3)
        start = reader.initialOffset()
        assert reader.latestOffset(start, ReadAllAvailable()) == start

    @pytest.mark.parametrize(("starting", "found"), [("Earliest", [1, 2, 3]), ("latest", [3]), (None, [2, 3])])
    def test_where_it_begins(
        self, stream: Make, publish: Make, db: QueueDB, name: str, starting: str | None, found: list[int]
    ) -> None:
        publish(2)
        reader = stream(startingPosition=starting or db.feed(name).read(limit=1).position)
        start = reader.initialOffset()
        publish(1)
        assert batch(reader, start, reader.latestOffset(start, ReadAllAvailable())) == found

    @pytest.mark.parametrize("ordering", ["counter", "ranked"])
    def test_it_begins_at_a_time(
        self, stream: Make, read: Make, open_db: Callable[..., QueueDB], clock: SettableClock, name: str, ordering: str
    ) -> None:
        db, times = open_db(clock=clock), []
        db.feeds.set(name, ordering=ordering)
        for first in (1, 3, 5):
            clock.advance(60)
            times.append(clock.now())
            db.feed(name).publish_many([("k", first), ("k", first + 1)])
        for at, found in (
            (times[0] - timedelta(hours=1), [1, 2, 3, 4, 5, 6]),
            (times[1], [3, 4, 5, 6]),
            (times[1] + timedelta(microseconds=1), [5, 6]),
        ):
            assert numbers(read(startingTimestamp=at.isoformat())) == found
        reader = stream(startingTimestamp=times[2].astimezone(timezone(timedelta(hours=-3))).isoformat())
        start = reader.initialOffset()
        assert batch(reader, start, reader.latestOffset(start, ReadAllAvailable())) == [5, 6]
        never = stream(startingTimestamp="9000-01-01T00:00:00Z")
        assert never.initialOffset() == stream(startingPosition="latest").initialOffset()

    def test_latest_is_the_same_when_spark_asks_twice(self, stream: Make, publish: Make) -> None:
        publish(2)
        reader = stream(startingPosition="latest")
        start = reader.initialOffset()
        publish(1)
        assert reader.initialOffset() == start
        assert batch(reader, start, reader.latestOffset(start, ReadAllAvailable())) == [3]

    def test_the_report_is_how_far_the_query_is_behind(self, stream: Make, publish: Make, db: QueueDB, name: str) -> None:
        publish(5)
        reader = stream()
        start = reader.initialOffset()
        assert reader.reportLatestOffset() is None
        end = reader.latestOffset(start, ReadMaxRows(3))
        report = reader.reportLatestOffset()
        assert report.pop("oldestSeconds") >= 0
        assert report == {"position": db.feed(name).end(), "behind": 2}
        reader.latestOffset(end, ReadAllAvailable())
        assert reader.reportLatestOffset() == {"position": db.feed(name).end(), "behind": 0, "oldestSeconds": 0.0}

    def test_kinds_are_chosen_and_the_limit_counts_all(self, stream: Make, publish: Make) -> None:
        for kind in ("paid", "shipped", "odd one", "paid"):
            publish(1, kind)
        reader = stream(kinds="paid, odd one", maxMessagesPerTrigger="3")
        start = reader.initialOffset()
        middle = reader.latestOffset(start, reader.getDefaultReadLimit())
        end = reader.latestOffset(middle, reader.getDefaultReadLimit())
        assert [batch(reader, start, middle), batch(reader, middle, end)] == [[1, 3], [4]]

    def test_partitions_are_about_equal_and_read_page_by_page(
        self, stream: Make, publish: Make, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(feed_reader, "_WORTH", 5)
        monkeypatch.setattr(feed_reader, "fitting", lambda rows, count: 3)
        publish(23)
        reader = stream(partitions="2")
        start = reader.initialOffset()
        parts = reader.partitions(start, reader.latestOffset(start, ReadAllAvailable()))
        assert [tuple(part.part) for part in parts] == [(1, 11), (12, 23)]
        assert [[rows.num_rows for rows in reader.read(part)] for part in parts] == [[8, 3], [8, 3, 1]]
        assert numbers(rows_of(reader, parts)) == list(range(1, 24))
        few = stream(partitions="8")
        assert len(few.partitions(start, few.latestOffset(start, ReadAllAvailable()))) == 4

    def test_a_batch_without_partitions_is_read_as_nothing(self, stream: Make) -> None:
        assert list(stream().read(None)) == []

    @pytest.mark.parametrize("offset", [{}, {"position": 5}, {"position": "first"}, {"batch": 1, "claim": "c"}])
    def test_offsets_of_something_else_are_refused(self, stream: Make, publish: Make, offset: dict[str, Any]) -> None:
        publish(1)
        with pytest.raises(SparkTaskError, match=r"is not a position of a feed: .* needs a new checkpoint"):
            stream().latestOffset(offset, ReadAllAvailable())


class TestCheckpointsThatDoNotFit:
    @pytest.fixture
    def begun(self, stream: Make, publish: Make) -> tuple[Any, dict[str, Any], dict[str, Any]]:
        """A reader, and a batch of three messages that it has begun."""
        publish(3)
        reader = stream(failOnDataLoss="false")
        start = reader.initialOffset()
        return reader, start, reader.latestOffset(start, ReadAllAvailable())

    def test_a_purge(self, begun: Any, db: QueueDB, name: str) -> None:
        reader, start, end = begun
        parts = reader.partitions(start, end)
        db.feeds.purge(name)
        for step in (
            lambda: reader.latestOffset(end, ReadAllAvailable()),
            lambda: reader.partitions(start, end),
            lambda: rows_of(reader, parts),
        ):
            with pytest.raises(SparkTaskError, match=r"is of epoch 1, feed .* is at 2: it was purged"):
                step()

    def test_a_feed_that_was_deleted(self, begun: Any, db: QueueDB, name: str) -> None:
        reader, start, end = begun
        parts = reader.partitions(start, end)
        db.feeds.delete(name)
        with pytest.raises(SparkTaskError, match="NoSuchFeedError.*was deleted while it was read"):
            rows_of(reader, parts)
        with pytest.raises(SparkTaskError, match="there is no feed"):
            reader.latestOffset(end, ReadAllAvailable())
        assert name not in [feed.name for feed in db.feeds.list()]

    def test_a_feed_of_the_same_name(self, begun: Any, db: QueueDB, name: str) -> None:
        reader, _, end = begun
        db.feeds.delete(name)
        db.feed(name).publish("k", 1)
        with pytest.raises(SparkTaskError, match=r"is of another feed or another database.* needs a new checkpoint"):
            reader.latestOffset(end, ReadAllAvailable())

    def test_a_restored_database(self, begun: Any, db: QueueDB, name: str) -> None:
        reader, _, end = begun
        ahead = {"position": end["position"].rpartition(".")[0] + ".9"}
        with pytest.raises(SparkTaskError, match=r"is ahead of feed .* needs a new checkpoint"):
            reader.latestOffset(ahead, ReadAllAvailable())

    def test_rows_that_were_deleted_by_hand(self, begun: Any, db: QueueDB, name: str) -> None:
        reader, start, end = begun
        messages = feed_tables(db.store.tables).messages
        with db.database.begin() as connection:
            feed = reader.partitions(start, end)[0].feed
            connection.execute(messages.delete().where(messages.c.feed == feed, messages.c.seq == 2))
        with pytest.raises(SparkTaskError, match="2 of 3 messages were found with the numbers 1 to 3"):
            batch(reader, start, end)


class TestTrimmed:
    """Messages that were trimmed below the checkpoint, before the tasks ran, or while they read."""

    def test_below_the_checkpoint_it_is_an_error_that_names_them(self, stream: Make, publish: Make, trim: Make) -> None:
        publish(10)
        reader = stream()
        start = reader.initialOffset()
        trim(4)
        end = reader.latestOffset(start, ReadAllAvailable())
        with pytest.raises(SparkTaskError, match=r"messages 1 to 6 of feed .*, 6 of them, were trimmed .* failOnDataLoss is true"):
            reader.partitions(start, end)

    def test_or_a_warning_with_their_number(
        self, stream: Make, publish: Make, trim: Make, caplog: pytest.LogCaptureFixture
    ) -> None:
        publish(10)
        start = stream().initialOffset()
        trim(4)
        reader = stream(failOnDataLoss="false", maxMessagesPerTrigger="3")
        middle = reader.latestOffset(start, reader.getDefaultReadLimit())
        end = reader.latestOffset(middle, reader.getDefaultReadLimit())
        with caplog.at_level(logging.WARNING, "queue_db.spark"):
            assert [batch(reader, start, middle), batch(reader, middle, end)] == [[7, 8, 9], [10]]
        (warning,) = caplog.messages
        assert "messages 1 to 6 of feed" in warning
        assert "6 of them, were trimmed" in warning

    def test_a_batch_of_which_nothing_is_left(
        self, stream: Make, publish: Make, trim: Make, caplog: pytest.LogCaptureFixture
    ) -> None:
        publish(3)
        reader = stream(failOnDataLoss="false")
        start = reader.initialOffset()
        end = reader.latestOffset(start, ReadAllAvailable())
        publish(1)
        trim(1)
        assert reader.partitions(start, end) == []
        assert "messages 1 to 3 of feed" in caplog.text

    @pytest.mark.parametrize("kinds", [{}, {"kinds": "k"}])
    def test_between_planning_and_reading(
        self, stream: Make, publish: Make, trim: Make, kinds: dict[str, str], caplog: pytest.LogCaptureFixture
    ) -> None:
        publish(10)
        strict, lax = stream(**kinds), stream(failOnDataLoss="false", **kinds)
        start = strict.initialOffset()
        end = strict.latestOffset(start, ReadAllAvailable())
        parts = strict.partitions(start, end)
        trim(7)
        with pytest.raises(SparkTaskError, match="messages 1 to 3 of feed"):
            rows_of(strict, parts)
        assert numbers(rows_of(lax, parts)) == [4, 5, 6, 7, 8, 9, 10]
        assert "messages 1 to 3 of feed" in caplog.text

    @pytest.mark.parametrize("left", [1, 6])
    def test_between_two_pages(
        self, stream: Make, publish: Make, trim: Make, left: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Eight are read, then some or all of these and maybe more are trimmed."""
        monkeypatch.setattr(feed_reader, "fitting", lambda rows, count: 4)
        publish(12)
        reader = stream(failOnDataLoss="false")
        start = reader.initialOffset()
        (part,) = reader.partitions(start, reader.latestOffset(start, ReadAllAvailable()))
        found = []
        for read in reader.read(part):
            found += numbers(read.to_pylist())
            if found[-1] == 8:
                trim(left)
        assert found == [1, 2, 3, 4, 5, 6, 7, 8, *range(9 if left == 6 else 12, 13)]
        assert ("messages 9 to 11 of feed" in caplog.text) is (left == 1)
        assert ("were trimmed" in caplog.text) is (left == 1)

    def test_right_after_they_were_read(self, stream: Make, publish: Make, trim: Make, monkeypatch: pytest.MonkeyPatch) -> None:
        """Between the statement that reads messages and the one that reads the feed's row."""
        publish(10)
        reader = stream()
        start = reader.initialOffset()
        (part,) = reader.partitions(start, reader.latestOffset(start, ReadAllAvailable()))
        by_id, trims = rows.by_id, [4]

        def late(*arguments: Any) -> Any:
            if trims:
                trim(trims.pop())
            return by_id(*arguments)

        monkeypatch.setattr(ranges.rows, "by_id", late)
        assert numbers([row for batch in reader.read(part) for row in batch.to_pylist()]) == list(range(1, 11))


class TestCursor:
    def test_it_follows_the_query(self, stream: Make, publish: Make, db: QueueDB, name: str) -> None:
        publish(10)
        reader = stream(cursor="etl")
        start, behind = reader.initialOffset(), []
        behind.append(cursor_of(db, name).behind)
        for _ in range(2):
            end = reader.latestOffset(start, ReadMaxRows(4))
            behind.append(cursor_of(db, name).behind)
            reader.commit(end)
            behind.append(cursor_of(db, name).behind)
            start = end
        assert behind == [10, 10, 6, 6, 2]
        assert cursor_of(db, name).holder

    def test_it_moves_without_a_commit_when_the_next_batch_is_asked_for(
        self, stream: Make, publish: Make, db: QueueDB, name: str
    ) -> None:
        publish(3)
        reader = stream(cursor="etl")
        end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
        reader.latestOffset(end, ReadAllAvailable())
        assert cursor_of(db, name).behind == 0

    def test_retention_waits_for_it(self, stream: Make, publish: Make, db: QueueDB, name: str) -> None:
        publish(10)
        reader = stream(cursor="etl")
        start = reader.initialOffset()
        db.feeds.set(name, keep_rows=2, keep_unread=100)
        assert db.feed(name).trim() == 0
        end = reader.latestOffset(start, ReadMaxRows(4))
        assert batch(reader, start, end) == [1, 2, 3, 4]
        reader.commit(end)
        assert db.feed(name).trim() == 4

    def test_the_next_reader_takes_it_over_at_its_checkpoint(self, stream: Make, publish: Make, db: QueueDB, name: str) -> None:
        publish(10)
        reader, again = stream(cursor="etl"), stream(cursor="etl")
        start = reader.initialOffset()
        middle = reader.latestOffset(start, ReadMaxRows(4))
        end = reader.latestOffset(middle, ReadMaxRows(4))
        reader.commit(end)
        again.partitions(middle, end)  # the batch that its checkpoint has and has not committed
        assert cursor_of(db, name).behind == 6
        with pytest.raises(SparkTaskError, match=r"LeaseLostError: cursor 'etl' of feed .* Give each query a cursor of its own"):
            reader.commit({"position": db.feed(name).end()})
        again.commit(end)
        assert cursor_of(db, name).behind == 2

    def test_a_shared_cursor_is_refused_and_left_as_it_is(self, stream: Make, publish: Make, db: QueueDB, name: str) -> None:
        publish(3)
        shared = db.feed(name).shared("etl")
        span = shared.claim(2)
        with pytest.raises(SparkTaskError, match="cursor 'etl' is shared by consumers"):
            stream(cursor="etl", startingPosition="latest").initialOffset()
        assert span.complete()
        assert cursor_of(db, name).behind == 1

    def test_an_idle_query_extends_its_hold(
        self, stream: Make, publish: Make, db: QueueDB, name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        publish(1)
        reader = stream(cursor="etl")
        end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
        seen = []
        for now in (1000.0, 1099.0, 1101.0, 1102.0):
            monkeypatch.setattr(feed_stream_reader.time, "monotonic", lambda now=now: now)
            before = cursor_of(db, name).seen_at
            reader.latestOffset(end, ReadAllAvailable())
            seen.append(cursor_of(db, name).seen_at > before)
        assert seen == [True, False, True, False]


def cursor_of(db: QueueDB, name: str) -> Any:
    (found,) = db.feed(name).cursors()
    return found


class TestBatch:
    def test_columns(self, read: Make, db: QueueDB, name: str) -> None:
        feed = db.feed(name)
        feed.publish_many([("paid", {"n": 1}, {"key": "order-7", "headers": {"a": 1}}), ("none", None)], client="shop")
        first, second = feed.read().messages
        rows = read()
        assert [list(row) for row in rows] == [MESSAGES.names] * 2
        assert rows[0] | {"payload": json.loads(rows[0]["payload"]), "headers": json.loads(rows[0]["headers"])} == {
            "position": first.position,
            "seq": 1,
            "feed": name,
            "kind": "paid",
            "payload": {"n": 1},
            "headers": {"a": 1},
            "key": "order-7",
            "client": "shop",
            "published_at": first.published_at,
        }
        assert (rows[1]["payload"], rows[1]["headers"], rows[1]["key"], rows[1]["seq"]) == ("null", None, None, second.seq)

    def test_some_columns(self, read: Make, publish: Make, db: QueueDB, name: str) -> None:
        publish(1)
        schema = StructType().add("payload", "string").add("position", "string")
        assert read(schema) == [{"payload": "1", "position": db.feed(name).end()}]

    def test_from_one_position_to_another(self, read: Make, publish: Make, db: QueueDB, name: str) -> None:
        publish(9)
        two, six = (db.feed(name).read(limit=limit).position for limit in (2, 6))
        assert numbers(read(startingPosition=two, endingPosition=six)) == [3, 4, 5, 6]
        assert numbers(read(endingPosition=two)) == [1, 2]
        assert numbers(read(startingPosition=six)) == [7, 8, 9]
        assert read(startingPosition=six, endingPosition=six) == []
        with pytest.raises(SparkTaskError, match=r"endingPosition=.* is before startingPosition="):
            read(startingPosition=six, endingPosition=two)

    def test_what_consumers_have_deleted_is_left_out(self, read: Make, stream: Make, db: QueueDB, name: str) -> None:
        db.feeds.set(name, claims=True)
        feed = db.feed(name)
        feed.publish_many([("k", number) for number in range(1, 7)])
        feed.rank()
        reader = stream()
        start = reader.initialOffset()
        claim = feed.claim(4)
        assert claim is not None
        claim.delete(claim.messages[1:3])
        assert numbers(read()) == [1, 4, 5, 6]
        assert batch(reader, start, reader.latestOffset(start, ReadAllAvailable())) == [1, 4, 5, 6]
        feed.delete(feed.read().messages[2:])
        assert numbers(read()) == [1, 4]

    def test_rows_that_were_deleted_by_hand_are_missed(self, read: Make, publish: Make, db: QueueDB) -> None:
        publish(3)
        messages = feed_tables(db.store.tables).messages
        with db.database.begin() as connection:
            connection.execute(delete(messages).where(messages.c.seq == 2))
        with pytest.raises(SparkTaskError, match="deleted by hand"):
            read()

    def test_from_a_trimmed_position(self, read: Make, publish: Make, trim: Make, db: QueueDB, name: str) -> None:
        publish(9)
        two = db.feed(name).read(limit=2).position
        trim(4)
        assert numbers(read()) == [6, 7, 8, 9]
        with pytest.raises(SparkTaskError, match="messages 3 to 5 of feed"):
            read(startingPosition=two)
        assert numbers(read(startingPosition=two, failOnDataLoss="false")) == [6, 7, 8, 9]

    def test_an_empty_feed_and_none(self, read: Make, db: QueueDB, name: str) -> None:
        with pytest.raises(SparkTaskError, match="there is no feed"):
            read()
        assert db.feeds.list() == [] or name not in [feed.name for feed in db.feeds.list()]
        db.feeds.set(name)
        assert read() == []


SCHEMA = StructType().add("payload", "string")
ALL_COLUMNS = (
    StructType()
    .add("key", "string")
    .add("payload", "string")
    .add("kind", "string")
    .add("headers", "string")
    .add("client", "string")
)


@pytest.fixture(params=["counter", "ranked"])
def ordering(request: pytest.FixtureRequest, db: QueueDB, name: str) -> str:
    """The feed has this ordering."""
    db.feeds.set(name, ordering=request.param)
    return request.param


@pytest.fixture
def writer(url: str, name: str) -> Make:
    def make(schema: StructType = SCHEMA, **options: str) -> Any:
        return QueueDataSource({"url": url, "feed": name, **options}).writer(schema, overwrite=False)

    return make


@pytest.fixture
def stream_writer(url: str, name: str) -> Make:
    return lambda **options: QueueDataSource({"url": url, "feed": name, **options}).streamWriter(SCHEMA, overwrite=False)


@pytest.fixture
def published(db: QueueDB, name: str) -> Callable[[], list[Any]]:
    """The payloads of the feed in its order."""
    return lambda: [message.payload for message in db.feed(name).read(limit=10_000).messages]


def some(*payloads: Any) -> Any:
    return iter([pa.RecordBatch.from_pydict({"payload": [json.dumps(payload) for payload in payloads]})])


def much(letter: str) -> list[str]:
    """So many payloads that they are staged and do not travel in the message."""
    return [f"{letter}{number:0>2000}" for number in range(100)]


def count(db: QueueDB, table: str, *where: Callable[[Any], Any]) -> int:
    one = getattr(spark_tables(db.store.tables), table)
    with db.database.engine.connect() as connection:
        return connection.execute(select(func.count()).select_from(one).where(*(make(one.c) for make in where))).scalar_one()


class TestSink:
    def test_rows_are_messages_after_the_commit_in_the_order_of_the_partitions(
        self, writer: Make, published: Make, db: QueueDB, ordering: str
    ) -> None:
        one = writer()
        messages = [one.write(some(*part)) for part in ([1, 2], much("a"), [3], [], [4], much("b"))]
        assert [(message.chunks, message.brought is not None) for message in messages] == [
            (0, True),
            (1, False),
            (0, True),
            (0, False),
            (0, True),
            (1, False),
        ]
        assert published() == []
        one.commit(messages)
        assert published() == [1, 2, *much("a"), 3, 4, *much("b")]
        assert count(db, "staged", lambda c: c.attempt.in_([message.attempt for message in messages])) == 0

    def test_what_a_message_has(self, writer: Make, db: QueueDB, name: str, ordering: str) -> None:
        columns = {
            "key": ["order-7", None],
            "payload": ['{"n": 1}', "2"],
            "kind": ["paid", None],
            "headers": ['{"a": 1}', None],
            "client": ["shop", None],
        }
        one = writer(ALL_COLUMNS, kind="other")
        one.commit([one.write(iter([pa.RecordBatch.from_pydict(columns)]))])
        found = [
            (message.kind, message.payload, message.key, dict(message.headers), message.client)
            for message in db.feed(name).read().messages
        ]
        assert found == [("paid", {"n": 1}, "order-7", {"a": 1}, "shop"), ("other", 2, None, {}, None)]

    def test_a_load_with_a_name_is_published_once_and_a_queue_of_that_name_is_another(
        self, writer: Make, published: Make, db: QueueDB, url: str, name: str, ordering: str
    ) -> None:
        load = {"txnAppId": name, "txnVersion": "7"}
        one, again = (writer(**load) for _ in range(2))
        first, second = (each.write(some(*much("a"))) for each in (one, again))
        one.commit([first])
        again.commit([second])
        assert published() == much("a")
        assert count(db, "staged", lambda c: c.attempt.in_([first.attempt, second.attempt])) == 0
        later = writer(**load).write(some(*much("a")))
        assert (later.attempt, later.chunks, later.jobs) == (0, 0, 100)
        with pytest.raises(SparkTaskError, match=rf"version 7, was published into feed '{name}' before with 100 messages"):
            writer(**load).commit([one.write(some(1))])
        queue = QueueDataSource({"url": url, "queue": name, **load}).writer(SCHEMA, overwrite=False)
        queue.commit([queue.write(some(1))])
        assert db.queue(name).stats().available == 1
        db.feeds.delete(name)
        anew = writer(**load)
        anew.commit([anew.write(some(5))])
        assert published() == [5]

    def test_an_abort_deletes_the_chunks(self, writer: Make, published: Make, db: QueueDB) -> None:
        one = writer()
        message = one.write(some(*much("a")))
        one.abort([message, None])
        assert count(db, "staged", lambda c: c.attempt == message.attempt) == 0
        with pytest.raises(SparkTaskError, match="0 of 1 staged chunks and 0 of 100 messages were found"):
            one.commit([message])
        assert published() == []

    def test_at_least_once_publishes_at_once(self, writer: Make, published: Make, db: QueueDB, ordering: str) -> None:
        one = writer(guarantee="at_least_once")
        assert [one.write(some(1, 2)), one.write(iter([]))] == [Staged(0, 0, 2), Staged(0, 0, 0)]
        assert published() == [1, 2]
        one.commit([Staged(0, 0, 2), None])
        assert published() == [1, 2]

    def test_each_micro_batch_once(self, stream_writer: Make, published: Make, db: QueueDB, name: str, ordering: str) -> None:
        one = stream_writer()
        for number in (0, 0, 1):
            staged = one.write(some(number, number))
            one.commit([Staged(staged.attempt, staged.chunks, staged.jobs, name, staged.brought)], number)
        assert published() == [0, 0, 1, 1]
        assert count(db, "published", lambda c: c.app == f"query:{name}", lambda c: c.kept == 1) == 2

    def test_the_driver_numbers_and_trims(self, writer: Make, db: QueueDB, name: str) -> None:
        db.feeds.set(name, keep_rows=2)
        one = writer()
        one.commit([one.write(some(1, 2, 3))])
        (info,) = (feed for feed in db.feeds.list() if feed.name == name)
        assert (info.messages, info.waiting) == (2, 0)

    def test_a_write_succeeds_although_the_messages_cannot_be_numbered(
        self, writer: Make, published: Make, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        one = writer()
        message = one.write(some(1))
        with monkeypatch.context() as patch:
            patch.setattr("queue_db.feeds.feed.Feed.rank", lambda feed: 1 / 0)
            one.commit([message])
        assert "messages were published, but not numbered or trimmed" in caplog.text
        assert published() == [1]

    def test_a_bad_row_is_named(self, writer: Make, published: Make) -> None:
        schema = StructType().add("payload", "string").add("key", "string")
        rows = pa.RecordBatch.from_pydict({"payload": ["1", "{"], "key": ["a", "b"]})
        with pytest.raises(SparkTaskError, match=r"row 2 \(key 'b'\): column 'payload' has a string that is not JSON"):
            writer(schema).write(iter([rows]))
        long = pa.RecordBatch.from_pydict({"payload": ["1"], "key": ["a" * 201]})
        with pytest.raises(SparkTaskError, match="key has 201 characters; 200 is the limit"):
            writer(schema).write(iter([long]))

    @pytest.mark.parametrize(
        ("column", "message"),
        [
            ("unique_key", "unknown column 'unique_key'"),
            ("position", "unknown column 'position'"),
            ("priority", "known: payload, kind, headers, key, client"),
        ],
    )
    def test_columns_of_something_else_are_refused(self, writer: Make, column: str, message: str) -> None:
        with pytest.raises(SparkTaskError, match=message):
            writer(StructType().add("payload", "string").add(column, "string"))


@pytest.mark.parametrize(
    ("use", "options", "message"),
    [
        ("reader", {"queue": "q"}, "there are both 'queue' and 'feed': leave one out"),
        ("reader", {"filter": "kind = 'x'"}, "option 'filter' belongs to a queue, and this is a feed: use kinds"),
        ("reader", {"cursor": "c"}, "option 'cursor' belongs to readStream, not to read"),
        ("reader", {"startingPosition": "head"}, "startingPosition='head': must be earliest, latest or a position"),
        ("reader", {"startingTimestamp": "2026-03-01"}, "startingTimestamp='2026-03-01': must be a time with its zone, such as"),
        (
            "streamReader",
            {"startingTimestamp": "2026-03-01T00:00:00Z", "startingPosition": "latest"},
            "there are both startingPosition and startingTimestamp: give one of them",
        ),
        ("reader", {"endingPosition": "earliest"}, "endingPosition='earliest': must be latest or a position"),
        ("reader", {"kinds": "a,,b"}, "kinds is empty"),
        ("reader", {"failOnDataLoss": "maybe"}, "failOnDataLoss='maybe': must be true or false"),
        (
            "streamReader",
            {"stream": "s"},
            "option 'stream' belongs to a queue, and this is a feed: any number of queries read a feed",
        ),
        ("streamReader", {"maxJobsPerTrigger": "5"}, "use maxMessagesPerTrigger"),
        ("streamReader", {"nonsense": "5"}, "unknown option 'nonsense'. Options of readStream of a feed: url, feed"),
    ],
)
def test_options_that_do_not_fit(use: str, options: dict[str, str], message: str) -> None:
    source = QueueDataSource({"url": "sqlite:////tmp/none.db", "feed": "f", **options})
    given = {"overwrite": False} if use == "writer" else {}
    with pytest.raises(SparkTaskError) as refused:
        getattr(source, use)(MESSAGES, **given).initialOffset()  # a stream says it in its first step
    assert message in str(refused.value)


@pytest.mark.parametrize("option", ["startingPosition", "kinds", "maxMessagesPerTrigger", "cursor"])
def test_options_of_feeds_are_refused_for_queues(option: str) -> None:
    source = QueueDataSource({"url": "sqlite:////tmp/none.db", "queue": "q", "stream": "s", option: "1"})
    with pytest.raises(SparkTaskError, match=f"option '{option}' belongs to a feed, and this is a queue"):
        source.streamReader(SCHEMA).initialOffset()


def test_a_feed_cannot_be_overwritten() -> None:
    with pytest.raises(SparkTaskError, match=r"a feed cannot be overwritten, .* db.feeds.purge\(…\) empties a feed"):
        QueueDataSource({"url": "sqlite:////tmp/none.db", "feed": "f"}).writer(SCHEMA, overwrite=True)


def test_a_feed_has_its_columns() -> None:
    assert QueueDataSource({"url": "sqlite:////tmp/none.db", "FEED": "f"}).schema() == MESSAGES
    with pytest.raises(SparkTaskError, match="a feed has no column 'id' of type bigint"):
        QueueDataSource({"url": "sqlite:////tmp/none.db", "feed": "f"}).reader(StructType().add("id", "long"))
