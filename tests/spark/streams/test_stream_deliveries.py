"""Deliveries of a batch: counted, limited by maxDeliveries, and completed by a checkpoint's commit log."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from queue_db import QueueDB
from queue_db.errors import CheckpointMismatchError, StreamError, StreamFencedError
from queue_db.spark.streams import store as streams
from queue_db.spark.streams.store import Offset
from tests.spark.streams.conftest import ATTEMPTS, ID, Reader, enqueue, open_stream, snapshot


def attempts(reader: Reader, start: Offset, end: Offset) -> set[int]:
    return {row[ATTEMPTS] for part in reader.rows(start, end) for row in part}


def test_what_may_be_written_is_counted_for_each_stream(db: QueueDB, name: str) -> None:
    enqueue(db, name, 5)
    delivered, claimed = (open_stream(db, name, f"{name}-{which}") for which in ("delivered", "claimed"))
    for reader, limit in ((delivered, 2), (claimed, 3)):
        start = reader.initial()
        end = reader.allocate(start, limit)
        if reader is delivered:
            reader.partition(start, end)
    found = [
        db.core.read("streams.maybe_written", streams.maybe_written, name=reader.session.name) for reader in (delivered, claimed)
    ]
    assert found == [stream.maybe_written for stream in reversed(db.streams.list(name))] == [2, 0]


def test_each_delivery_is_an_attempt_and_a_second_read_is_not(db: QueueDB, name: str) -> None:
    enqueue(db, name, 3)
    first = open_stream(db, name)
    start = first.initial()
    end = first.allocate(start)
    assert (db.streams.list(name)[0].deliveries, db.streams.list(name)[0].maybe_written) == (0, 0), "it was not delivered"
    # foreachBatch may use its DataFrame twice.
    assert [attempts(first, start, end) for _ in range(2)] == [{1}, {1}]
    for delivery in (2, 3):
        again = open_stream(db, name)
        assert again.allocate(start) == end
        assert [attempts(again, start, end) for _ in range(2)] == [{delivery}, {delivery}]
        (stream,) = db.streams.list(name)
        assert (stream.deliveries, stream.maybe_written, stream.held) == (delivery, 3, 3)
    again.mark_dead({(row[ID], row[-1]): "bad" for part in again.rows(start, end) for row in part})
    again.complete(end)
    assert {job.attempts for job in db.dead.list(name)} == {3}


def test_the_job_that_stops_a_stream_dies_and_no_other(db: QueueDB, name: str) -> None:
    """Each query breaks off at the poisoned job; every restart takes the stream over, as Spark's does."""
    queue = db.queue(name)
    for number in range(37):
        queue.enqueue("k", number, unique_key=f"key {number}" if number % 5 == 0 else None)
    poison = queue.peek(100)[15].id  # one with a key
    written: list[int] = []
    start = open_stream(db, name).initial()
    starts = 0
    for starts in range(1, 30):  # noqa: B007
        reader = open_stream(db, name)
        while (end := reader.allocate(start, limit=30)) != start:
            # Asked twice, as foreachBatch may.
            assert reader.partition(start, end, most=3) == reader.partition(start, end, most=3)
            ids = [row[ID] for part in reader.partition(start, end, most=3) for row in reader.read(part)]
            if poison in ids:
                break
            written += ids
            start = end  # committed; completed by the next allocation
        else:
            break
    (dead,) = db.dead.list(name)
    assert (dead.id, dead.attempts, dead.last_error) == (
        poison,
        starts - 1,
        f"stream {name} received this job as often as maxDeliveries allows, and never completed it",
    )
    assert sorted(written) == sorted({*range(poison - 15, poison + 22)} - {poison}), "lost, or written twice"
    assert 4 <= starts <= 7, "thirty jobs are cut in three, and these in one each"
    rest = snapshot(db, name)
    assert (rest.jobs, rest.held, rest.batches) == ([], [], [])
    assert queue.enqueue("k", unique_key="key 15", on_duplicate="skip") is not None, "its key is still taken"


def test_without_a_limit_a_batch_comes_again_whole(db: QueueDB, name: str) -> None:
    enqueue(db, name, 5)
    start = open_stream(db, name).initial()
    for _ in range(12):
        reader = open_stream(db, name)
        end = reader.allocate(start)
        assert len(reader.ids(start, end)) == 5
    assert db.dead.list(name) == []


@pytest.mark.parametrize("verb", ["release", "expire"])
def test_a_release_of_jobs_that_may_be_written_is_logged(
    db: QueueDB, name: str, caplog: pytest.LogCaptureFixture, verb: str
) -> None:
    enqueue(db, name, 5)
    reader = open_stream(db, name, retention=-1_000 if verb == "expire" else 10**12)  # SQLite counts milliseconds
    start = reader.initial()
    end = reader.allocate(start, limit=3)
    reader.partition(start, end)
    with caplog.at_level(logging.WARNING, "queue_db.streams"):
        assert db.streams.release(name) == 3 if verb == "release" else name in db.streams.expire()
    (message,) = [record.message for record in caplog.records if repr(name) in record.message]
    assert "released 3 jobs; a query had up to 3 of them and may have written them" in message
    # A batch that no query was given is not written.
    caplog.clear()
    reader = open_stream(db, name, retention=-1_000 if verb == "expire" else 10**12)  # SQLite counts milliseconds
    reader.allocate(reader.initial())
    assert db.streams.release(name) == 5 if verb == "release" else name in db.streams.expire()
    assert [record for record in caplog.records if repr(name) in record.message] == []


