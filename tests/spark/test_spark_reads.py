"""``spark.read``: jobs in any state, of several queues, a few of them, or counted. No JVM is needed for this."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql.types import StructType

from queue_db import QueueDB
from queue_db.model import StoredResult
from queue_db.spark import queue_names
from queue_db.spark.masked_errors import SparkTaskError
from queue_db.spark.source import QueueDataSource

ALL = "available,scheduled,running,blocked,dead,completed"

#: An hour, in microseconds.
LASTING = 3_600_000_000

Rows = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def source(url: str) -> Callable[..., QueueDataSource]:
    return lambda **options: QueueDataSource({"url": url, **{name: str(value) for name, value in options.items()}})


@pytest.fixture
def read(source: Callable[..., QueueDataSource]) -> Rows:
    """All rows, read by copies of the reader as tasks have them."""

    def rows(schema: StructType | None = None, **options: Any) -> list[dict[str, Any]]:
        one = source(**options)
        reader = one.reader(one.schema() if schema is None else schema)
        parts = pickle.loads(pickle.dumps(reader.partitions()))  # noqa: S301
        assert len(parts) <= options.get("partitions", 8)
        return [row for part in parts for batch in pickle.loads(pickle.dumps(reader)).read(part) for row in batch.to_pylist()]  # noqa: S301

    return rows


@pytest.fixture
def all_states(db: QueueDB, name: str) -> str:
    """A queue with a job in each state, whose payload is the state."""
    queue = db.queue(name)
    for state in ("dead", "completed", "running"):
        queue.enqueue("k", state)
        (job,) = queue.claim(lease=3600)
        if state == "dead":
            job.bury("broken")
        elif state == "completed":
            assert all(queue.complete_many([job], results=[StoredResult('{"sum":3}', LASTING)]))
    queue.enqueue("k", "scheduled", delay=3600)
    queue.enqueue("k", "available", group="g", priority=7)
    queue.enqueue("k", "blocked", group="g")
    return name


@pytest.mark.parametrize("state", ALL.split(","))
def test_a_state_has_its_jobs(read: Rows, all_states: str, state: str) -> None:
    rows = read(queue=all_states, states=state)
    assert [(row["payload"], row["state"]) for row in rows] == [(f'"{state}"', state)]


def test_a_schema_may_ask_for_keys_and_attempts_in_all_states(db: QueueDB, read: Rows, all_states: str) -> None:
    db.queue(all_states).enqueue("k", "keyed", unique_key="u", max_attempts=3)
    schema = StructType().add("payload", "string").add("unique_key", "string").add("group_key", "string")
    rows = read(schema.add("max_attempts", "integer"), queue=all_states, states=ALL)
    found = {row.pop("payload").strip('"'): tuple(row.values()) for row in rows}
    completed = found.pop("completed")
    assert found == {
        "keyed": ("u", None, 3),
        "available": (None, "g", 25),
        "blocked": (None, "g", 25),
        **dict.fromkeys(("dead", "running", "scheduled"), (None, None, 25)),
    }
    assert completed[:2] == (None, None)


def test_all_states_together_and_the_live_ones_by_default(read: Rows, all_states: str) -> None:
    found = {row["payload"].strip('"'): row for row in read(queue=all_states, states=ALL)}
    assert set(found) == set(ALL.split(",")) == {row["state"] for row in found.values()}
    assert len(read(queue=all_states)) == 4
    dead, completed, available = found["dead"], found["completed"], found["available"]
    assert (dead["last_error"], dead["result"], dead["ended_at"] is None) == ("broken", None, False)
    assert (completed["result"], completed["priority"], completed["fence"]) == ('{"sum":3}', None, None)
    assert (available["ended_at"], available["priority"], available["queue"]) == (None, 7, all_states)


def test_the_column_alone(read: Rows, all_states: str) -> None:
    schema = StructType().add("state", "string").add("payload", "string")
    rows = read(schema, queue=all_states)
    assert {row["payload"].strip('"') for row in rows} == {row["state"] for row in rows} == set(ALL.split(",")[:4])


def test_what_a_stream_holds_is_in_no_state(source: Any, read: Rows, db: QueueDB, name: str) -> None:
    db.queue(name).enqueue("k", 1, unique_key="x")
    one = source(queue=name, stream=name)
    reader = one.streamReader(one.schema())
    reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
    assert read(queue=name, states=ALL) == []


def test_a_job_whose_lease_is_over_is_available(read: Rows, db: QueueDB, name: str) -> None:
    db.queue(name).enqueue("k", 1)
    db.queue(name).claim(lease=0.000001)
    assert [row["state"] for row in read(queue=name, states="available,running")] == ["available"]


def test_a_filter_holds_in_all_places(read: Rows, all_states: str) -> None:
    assert [row["payload"] for row in read(queue=all_states, states=ALL, filter="priority > 3")] == ['"available"']
    assert {row["state"] for row in read(queue=all_states, states=ALL, filter="attempts = 1")} == {"dead", "completed", "running"}


class TestSeveralQueues:
    @pytest.fixture
    def queues(self, db: QueueDB, name: str) -> str:
        """Two queues of a pattern and two that are not of it."""
        for queue, count in ((f"{name}.a", 3), (f"{name}.b", 1200), (f"{name}-c", 1), (f"x{name}.d", 1)):
            db.queue(queue).enqueue_many(("k", number) for number in range(count))
        return name

    def test_a_pattern(self, read: Rows, queues: str) -> None:
        found = Counter(row["queue"] for row in read(queues=f"{queues}.*"))
        assert found == {f"{queues}.a": 3, f"{queues}.b": 1200}

    def test_names(self, read: Rows, queues: str) -> None:
        found = Counter(row["queue"] for row in read(queues=f"{queues}.a, {queues}-c,{queues}-none", partitions=1))
        assert found == {f"{queues}.a": 3, f"{queues}-c": 1}

    def test_a_queue_with_completed_jobs_alone(self, read: Rows, db: QueueDB, name: str) -> None:
        db.queue(f"{name}.a").enqueue("k", 1)
        assert all(db.queue(f"{name}.a").complete_many(db.queue(f"{name}.a").claim(), results=[StoredResult("1", LASTING)]))
        assert read(queues=f"{name}.*") == []
        assert [row["state"] for row in read(queues=f"{name}.*", states="completed")] == ["completed"]

    def test_too_many(self, read: Rows, queues: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(queue_names, "MOST_QUEUES", 1)
        with pytest.raises(SparkTaskError, match="matches 2 queues, such as .*; 1 is the limit"):
            read(queues=f"{queues}.*")


class TestLimit:
    @pytest.mark.parametrize("limit", [1, 3, 7, 8, 9, 1203, 2000])
    def test_so_many_rows_and_one_task(self, source: Any, read: Rows, db: QueueDB, name: str, limit: int) -> None:
        for queue, count in ((f"{name}.a", 3), (f"{name}.b", 1200)):
            db.queue(queue).enqueue_many(("k", number) for number in range(count))
        rows = read(queues=f"{name}.*", limit=limit)
        assert len({row["id"] for row in rows}) == len(rows) == min(limit, 1203)
        one = source(queues=f"{name}.*", limit=limit)
        assert len(one.reader(one.schema()).partitions()) == 1

    def test_no_more_is_read_than_needed(self, source: Any, db: QueueDB, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        db.queue(name).enqueue_many(("k", number) for number in range(1000))
        one = source(queue=name, limit=10)
        reader = one.reader(one.schema())
        batch, sizes = reader._shape.batch, []
        monkeypatch.setattr(reader._shape, "batch", lambda rows, same: sizes.append(made := batch(rows, same)) or made)
        (part,) = reader.partitions()
        assert sum(found.num_rows for found in reader.read(part)) == 10
        assert sum(found.num_rows for found, _ in sizes) <= 18

    def test_with_a_filter_it_counts_what_is_left(self, read: Rows, db: QueueDB, name: str) -> None:
        db.queue(name).enqueue_many(("k", number, {"priority": number % 2}) for number in range(100))
        assert [int(row["payload"]) for row in read(queue=name, filter="priority = 1", limit=5)] == [1, 3, 5, 7, 9]


class TestCounts:
    def test_by_state(self, read: Rows, all_states: str) -> None:
        found = {row["state"]: row["jobs"] for row in read(queue=all_states, countBy="state", states=ALL)}
        assert found == dict.fromkeys(ALL.split(","), 1)
        assert len(read(queue=all_states, countBy="state")) == 4

    def test_by_columns_of_several_queues_as_the_rows_say(self, read: Rows, db: QueueDB, name: str) -> None:
        for number in range(40):
            db.queue(f"{name}.{number % 3}").enqueue(f"k{number % 2}", number, priority=number % 5)
        rows = read(queues=f"{name}.*")
        counts = read(queues=f"{name}.*", countBy="kind,queue,priority")
        of = ("queue", "kind", "priority")
        assert {tuple(row[name] for name in of): row["jobs"] for row in counts} == Counter(
            tuple(row[name] for name in of) for row in rows
        )
        (some,) = read(queues=f"{name}.*", countBy="kind", filter="kind = 'k1' AND priority < 2")
        assert some == {"kind": "k1", "jobs": sum(row["kind"] == "k1" and row["priority"] < 2 for row in rows)}

    def test_places_with_one_value_are_added(self, read: Rows, all_states: str) -> None:
        assert read(queue=all_states, countBy="kind", states=ALL) == [{"kind": "k", "jobs": 6}]

    def test_nothing(self, read: Rows, name: str) -> None:
        assert read(queue=name, countBy="queue,priority") == []
        assert read(queues=f"{name}*", countBy="queue") == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"states": "due"}, "must be available, scheduled, running, blocked, dead or completed"),
        ({"limit": "0"}, "limit=0: must be 1"),
        ({"countBy": "payload"}, "must be queue, state, kind or priority"),
        ({"countBy": "kind", "limit": "3"}, "leave out limit"),
        ({"queues": "a,b"}, "there are both 'queue' and 'queues'"),
    ],
)
def test_bad_options(read: Rows, name: str, options: dict[str, str], message: str) -> None:
    with pytest.raises(SparkTaskError, match=message):
        read(queue=name, **options)


def test_no_queue(read: Rows) -> None:
    with pytest.raises(SparkTaskError, match="option 'queue' is missing: .*; 'queues' for several, or 'feed' for a feed"):
        read()
