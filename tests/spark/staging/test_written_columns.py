"""What a row says of its job: its queue, its group, and how long its unique key stays taken. No JVM is needed for this."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType
from sqlalchemy import select

from queue_db import QueueDB
from queue_db.spark import writer as writers
from queue_db.spark.masked_errors import SparkTaskError
from queue_db.spark.source import QueueDataSource
from queue_db.spark.staging import store as staging
from queue_db.spark.tables import spark_tables
from queue_db.spark.writer import BatchWriter
from tests.races.interleaving import at_once
from tests.spark.staging.conftest import jobs_of

TYPES = {
    "payload": "string",
    "queue": "string",
    "group_key": "string",
    "unique_key": "string",
    "unique_for": "double",
    "priority": "integer",
}
ARROW = {"string": pa.string(), "double": pa.float64(), "integer": pa.int32()}

Partition = Sequence[dict[str, Any]]
GUARANTEES = pytest.mark.parametrize("guarantee", ["exactly_once", "at_least_once"])


def schema_of(columns: Sequence[str]) -> StructType:
    schema = StructType()
    for name in columns:
        schema.add(name, TYPES[name])
    return schema


@pytest.fixture
def make(url: str) -> Callable[..., BatchWriter]:
    """A writer of these columns."""

    def new(columns: Sequence[str], **options: str) -> BatchWriter:
        source = QueueDataSource({"url": url, **options})
        return source.writer(schema_of(columns), overwrite=False)  # type: ignore[return-value]

    return new


def batches(columns: Sequence[str], rows: Partition) -> Any:
    arrow = pa.schema([(name, ARROW[TYPES[name]]) for name in columns])
    return iter([pa.RecordBatch.from_pylist(list(rows), schema=arrow)] if rows else [])


def write(one: BatchWriter, columns: Sequence[str], *partitions: Partition) -> list[Any]:
    """Tasks write, each with a copy of its own; the driver commits."""
    messages = [pickle.loads(pickle.dumps(one)).write(batches(columns, rows)) for rows in partitions]  # noqa: S301
    one.commit(messages)
    return messages


def payloads(db: QueueDB, queue: str) -> list[str]:
    return [row.payload for row in jobs_of(db, queue)]


def ledger(db: QueueDB, app: str) -> dict[str, tuple[int, int]]:
    """Queue → added and skipped."""
    published = spark_tables(db.store.tables).published
    with db.database.engine.connect() as connection:
        rows = connection.execute(select(published).where(published.c.app == app)).all()
    return {row.queue: (row.size, row.skipped) for row in rows if not row.queue.startswith(" ")}


def in_turn(db: QueueDB, queue: str) -> list[Any]:
    """The payloads in the order in which workers get them, one claim after the other."""
    found = []
    while jobs := db.queue(queue).claim(1000):
        found += [job.payload["n"] if isinstance(job.payload, dict) else job.payload for job in jobs]
        assert all(db.queue(queue).complete_many(jobs))
    return found


class TestQueues:
    COLUMNS = ("payload", "queue")

    def rows(self, name: str) -> list[Partition]:
        first = [{"payload": "1", "queue": f"{name}-a"}, {"payload": "2", "queue": None}]
        return [first, [], [{"payload": "3", "queue": f"{name}-b"}, {"payload": "4", "queue": f"{name}-a"}]]

    @GUARANTEES
    def test_each_row_goes_into_its_queue_and_one_without_into_the_options(
        self, db: QueueDB, make: Any, name: str, guarantee: str
    ) -> None:
        write(make(self.COLUMNS, queue=name, guarantee=guarantee), self.COLUMNS, *self.rows(name))
        found = {queue: payloads(db, queue) for queue in (name, f"{name}-a", f"{name}-b")}
        assert found == {name: ["2"], f"{name}-a": ["1", "4"], f"{name}-b": ["3"]}

    def test_large_partitions_are_staged_and_taken_apart_by_the_database(
        self, db: QueueDB, make: Any, name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(*_: Any) -> int:
            raise AssertionError("it went one by one")

        monkeypatch.setattr(staging, "_one_by_one", refuse)
        rows = [{"payload": f'"{number:0>2000}"', "queue": f"{name}-{number % 3}"} for number in range(300)]
        (message,) = write(make(self.COLUMNS), self.COLUMNS, rows)
        assert (message.chunks > 0, message.queues) == (True, {f"{name}-{number}": 100 for number in range(3)})
        for number in range(3):
            assert len(payloads(db, f"{name}-{number}")) == 100

    def test_all_queues_get_a_named_load_once(self, db: QueueDB, make: Any, name: str) -> None:
        for _ in range(2):
            write(make(self.COLUMNS, queue=name, txnAppId=name, txnVersion="1"), self.COLUMNS, *self.rows(name))
        assert ledger(db, name) == {name: (1, 0), f"{name}-a": (2, 0), f"{name}-b": (1, 0)}
        assert payloads(db, f"{name}-a") == ["1", "4"]

    @pytest.mark.parametrize("queues", ["a", "abc", "bc"], ids=["fewer", "more", "others"])
    def test_the_same_name_into_some_of_the_queues_is_refused(self, db: QueueDB, make: Any, name: str, queues: str) -> None:
        named = {"txnAppId": name, "txnVersion": "1"}
        write(make(self.COLUMNS, **named), self.COLUMNS, [{"payload": "1", "queue": f"{name}-{queue}"} for queue in "ab"])
        again = [{"payload": "2", "queue": f"{name}-{queue}"} for queue in queues]
        with pytest.raises(SparkTaskError, match="and not into the same set of queues: they are not the same load"):
            write(make(self.COLUMNS, **named), self.COLUMNS, again)
        assert [payloads(db, f"{name}-{queue}") for queue in "abc"] == [["1"], ["1"], []]

    def test_the_same_name_into_other_queues_is_another_load(self, db: QueueDB, make: Any, name: str) -> None:
        """As with Delta's fan-out, whose ledger is one for each table."""
        for queues in ("ab", "cd"):
            rows = [{"payload": "1", "queue": f"{name}-{queue}"} for queue in queues]
            write(make(self.COLUMNS, txnAppId=name, txnVersion="1"), self.COLUMNS, rows)
        assert [payloads(db, f"{name}-{queue}") for queue in "abcd"] == [["1"]] * 4

    def test_another_number_of_rows_is_refused(self, db: QueueDB, make: Any, name: str) -> None:
        named = {"txnAppId": name, "txnVersion": "1"}
        write(make(self.COLUMNS, **named), self.COLUMNS, [{"payload": "1", "queue": name}])
        with pytest.raises(SparkTaskError, match=f"published into queue '{name}' before with 1 jobs, and this time it has 2"):
            write(make(self.COLUMNS, **named), self.COLUMNS, [{"payload": "1", "queue": name}] * 2)

    def test_two_publications_at_once(self, url: str, db: QueueDB, make: Any, name: str) -> None:
        for version in range(3):
            rows = [{"payload": "1", "queue": f"{name}-{number}"} for number in range(20)]
            writes = [make(self.COLUMNS, txnAppId=name, txnVersion=str(version)) for _ in range(2)]
            turns = [rows, rows[::-1]]
            messages = [[one.write(batches(self.COLUMNS, some))] for one, some in zip(writes, turns, strict=True)]
            at_once(*(partial(one.commit, sent) for one, sent in zip(writes, messages, strict=True)))
            assert [len(payloads(db, f"{name}-{number}")) for number in range(20)] == [version + 1] * 20

    def test_a_row_without_a_queue_is_named(self, make: Any, name: str) -> None:
        rows = [{"payload": "1", "queue": name}, {"payload": "1", "queue": None}]
        with pytest.raises(SparkTaskError, match=r'row 2: queue is null: give the row a queue, or set option\("queue"'):
            write(make(self.COLUMNS), self.COLUMNS, rows)

    def test_a_bad_name_is_refused_with_its_row(self, make: Any, name: str) -> None:
        rows = [{"payload": "1", "queue": name}, {"payload": "1", "queue": f"{name} "}]
        with pytest.raises(SparkTaskError, match=r"row 2: queue=.* begins or ends with a blank"):
            write(make(self.COLUMNS), self.COLUMNS, rows)

    @pytest.mark.parametrize("split", [False, True], ids=["one partition", "two partitions"])
    def test_too_many_queues_are_a_mistake(
        self, make: Any, db: QueueDB, name: str, monkeypatch: pytest.MonkeyPatch, split: bool
    ) -> None:
        monkeypatch.setattr(writers, "MOST_QUEUES", 3)
        rows = [{"payload": "1", "queue": f"{name}-{number}"} for number in range(4)]
        partitions = [rows[:2], rows[2:]] if split else [rows]
        with pytest.raises(SparkTaskError, match="the rows go into more than 3 queues"):
            write(make(self.COLUMNS), self.COLUMNS, *partitions)
        assert payloads(db, f"{name}-0") == []

    @GUARANTEES
    def test_a_refused_key_is_named_with_its_queue(self, db: QueueDB, make: Any, name: str, guarantee: str) -> None:
        columns = ("payload", "queue", "unique_key")
        db.queue(f"{name}-b").enqueue("k", 0, unique_key="x")
        rows = [{"payload": "1", "queue": f"{name}-{queue}", "unique_key": "x"} for queue in "ab"]
        with pytest.raises(SparkTaskError, match=f"queue '{name}-b', row 2.*: unique_key 'x' is taken by a job in the queue"):
            write(make(columns, onDuplicate="raise", guarantee=guarantee), columns, rows)
        assert [payloads(db, f"{name}-{queue}") for queue in "ab"] == [[], ["0"]]

    def test_skipped_rows_are_counted_for_each_queue(self, db: QueueDB, make: Any, name: str) -> None:
        columns = ("payload", "queue", "unique_key")
        rows = [{"payload": "1", "queue": f"{name}-{queue}", "unique_key": key} for queue, key in ("ax", "ay", "bx", "bx")]
        write(make(columns, txnAppId=name, txnVersion="0"), columns, rows)
        assert ledger(db, name) == {f"{name}-a": (2, 0), f"{name}-b": (1, 1)}
        total = db.core.read("published_in", staging.published_in, name, 0)
        assert total == staging.Published(3, 1)

    def test_a_queue_must_be_named_somewhere(self, make: Any) -> None:
        with pytest.raises(SparkTaskError, match="option 'queue' is missing: .*; or a column 'queue'"):
            make(("payload",))


