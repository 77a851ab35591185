"""A stream's held jobs return to the queue: by a release, or when its retention is over."""

from __future__ import annotations

from typing import Any

import pytest

from queue_db import QueueDB
from queue_db.errors import StreamError, StreamFencedError
from queue_db.slices import tasks
from queue_db.spark.streams import store as streams
from queue_db.testing import SettableClock
from queue_db.worker.options import Options
from tests.spark.streams.conftest import Reader, enqueue, open_stream, snapshot


def without(row: Any, *names: str) -> dict[str, Any]:
    return {name: value for name, value in row._mapping.items() if name not in names}


@pytest.mark.parametrize("keyed", [False, True])
def test_a_release_gives_everything_back_as_it_was(
    ours: QueueDB, theirs: QueueDB, clock: SettableClock, name: str, keyed: bool
) -> None:
    queue = ours.queue(name)
    for number in range(4):
        queue.enqueue(
            f"kind {number}",
            {"\N{GRINNING FACE}": number},
            headers={"h": number},
            priority=number - 2,
            max_attempts=7,
            unique_key=f"key {number}" if keyed and number != 3 else None,
        )
        clock.advance(1)
    # One has been tried before, and one is with a worker that has vanished.
    first, second = queue.claim(2, lease=5)
    assert first.fail("no luck", retry_in=1)
    assert second.attempts == 1
    clock.advance(10)
    before = snapshot(ours, name).jobs
    assert [row.attempts for row in before] == [1, 1, 0, 0]
    reader = open_stream(ours, name)
    start = reader.initial()
    end = reader.allocate(start)
    assert ours.streams.release(name) == 4
    after = snapshot(ours, name)
    assert (after.held, after.batches) == ([], [])
    free = ("version", "due_at", "claim_token", "worker", "padding")
    assert [without(row, *free) for row in after.jobs] == [without(row, *free) for row in before]
    # Up by one at the claim, and by one when it came back: no lease that there was is good any more.
    assert [row.version - old.version for row, old in zip(after.jobs, before, strict=True)] == [2] * 4
    assert {(row.claim_token, row.worker) for row in after.jobs} == {(None, None)}
    assert not second.complete()
    for work in (reader.initial, lambda: reader.allocate(end), lambda: reader.complete(end)):
        with pytest.raises(StreamFencedError, match="now held by nobody"):
            work()
    assert snapshot(ours, name) == after
    # A worker that comes now finds them in their order.
    assert [job.kind for job in theirs.queue(name).claim(10)] == [f"kind {number}" for number in range(4)]


def test_completed_jobs_are_not_released(db: QueueDB, name: str) -> None:
    enqueue(db, name, 2)
    reader = open_stream(db, name)
    end = reader.allocate(reader.initial())
    late = enqueue(db, name, 1)
    reader.allocate(end)
    assert db.streams.release(name) == 1
    assert snapshot(db, name).places == [(late[0], "queue")]
    assert db.streams.release(name) == 0
    assert snapshot(db, name).places == [(late[0], "queue")]


def test_a_released_stream_can_be_read_again(db: QueueDB, name: str) -> None:
    ids = enqueue(db, name, 3)
    for _ in range(3):
        reader = open_stream(db, name)
        start = reader.initial()
        end = reader.allocate(start)
        rows = [row for part in reader.rows(start, end) for row in part]
        assert [row[0] for row in rows] == ids
        assert {row[5] for row in rows} == {1}, "a release is not an attempt"
        assert db.streams.release(name) == 3
    (stream,) = db.streams.list(name)
    assert (stream.holder, stream.held, stream.completed, stream.claimed) == (None, 0, 3, 3)


def test_a_stream_that_is_not_there_cannot_be_released(db: QueueDB, name: str) -> None:
    open_stream(db, name)
    with pytest.raises(StreamError, match=f"there is no stream '{name}-other'; known: .*{name}"):
        db.streams.release(f"{name}-other")