class TestComplete:
    """What a stopped query has written leaves, and does not come back."""

    @pytest.fixture
    def held(self, db: QueueDB, name: str) -> tuple[Reader, list[Offset]]:
        """A batch that was handed out, of four jobs of six."""
        for number in range(6):
            db.queue(name).enqueue("k", number, unique_key="key" if number == 1 else None)
        reader = open_stream(db, name)
        start = reader.initial()
        end = reader.allocate(start, limit=4)
        reader.partition(start, end)
        return reader, [start, end]

    def checkpoint(self, folder: Path, committed: int | None, *lines: str) -> Path:
        """As Spark writes it: the second micro-batch is not committed."""
        for name in ("offsets", "commits"):
            (folder / name).mkdir(parents=True)
        for number in range(2):
            text = "\n".join(["v1", '{"batchWatermarkMs":0,"conf":{"a":"b"}}', *lines])
            (folder / "offsets" / str(number)).write_text(text)
            (folder / "offsets" / f".{number}.crc").write_bytes(b"\xff")
        if committed is not None:
            (folder / "commits" / str(committed)).write_text('v1\n{"nextBatchWatermarkMs":0}')
        return folder

    def test_all_held_jobs_are_completed(self, db: QueueDB, name: str, held: tuple[Reader, list[Offset]]) -> None:
        reader, (_, end) = held
        assert db.streams.complete(name) == 4
        assert db.streams.complete(name) == 0
        now = snapshot(db, name)
        assert (now.held, now.batches, len(now.jobs)) == ([], [], 2)
        assert db.queue(name).enqueue("k", unique_key="key", on_duplicate="skip") is not None
        with pytest.raises(StreamFencedError):
            reader.allocate(end)
        # The checkpoint that has committed it goes on.
        again = open_stream(db, name)
        assert len(again.ids(end, again.allocate(end))) == 3
        with pytest.raises(StreamError, match="there is no stream 'other"):
            db.streams.complete("other")

    def test_batches_in_the_commit_log_are_completed(
        self, db: QueueDB, name: str, held: tuple[Reader, list[Offset]], tmp_path: Path
    ) -> None:
        end = held[1][1]
        mine = json.dumps({"batch": end.batch, "claim": end.claim})
        other = json.dumps({"batch": end.batch, "claim": "another"})
        folder = self.checkpoint(tmp_path / "mine", 0, '{"logOffset":0}', other, mine)
        assert db.streams.complete(name, checkpoint=folder) == 4
        assert db.streams.complete(name, checkpoint=str(folder)) == 0
        assert snapshot(db, name).held == []

    def test_batches_outside_the_commit_log_stay_held(
        self, db: QueueDB, name: str, held: tuple[Reader, list[Offset]], tmp_path: Path
    ) -> None:
        _, (start, end) = held
        before = snapshot(db, name)
        mine, first = (json.dumps({"batch": one.batch, "claim": one.claim}) for one in (end, start))
        with pytest.raises(StreamError, match="no batch of a queue_db stream was committed"):
            db.streams.complete(name, checkpoint=self.checkpoint(tmp_path / "none", None, mine))
        with pytest.raises(StreamError, match="cannot be read"):
            db.streams.complete(name, checkpoint=tmp_path / "nowhere")
        with pytest.raises(CheckpointMismatchError, match="none of the offsets"):
            db.streams.complete(name, checkpoint=self.checkpoint(tmp_path / "other", 1, mine.replace(end.claim, "another")))
        assert snapshot(db, name) == before
        assert db.streams.complete(name, checkpoint=self.checkpoint(tmp_path / "first", 0, first)) == 0
        assert len(snapshot(db, name).held) == 4

    def test_a_batch_is_completed_by_its_token(self, db: QueueDB, name: str, held: tuple[Reader, list[Offset]]) -> None:
        start, end = held[1]

        def complete(offset: Offset) -> int | None:
            return db.core.write("streams.complete_claim", streams.complete_claim, offset=offset)

        assert complete(Offset(end.batch, "another")) is None
        assert complete(Offset(end.batch + 1, end.claim)) is None
        # Once another reader has opened the stream, that one may be at this batch.
        late = open_stream(db, name)
        assert complete(end) is None
        late.partition(start, end)
        assert complete(end) == 4
        assert complete(end) is None
        assert late.allocate(end).batch == end.batch + 1, "the reader goes on"
