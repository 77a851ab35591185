"""A checkpoint that does not belong to what the database knows is refused, whatever it is handed to, and nothing is changed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from queue_db import QueueDB
from queue_db.errors import CheckpointMismatchError
from queue_db.spark.streams.store import Offset
from tests.spark.streams.conftest import Reader, enqueue, open_stream, restore, snapshot


def refused(reader: Reader, bad: Offset) -> None:
    """Whatever a reader does with such an offset."""
    queue = reader.session.queue
    good, before = reader.initial(), snapshot(reader.db, queue)
    works: dict[str, Callable[[], object]] = {
        "allocate": lambda: reader.allocate(bad),
        "a partition from there": lambda: reader.partition(bad, good),
        "a partition up to there": lambda: reader.partition(good, bad),
        "complete": lambda: reader.complete(bad),
    }
    if bad.batch <= good.batch:
        works.pop("complete")()  # what is completed already may be completed again, whatever it was called
    for work in works.values():
        with pytest.raises(CheckpointMismatchError, match=f"the checkpoint and stream '{reader.session.name}' do not belong"):
            work()
    assert snapshot(reader.db, queue) == before, "a refused offset has changed something"


def continues(reader: Reader, jobs: list[int]) -> None:
    """Who begins with a new checkpoint gets all that is not completed."""
    start = reader.initial()
    found: list[int] = []
    while (end := reader.allocate(start)) != start:
        found += reader.ids(start, end)
        start = end
    assert sorted(found) == sorted(jobs)
    assert snapshot(reader.db, reader.session.queue).places == []


def three_batches(db: QueueDB, name: str) -> tuple[Reader, list[Offset], list[int]]:
    """A reader that has completed two batches and claimed a third one; its offsets and the jobs that are left."""
    reader = open_stream(db, name)
    offsets = [reader.initial()]
    for _ in range(3):
        ids = enqueue(db, name, 2)
        offsets.append(reader.allocate(offsets[-1]))
    reader.complete(offsets[2])
    return reader, offsets, ids


@pytest.fixture
def three(ours: QueueDB, name: str) -> tuple[Reader, list[Offset], list[int]]:
    return three_batches(ours, name)


def test_an_offset_of_a_batch_that_was_completed_or_never_claimed_is_refused(three: tuple[Reader, list[Offset], list[int]]) -> None:
    reader, offsets, ids = three
    for batch in (-1, 0, 1, 4, 2**62):
        for offset in offsets:
            refused(reader, Offset(batch, offset.claim))
    continues(reader, ids)


def test_an_offset_with_the_token_of_another_claim_is_refused(three: tuple[Reader, list[Offset], list[int]]) -> None:
    reader, offsets, ids = three
    for claim in ("", "0" * 32, offsets[0].claim, offsets[1].claim):
        refused(reader, Offset(2, claim))
        refused(reader, Offset(3, claim))
    refused(reader, Offset(2, offsets[3].claim))
    refused(reader, Offset(3, offsets[2].claim))
    continues(reader, ids)


def test_valid_offsets_are_accepted(three: tuple[Reader, list[Offset], list[int]]) -> None:
    reader, offsets, ids = three
    assert reader.allocate(offsets[2]) == offsets[3]
    assert reader.ids(offsets[2], offsets[3]) == ids
    assert reader.partition(offsets[2], offsets[2]) == reader.partition(offsets[3], offsets[3]) == []
    with pytest.raises(CheckpointMismatchError, match="are not all there"):
        reader.partition(offsets[3], offsets[2])
    reader.complete(offsets[3])


def test_an_offset_of_another_stream_is_refused(ours: QueueDB, theirs: QueueDB, name: str) -> None:
    ids = enqueue(ours, name, 4)
    readers = [open_stream(ours, name, f"{name} a"), open_stream(theirs, name, f"{name} b")]
    starts = [reader.initial() for reader in readers]
    ends = [reader.allocate(start, limit=2) for reader, start in zip(readers, starts, strict=True)]
    assert ends[0].batch == ends[1].batch
    for place in range(2):
        refused(readers[place], starts[1 - place])
        refused(readers[place], ends[1 - place])
    assert readers[0].ids(starts[0], ends[0]) + readers[1].ids(starts[1], ends[1]) == ids


@pytest.mark.parametrize("held", [True, False])
def test_an_offset_from_before_a_release_is_refused(
    three: tuple[Reader, list[Offset], list[int]], ours: QueueDB, name: str, held: bool
) -> None:
    reader, offsets, ids = three
    if not held:
        reader.complete(offsets[3])
    assert ours.streams.release(name) == (2 if held else 0)
    late = open_stream(ours, name)
    for offset in offsets:
        refused(late, offset)
    continues(late, ids if held else [])


def test_an_offset_from_before_an_expiry_is_refused(ours: QueueDB, clock: object, name: str) -> None:
    ids = enqueue(ours, name, 2)
    reader = open_stream(ours, name, retention=5_000_000)
    start = reader.initial()
    end = reader.allocate(start)
    clock.advance(6)  # type: ignore[attr-defined]
    assert name in ours.streams.expire()
    late = open_stream(ours, name)
    refused(late, start)
    refused(late, end)
    continues(late, ids)


def restored(db: QueueDB, name: str) -> tuple[list[Offset], list[int]]:
    """A checkpoint with two batches that the database knows nothing of any more; the jobs that it knows."""
    reader = open_stream(db, name)
    enqueue(db, name, 1)
    offsets = [reader.initial()]
    offsets.append(reader.allocate(offsets[-1]))
    ids = enqueue(db, name, 4)
    reader.complete(offsets[1])
    backup = snapshot(db, name)
    for _ in range(2):
        offsets.append(reader.allocate(offsets[-1], limit=2))
    restore(db, name, backup)
    return offsets, ids


class TestBackup:
    """The database was restored, and the checkpoint is of the time after the backup."""

    @pytest.fixture
    def ahead(self, ours: QueueDB, name: str) -> tuple[list[Offset], list[int]]:
        return restored(ours, name)

    def test_a_checkpoint_ahead_of_a_restored_database_is_refused(
        self, theirs: QueueDB, name: str, ahead: tuple[list[Offset], list[int]]
    ) -> None:
        offsets, ids = ahead
        reader = open_stream(theirs, name)
        for offset in (offsets[0], offsets[2], offsets[3]):
            refused(reader, offset)
        assert reader.initial() == offsets[1]
        continues(reader, ids)

    @pytest.mark.parametrize("how_far", ["claimed once", "completed once", "claimed twice", "completed twice"])
    def test_a_checkpoint_with_other_batches_of_the_same_numbers_is_refused(
        self, theirs: QueueDB, name: str, ahead: tuple[list[Offset], list[int]], how_far: str
    ) -> None:
        offsets, ids = ahead
        reader = open_stream(theirs, name)
        start, end = offsets[1], reader.allocate(offsets[1], limit=2)
        done = reader.ids(start, end)
        if how_far.endswith("twice"):
            start, end = end, reader.allocate(end, limit=2)
            done += reader.ids(start, end)
        left = [job_id for job_id in ids if job_id not in done]
        if how_far.startswith("completed"):
            reader.complete(end)
        else:
            left += reader.ids(start, end)
        for offset in (offsets[0], offsets[2], offsets[3]):
            refused(reader, offset)
        continues(reader, left)

    def test_a_checkpoint_of_a_stream_that_the_backup_lacks_is_refused(self, ours: QueueDB, theirs: QueueDB, name: str) -> None:
        ids = enqueue(ours, name, 2)
        backup = snapshot(ours, name)
        old = open_stream(ours, name)
        start = old.initial()
        end = old.allocate(start)
        restore(ours, name, backup)
        for work in (old.initial, lambda: old.allocate(start), lambda: old.complete(end)):
            with pytest.raises(CheckpointMismatchError, match="the stream is not there any more"):
                work()
        reader = open_stream(theirs, name)
        refused(reader, start)
        refused(reader, end)
        with pytest.raises(CheckpointMismatchError, match="the stream is not there any more"):
            old.initial()
        continues(reader, ids)