class TestGroups:
    COLUMNS = ("payload", "group_key")

    @staticmethod
    def partitions() -> list[Partition]:
        """A small partition, a large one, a small one: the jobs of two groups in turn."""
        sizes = [0, 2000, 0]
        return [
            [
                {"payload": f'{{"n": {40 * place + number}, "x": "{"x" * size}"}}', "group_key": f"g{number % 2}"}
                for number in range(40)
            ]
            for place, size in enumerate(sizes)
        ]

    def test_a_group_has_the_order_of_partitions_and_rows(self, db: QueueDB, make: Any, name: str) -> None:
        messages = write(make(self.COLUMNS, queue=name), self.COLUMNS, *self.partitions())
        assert [message.chunks > 0 for message in messages] == [False, True, False]
        # One of each group at a time, and each in its order.
        assert db.queue(name).stats().available == 2
        assert in_turn(db, name) == list(range(120))

    def test_the_order_is_seen(self, db: QueueDB, make: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """The negative control: staged rows first, and then those that travelled in messages."""
        copy = staging._copy
        monkeypatch.setattr(
            staging, "_copy", lambda tx, load, parts: copy(tx, load, sorted(parts, key=lambda part: isinstance(part, bytes)))
        )
        write(make(self.COLUMNS, queue=name), self.COLUMNS, *self.partitions())
        assert in_turn(db, name) != list(range(120))

    def test_without_staging_the_rows_of_a_partition_are_in_order(self, db: QueueDB, make: Any, name: str) -> None:
        one = make(self.COLUMNS, queue=name, guarantee="at_least_once")
        write(one, self.COLUMNS, *self.partitions())
        assert in_turn(db, name) == list(range(120))

    @GUARANTEES
    def test_a_later_write_comes_after_an_earlier_one(self, db: QueueDB, make: Any, name: str, guarantee: str) -> None:
        for number in range(3):
            rows = [{"payload": str(2 * number + place), "group_key": None} for place in range(2)]
            write(make(self.COLUMNS, queue=name, groupKey="g", guarantee=guarantee), self.COLUMNS, rows)
        assert db.queue(name).stats().available == 1
        assert in_turn(db, name) == list(range(6))

    def test_the_option_alone_is_the_group_of_all_rows(self, db: QueueDB, make: Any, name: str) -> None:
        write(make(("payload",), queue=name, groupKey="g"), ("payload",), [{"payload": "0"}, {"payload": "1"}])
        assert {row.group_key for row in jobs_of(db, name)} == {"g"}
        assert in_turn(db, name) == [0, 1]

    def test_groups_of_several_queues(self, db: QueueDB, make: Any, name: str) -> None:
        columns = ("payload", "queue", "group_key")
        rows = [{"payload": str(number), "queue": f"{name}-{number % 2}", "group_key": "g"} for number in range(6)]
        write(make(columns), columns, rows[:3], rows[3:])
        assert [in_turn(db, f"{name}-{number}") for number in range(2)] == [[0, 2, 4], [1, 3, 5]]

    def test_a_bad_group_is_refused_with_its_row(self, make: Any, name: str) -> None:
        with pytest.raises(SparkTaskError, match="row 2: group_key is empty"):
            write(
                make(self.COLUMNS, queue=name),
                self.COLUMNS,
                [{"payload": "1", "group_key": "g"}, {"payload": "1", "group_key": ""}],
            )


class TestUniqueFor:
    COLUMNS = ("payload", "unique_key", "unique_for")

    @GUARANTEES
    def test_a_key_stays_taken_after_its_job_has_left(self, db: QueueDB, make: Any, name: str, guarantee: str) -> None:
        rows = [
            {"payload": "1", "unique_key": "lasting", "unique_for": 3600.0},
            {"payload": "1", "unique_key": "until it leaves", "unique_for": None},
            {"payload": "1", "unique_key": None, "unique_for": None},
        ]
        for _ in range(2):
            write(make(self.COLUMNS, queue=name, guarantee=guarantee), self.COLUMNS, rows)
            assert all(db.queue(name).complete_many(db.queue(name).claim(9)))
        write(make(self.COLUMNS, queue=name, guarantee=guarantee), self.COLUMNS, rows)
        assert sorted(str(row.unique_key) for row in jobs_of(db, name)) == ["None", "until it leaves"]

    def test_a_null_is_the_option_and_a_row_without_a_key_has_none(self, db: QueueDB, make: Any, name: str) -> None:
        columns = ("payload", "unique_key")
        rows = [{"payload": "1", "unique_key": "x"}, {"payload": "1", "unique_key": None}]
        for expected in (2, 1):
            write(make(columns, queue=name, uniqueFor="60"), columns, rows)
            jobs = db.queue(name).claim(9)
            assert len(jobs) == expected
            assert all(db.queue(name).complete_many(jobs))

    @pytest.mark.parametrize(
        ("row", "message"),
        [
            ({"unique_key": None, "unique_for": 1.0}, "row 2: unique_for is the time for which .* unique_key is null"),
            ({"unique_key": "y", "unique_for": 0.0}, "row 2 .*unique_for=0.0: must be more than 0 seconds"),
            ({"unique_key": "y", "unique_for": float("nan")}, "row 2 .*unique_for=nan: must be a finite number"),
        ],
    )
    def test_a_bad_time_is_refused_with_its_row(self, make: Any, name: str, row: dict[str, Any], message: str) -> None:
        with pytest.raises(SparkTaskError, match=message):
            write(
                make(self.COLUMNS, queue=name),
                self.COLUMNS,
                [{"payload": "1", "unique_key": "x", "unique_for": 1.0}, {"payload": "1", **row}],
            )

    @pytest.mark.parametrize(
        ("columns", "options", "message"),
        [
            (("payload", "unique_for"), {}, "add a column 'unique_key'"),
            (("payload",), {"uniqueFor": "60"}, "add a column 'unique_key'"),
            (COLUMNS, {"onDuplicate": "replace"}, "contradict each other"),
            (("payload", "unique_key"), {"onDuplicate": "replace", "uniqueFor": "1"}, "contradict each other"),
            (("payload", "unique_key"), {"uniqueFor": "0"}, "more than 0 seconds"),
            (("payload", "unique_key"), {"uniqueFor": "long"}, "must be a number of seconds"),
        ],
    )
    def test_what_cannot_be_is_refused_before_a_task_runs(
        self, make: Any, name: str, columns: Sequence[str], options: dict[str, str], message: str
    ) -> None:
        with pytest.raises(SparkTaskError, match=message):
            make(columns, queue=name, **options)


@GUARANTEES
def test_a_null_priority_is_the_option(db: QueueDB, make: Any, name: str, guarantee: str) -> None:
    columns = ("payload", "priority")
    rows = [{"payload": "1", "priority": 0}, {"payload": "1", "priority": None}]
    write(make(columns, queue=name, priority="-7", guarantee=guarantee), columns, rows)
    assert [row.priority for row in jobs_of(db, name)] == [0, -7]


def test_a_micro_batch_goes_into_its_queues_once(db: QueueDB, url: str, name: str) -> None:
    columns = ("payload", "queue", "group_key")
    sink = QueueDataSource({"url": url, "queue": name}).streamWriter(schema_of(columns), overwrite=False)
    rows = [{"payload": str(number), "queue": None if number % 2 else f"{name}-a", "group_key": "g"} for number in range(6)]
    for _ in range(2):
        messages = [sink.write(batches(columns, some)) for some in (rows[:3], rows[3:])]
        sink.commit([writers.replace(message, query=name) for message in messages], 7)
    assert (in_turn(db, name), in_turn(db, f"{name}-a")) == ([1, 3, 5], [0, 2, 4])
