"""Jobs of groups and of batches: a group waits while a stream holds its first job; a callback counts what a stream completes."""

from __future__ import annotations

import pytest

from queue_db import QueueDB, State
from tests.spark.streams.conftest import ID, VERSION, Reader, enqueue, open_stream, snapshot


def payloads(db: QueueDB, name: str) -> list[object]:
    return [job.payload for job in db.queue(name).peek()]


@pytest.fixture
def reader(db: QueueDB, name: str) -> Reader:
    """Of a stream over two groups with three jobs each, and one job without."""
    for group in ("a", "b"):
        enqueue(db, name, 3, group=group)
    enqueue(db, name, 1)
    return open_stream(db, name)


def test_a_batch_has_the_first_of_each_group_and_the_next_has_the_next(db: QueueDB, name: str, reader: Reader) -> None:
    at, seen = reader.initial(), []
    while (after := reader.allocate(at)) != at:
        seen.append(sorted(row[2] for part in reader.rows(at, after) for row in part))
        at = after
    assert seen == [["0", "0", "0"], ["1", "1"], ["2", "2"]]
    assert snapshot(db, name).places == []


def test_a_group_waits_while_its_first_job_is_held(db: QueueDB, name: str, reader: Reader) -> None:
    end = reader.allocate(reader.initial())
    queue = db.queue(name)
    assert queue.claim(10) == []
    assert queue.stats().blocked == 4
    queue.repair_groups()
    assert queue.claim(10) == []
    reader.complete(end)
    assert payloads(db, name) == [1, 1]


def test_a_released_job_stays_the_first_of_its_group(db: QueueDB, name: str, reader: Reader) -> None:
    reader.allocate(reader.initial())
    assert db.streams.release(name) == 3
    assert payloads(db, name) == [0, 0, 0]
    assert db.queue(name).stats().blocked == 4


def test_a_dead_job_unblocks_the_next_and_keeps_its_group(db: QueueDB, name: str, reader: Reader) -> None:
    at = reader.initial()
    end = reader.allocate(at)
    bad, *_ = [row for part in reader.rows(at, end) for row in part]
    assert reader.mark_dead({(bad[ID], bad[VERSION]): "no use"}) == 1
    reader.complete(end)
    assert payloads(db, name) == [1, 1]
    (dead,) = db.dead.list(name)
    assert (dead.id, dead.group, dead.state) == (bad[ID], "a", State.DEAD)


def test_a_callback_counts_what_a_stream_completes(db: QueueDB, name: str) -> None:
    db.queue(name).enqueue_batch([("kind", number) for number in range(3)], ("report", None))
    reader = open_stream(db, name)
    at = reader.initial()
    end = reader.allocate(at)
    first, *_ = [row for part in reader.rows(at, end) for row in part]
    reader.mark_dead({(first[ID], first[VERSION]): "no use"})
    assert payloads(db, name) == []
    reader.complete(end)
    (after,) = db.queue(name).claim(3)
    assert (after.kind, after.headers["batch"]["jobs"], after.headers["batch"]["dead"]) == ("report", 3, 1)


def test_a_job_that_was_cancelled_while_held_counts_once(db: QueueDB, name: str) -> None:
    _, (first, _) = db.queue(name).enqueue_batch([("kind", 1, {"unique_key": "k"}), ("kind", 2)], ("report", None))
    reader = open_stream(db, name)
    end = reader.allocate(reader.initial())
    assert first is not None
    assert db.cancel(first)
    reader.complete(end)
    (after,) = db.queue(name).claim(3)
    assert (after.headers["batch"]["jobs"], after.headers["batch"]["cancelled"]) == (2, 1)