class TestTime:
    """A stream without a reader releases its jobs when its retention is over."""

    @pytest.fixture
    def reader(self, ours: QueueDB, name: str) -> Reader:
        enqueue(ours, name, 2)
        reader = open_stream(ours, name, retention=100_000_000)
        reader.allocate(reader.initial(), limit=1)
        return reader

    def test_a_stream_is_kept_for_its_retention(self, ours: QueueDB, clock: SettableClock, name: str, reader: Reader) -> None:
        def names() -> list[str]:
            return ours.core.read("streams.expired", streams.expired)

        clock.advance(100)
        assert name not in names()
        assert ours.core.write("streams.release_expired", streams.release_expired, name=name) is None
        assert name not in ours.streams.expire()
        assert len(snapshot(ours, name).held) == 1
        clock.advance(1)
        assert name in names()
        assert name in ours.streams.expire()
        now = snapshot(ours, name)
        assert (len(now.held), len(now.jobs)) == (0, 2)
        assert name not in names()
        with pytest.raises(StreamFencedError):
            reader.initial()

    def test_a_worker_releases_it_and_says_so(
        self, ours: QueueDB, clock: SettableClock, name: str, reader: Reader, caplog: pytest.LogCaptureFixture
    ) -> None:
        (expire,) = [task for task in tasks(ours, Options(queues="mail")) if task.name == "expiring streams"]
        assert expire.run() is None
        assert len(snapshot(ours, name).held) == 1
        clock.advance(101)
        expire.run()
        now = snapshot(ours, name)
        assert (len(now.held), len(now.jobs)) == (0, 2)
        assert f"stream {name!r} has expired without a reader" in caplog.text

    @pytest.mark.parametrize("sign", ["touch", "open", "complete and claim"])
    def test_a_heartbeat_restarts_the_retention(
        self, ours: QueueDB, theirs: QueueDB, clock: SettableClock, name: str, reader: Reader, sign: str
    ) -> None:
        clock.advance(99)
        if sign == "touch":
            reader.touch()
        elif sign == "open":
            open_stream(theirs, name, retention=100_000_000)
        else:
            before = snapshot(ours, name).batches[0]
            end = streams.Offset(before.batch, before.claim)
            reader.allocate(end, limit=1)
        clock.advance(99)
        assert name not in ours.streams.expire()
        clock.advance(2)
        assert name in ours.streams.expire()

    def test_a_fenced_reader_sends_no_heartbeat(
        self, ours: QueueDB, theirs: QueueDB, clock: SettableClock, name: str, reader: Reader
    ) -> None:
        open_stream(theirs, name, retention=100_000_000)
        clock.advance(99)
        reader.touch()
        clock.advance(2)
        assert name in ours.streams.expire()

    def test_the_last_reader_sets_the_retention(self, ours: QueueDB, clock: SettableClock, name: str, reader: Reader) -> None:
        open_stream(ours, name, retention=5_000_000)
        clock.advance(6)
        assert name in ours.streams.expire()

    def test_a_stream_without_held_jobs_does_not_expire(
        self, ours: QueueDB, clock: SettableClock, name: str, reader: Reader
    ) -> None:
        row = snapshot(ours, name).batches[0]
        reader.complete(streams.Offset(row.batch, row.claim))
        before = snapshot(ours, name)
        clock.advance(10**6)
        assert name not in ours.streams.expire()
        assert ours.core.write("streams.release_expired", streams.release_expired, name=name) is None
        assert snapshot(ours, name) == before

    def test_a_reader_that_returned_in_time_keeps_its_jobs(
        self, ours: QueueDB, theirs: QueueDB, clock: SettableClock, name: str, reader: Reader
    ) -> None:
        """Between the list of what has expired and its release."""
        clock.advance(101)
        assert name in ours.core.read("streams.expired", streams.expired)
        late = open_stream(theirs, name)
        assert ours.core.write("streams.release_expired", streams.release_expired, name=name) is None
        start = late.initial()
        assert len(late.ids(start, late.allocate(start))) == 1

    def test_expiring_an_unknown_stream_releases_nothing(self, ours: QueueDB, name: str) -> None:
        assert ours.core.write("streams.release_expired", streams.release_expired, name=name) is None
