"""Jobs with unique keys: the key stays taken while a stream holds the job, and what is put in its place is not the stream's."""

from __future__ import annotations

import pytest

from queue_db import DuplicateJobError, QueueDB, State
from queue_db.spark.dialects import base as spark_base
from queue_db.spark.streams import store as streams
from queue_db.spark.streams.store import Offset
from queue_db.store import settle
from tests.spark.streams.conftest import Reader, enqueue, open_stream, snapshot


def hold(db: QueueDB, name: str) -> tuple[Reader, Offset, int]:
    """A stream that holds a job with the key "a" and two without; where it is, and the job."""
    enqueue(db, name, 1)
    job_id = db.queue(name).enqueue("k", "old", unique_key="a")
    enqueue(db, name, 1)
    reader = open_stream(db, name)
    end = reader.allocate(reader.initial())
    assert job_id is not None
    return reader, end, job_id


@pytest.fixture
def held(db: QueueDB, name: str) -> tuple[Reader, Offset, int]:
    return hold(db, name)


def cancel(db: QueueDB, queue: str, job_id: int) -> None:
    versions = [row.version for row in snapshot(db, queue).jobs if row.id == job_id]
    gone = db.core.write("settle.delete", settle.delete, pairs=[(job_id, *versions)])
    assert gone == {job_id}


def due(db: QueueDB, queue: str) -> list[tuple[int, object]]:
    return [(job.id, job.payload) for job in db.queue(queue).peek()]


def test_the_key_stays_taken_until_the_batch_is_completed(db: QueueDB, name: str, held: tuple[Reader, Offset, int]) -> None:
    reader, end, job_id = held
    queue = db.queue(name)
    with pytest.raises(DuplicateJobError) as caught:
        queue.enqueue("k", "new", unique_key="a")
    assert caught.value.existing_id == job_id
    assert queue.enqueue("k", "new", unique_key="a", on_duplicate="skip") is None
    assert queue.enqueue_many([("k", "new", {"unique_key": "a"})], on_duplicate="skip") == [None]
    stats = queue.stats()
    assert (stats.available, stats.scheduled, stats.running, stats.held) == (0, 0, 0, 3)
    assert queue.claim(10) == []
    reader.complete(end)
    assert snapshot(db, name).places == []
    again = queue.enqueue("k", "new", unique_key="a")
    assert again not in (None, job_id)
    assert due(db, name) == [(again, "new")]


def test_a_job_that_was_replaced_while_held_is_not_completed_with_the_old_one(
    db: QueueDB, name: str, held: tuple[Reader, Offset, int]
) -> None:
    reader, end, job_id = held
    assert db.queue(name).enqueue("k", "new", unique_key="a", on_duplicate="replace") == job_id
    before = due(db, name)
    assert before == [(job_id, "new")]
    reader.complete(end)
    assert due(db, name) == before
    # It is as any other job: the next batch has it, and it goes with that.
    after = reader.allocate(end)
    assert [row[2] for part in reader.rows(end, after) for row in part] == ['"new"']
    reader.complete(after)
    assert snapshot(db, name).places == []


def test_a_job_that_was_replaced_while_held_is_not_brought_back_by_a_release(
    db: QueueDB, name: str, held: tuple[Reader, Offset, int]
) -> None:
    _, _, job_id = held
    assert db.queue(name).enqueue("k", "new", unique_key="a", on_duplicate="replace") == job_id
    (row,) = [row for row in snapshot(db, name).jobs if row.id == job_id]
    assert db.streams.release(name) == 2, "the two untouched ones"
    assert [other for other in snapshot(db, name).jobs if other.id == job_id] == [row]
    assert len(due(db, name)) == 3


@pytest.mark.parametrize("end_of_it", ["complete", "release"])
def test_a_replaced_job_that_a_worker_has_is_left_to_it(
    db: QueueDB, name: str, held: tuple[Reader, Offset, int], end_of_it: str
) -> None:
    reader, end, _ = held
    db.queue(name).enqueue("k", "new", unique_key="a", on_duplicate="replace")
    (job,) = db.queue(name).claim(10)
    if end_of_it == "complete":
        reader.complete(end)
    else:
        assert db.streams.release(name) == 2
    assert job.extend(60)
    assert job.complete()
    assert len(snapshot(db, name).places) == (0 if end_of_it == "complete" else 2)


@pytest.mark.parametrize("end_of_it", ["complete", "release"])
@pytest.mark.parametrize("again", [False, True], ids=["", "and enqueued again"])
def test_a_job_that_was_cancelled_while_held_does_not_come_back(
    db: QueueDB, name: str, held: tuple[Reader, Offset, int], end_of_it: str, again: bool
) -> None:
    reader, end, job_id = held
    cancel(db, name, job_id)
    new = db.queue(name).enqueue("k", "new", unique_key="a") if again else None
    if end_of_it == "complete":
        reader.complete(end)
    else:
        assert db.streams.release(name) == 2
    left = due(db, name)
    assert job_id not in [found for found, _ in left]
    assert [found for found in left if found[1] == "new"] == ([(new, "new")] if again else [])
    assert len(left) == (2 if end_of_it == "release" else 0) + again


def test_more_keys_than_go_into_one_statement(db: QueueDB, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams.held, "_PAIRS", 3)
    monkeypatch.setattr(spark_base, "_PAIRS", 4)
    ids = db.queue(name).enqueue_many([("k", number, {"unique_key": f"{number}"}) for number in range(11)])
    before = snapshot(db, name).jobs
    reader = open_stream(db, name)
    reader.allocate(reader.initial())
    held = snapshot(db, name)
    assert held.places == [(job_id, "held") for job_id in ids]
    assert {row.claim_token is not None for row in held.jobs} == {True}
    assert db.streams.release(name) == 11
    after = snapshot(db, name).jobs
    assert [(row.id, row.unique_key, row.available_at, row.attempts) for row in after] == [
        (row.id, row.unique_key, row.available_at, 0) for row in before
    ]
    assert {(row.version, row.claim_token, row.worker) for row in after} == {(2, None, None)}
    reader = open_stream(db, name)
    reader.complete(reader.allocate(reader.initial()))
    assert snapshot(db, name).places == []


def test_without_keys_the_jobs_leave_the_table(db: QueueDB, name: str) -> None:
    enqueue(db, name, 3)
    db.queue(f"{name}-other").enqueue("k", unique_key="a")
    reader = open_stream(db, name)
    reader.allocate(reader.initial())
    now = snapshot(db, name)
    assert (len(now.jobs), len(now.held), now.batches[0].keyed) == (0, 3, 0)


def test_a_held_job_with_a_key_can_be_read(db: QueueDB, name: str, held: tuple[Reader, Offset, int]) -> None:
    _, _, job_id = held
    job = db.queue(name).get(job_id)
    assert (job.state, job.unique_key, job.worker) == (State.RUNNING, "a", f"stream {name}")


def test_a_held_job_with_a_key_can_be_cancelled(db: QueueDB, name: str, held: tuple[Reader, Offset, int]) -> None:
    reader, end, job_id = held
    assert db.queue(name).cancel(job_id)
    reader.complete(end)
    assert snapshot(db, name).places == []
