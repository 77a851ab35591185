"""Batches: claimed in order, recorded with their claim, read again as often as wanted, gone when they are completed."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from sqlalchemy import create_engine, insert

from queue_db import JobNotFoundError, Queue, QueueDB
from queue_db.errors import StreamError, StreamFencedError
from queue_db.model import State
from queue_db.spark.streams import store as streams
from queue_db.spark.streams.store import Offset, partitions
from queue_db.store import Transaction
from queue_db.testing import SettableClock
from tests.spark.streams.conftest import Cut, Reader, cut_at, delivered_again, enqueue, open_stream, snapshot


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of as few as twenty jobs."""
    monkeypatch.setattr(partitions, "_WORTH", 20)


def test_a_batch_from_its_claim_to_its_end(db: QueueDB, name: str) -> None:
    queue = db.queue(name)
    first, second = (queue.enqueue("mail", {"n": n}, headers={"h": n}, priority=n, max_attempts=9) for n in (1, 2))
    reader = open_stream(db, name)
    start = reader.initial()
    end = reader.allocate(start)
    assert (start.batch, end.batch, start.claim != end.claim) == (0, 1, True)
    rows = [row for part in reader.rows(start, end) for row in part]
    (held,) = {row.created_at for row in snapshot(db, name).held if row.id == first}
    assert rows[0] == (first, "mail", '{"n":1}', '{"h":1}', 1, 1, held, 1)
    assert [row[0] for row in rows] == [first, second]
    assert snapshot(db, name).places == [(first, "held"), (second, "held")]
    reader.complete(end)
    assert snapshot(db, name).places == []
    assert reader.allocate(end) == end, "nothing is due, so it stays where it is"
    third = enqueue(db, name, 1)
    after = reader.allocate(end)
    assert (after.batch, reader.ids(end, after)) == (2, third)


def test_nothing_is_claimed_where_nothing_is_due(ours: QueueDB, clock: SettableClock, name: str) -> None:
    reader = open_stream(ours, name)
    start = reader.initial()
    before = snapshot(ours, name)
    assert reader.allocate(start) == start
    assert snapshot(ours, name) == before
    queue = ours.queue(name)
    queue.enqueue("k", delay=10)
    enqueue(ours, f"{name}-other", 2)
    leased = queue.enqueue("k")
    (job,) = queue.claim(lease=20)
    assert job.id == leased
    assert reader.allocate(start) == start
    clock.advance(10)
    end = reader.allocate(start)
    assert len(reader.ids(start, end)) == 1
    clock.advance(10)
    # The worker has lost its lease to the stream: no other worker gets the job.
    after = reader.allocate(end)
    assert reader.ids(end, after) == [leased]
    assert not job.complete()
    assert not job.fail("late")


def test_a_job_that_is_marked_as_done_is_not_claimed(open_db: Callable[..., QueueDB], name: str) -> None:
    db = open_db(removal="delete_mark")
    enqueue(db, name, 2, priority=3)
    (job,) = db.queue(name).claim()
    assert job.complete()
    reader = open_stream(db, name)
    start = reader.initial()
    assert len(reader.ids(start, reader.allocate(start))) == 1


@pytest.mark.parametrize("keyed", [False, True])
def test_batches_come_in_the_order_of_claims(ours: QueueDB, clock: SettableClock, name: str, keyed: bool) -> None:
    queue, chance = ours.queue(name), random.Random(1)
    for number in range(30):
        key = f"{number}" if keyed and number % 3 == 0 else None
        queue.enqueue("k", number, priority=chance.choice([-1, 0, 0, 7]), delay=chance.choice([0, 0, 3]), unique_key=key)
        clock.advance(chance.choice([0, 0, 1]))
    clock.advance(5)
    expected = [job.id for job in queue.peek(100)]
    assert sorted(expected) != expected
    reader = open_stream(ours, name)
    end = reader.initial()
    for limit in (1, 7, 2, 15, 15):
        start, end = end, reader.allocate(end, limit=limit)
        taken, expected = expected[:limit], expected[limit:]
        assert reader.ids(start, end) == sorted(taken)
        assert [job.id for job in queue.peek(100)] == expected
    assert expected == []


def test_attempts_are_counted_and_versions_rise(ours: QueueDB, clock: SettableClock, name: str) -> None:
    enqueue(ours, name, 2)
    (job,) = ours.queue(name).claim()
    assert job.fail("once", retry_in=0)
    reader = open_stream(ours, name)
    start = reader.initial()
    end = reader.allocate(start)
    found = {row[0]: row for part in reader.rows(start, end) for row in part}
    assert [(row[5], row[7]) for row in sorted(found.values(), key=lambda row: row[0] != job.id)] == [(2, 3), (1, 1)]


@pytest.mark.parametrize("ceiling", [True, False])
def test_above_the_ceiling_nothing_is_claimed(db: QueueDB, name: str, ceiling: bool) -> None:
    old = enqueue(db, name, 3)
    highest = db.database.run(lambda connection: streams.highest_due(Transaction(connection, db.store), name), name="highest")
    assert highest == old[-1]
    db.queue(name).enqueue("k", delay=60)
    new = enqueue(db, name, 3, priority=-1)
    reader = open_stream(db, name)
    start = reader.initial()
    end = reader.allocate(start, ceiling=highest if ceiling else None)
    assert reader.ids(start, end) == (old if ceiling else old + new)
    if ceiling:
        assert reader.allocate(end, ceiling=highest) == end
        assert reader.allocate(end, ceiling=0) == end
        assert [job.id for job in db.queue(name).peek()] == new


def test_the_ceiling_of_an_empty_queue(db: QueueDB, name: str) -> None:
    assert db.database.run(lambda connection: streams.highest_due(Transaction(connection, db.store), name), name="highest") is None


# --- replay ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("died", "keyed"),
    [
        ("after its claim", True),
        ("after its partitions", False),
        ("in the middle of reading", True),
        ("before completing", False),
    ],
)
def test_a_replay_hands_out_the_same_rows_in_the_same_parts(
    db: QueueDB, theirs: QueueDB, name: str, few: None, died: str, keyed: bool
) -> None:
    for number in range(3 if keyed else 0):
        db.queue(name).enqueue("k", "keyed", unique_key=f"{number}")
    enqueue(db, name, 70)
    reader = open_stream(db, name)
    start = reader.initial()
    end = reader.allocate(start, limit=50, partitions=2)
    seen = None
    if died != "after its claim":
        parts = reader.partition(start, end)
        assert len(parts) == 2
        seen = [reader.read(part, page=7) for part in parts[: 1 if died == "in the middle of reading" else 2]]
    # Another process goes on from the checkpoint; what has come or gone in the queue meanwhile is not its business.
    enqueue(theirs, name, 5, priority=-9)
    theirs.queue(name).claim(5)
    again = open_stream(theirs, name)
    assert again.initial() == start
    assert again.allocate(start, limit=1, ceiling=0, partitions=99) == end, "another batch"
    rows = again.rows(start, end)
    if seen is not None:
        assert rows[: len(seen)] == delivered_again(seen, 1)
    assert sum(len(some) for some in rows) == 50
    once_more = open_stream(db, name)
    assert once_more.rows(start, end) == delivered_again(rows, 1)
    once_more.complete(end)
    assert snapshot(db, name).held == []


def test_an_allocation_that_dies_at_any_of_its_statements_changes_nothing(db: QueueDB, name: str) -> None:
    reader = open_stream(db, name)
    db.queue(name).enqueue("k", 0, unique_key="key 0")
    enqueue(db, name, 3)
    start = reader.allocate(reader.initial(), limit=2)
    db.queue(name).enqueue("k", 0, unique_key="key 1")
    before, at = snapshot(db, name), 0
    while True:
        at += 1
        with cut_at(db.database.engine, at) as cut, suppress(Cut):
            end = reader.allocate(start, limit=2)
        if not cut:
            break
        assert snapshot(db, name) == before, f"it had done something before {cut[0]:.80}"
    assert at > 8, "too few statements were cut"
    assert len(reader.ids(start, end)) == 2
    assert len(snapshot(db, name).places) == 3


def test_a_completion_that_dies_at_any_of_its_statements_changes_nothing(db: QueueDB, name: str) -> None:
    reader = open_stream(db, name)
    db.queue(name).enqueue("k", 0, unique_key="key 0")
    enqueue(db, name, 3)
    start = reader.initial()
    end = reader.allocate(start)
    row = reader.rows(start, end)[0][-1]
    assert reader.mark_dead({(row[0], row[7]): "no use"}) == 1
    before, at = snapshot(db, name), 0
    while True:
        at += 1
        with cut_at(db.database.engine, at) as cut, suppress(Cut):
            reader.complete(end)
        if not cut:
            break
        assert snapshot(db, name) == before, f"it had done something before {cut[0]:.80}"
    assert at > 6, "too few statements were cut"
    assert snapshot(db, name).places == [(row[0], "dead")]


def test_a_claim_that_was_rolled_back_is_another_one_when_it_is_made_again(ours: QueueDB, name: str) -> None:
    ids = enqueue(ours, name, 4)
    reader = open_stream(ours, name)
    start = reader.initial()
    rolled_back: list[Offset] = []

    class Died(Exception):
        pass

    def die(connection: object) -> None:
        rolled_back.append(reader.allocating(start)(Transaction(connection, reader.db.store)))
        raise Died

    with pytest.raises(Died):
        ours.database.run(die, name="claim batch")
    assert snapshot(ours, name).places == [(job_id, "queue") for job_id in ids]
    end = reader.allocate(start)
    assert end.batch == rolled_back[0].batch
    assert end.claim != rolled_back[0].claim
    with pytest.raises(StreamError):
        reader.partition(start, rolled_back[0])


# --- completion -----------------------------------------------------------------------------------------------------


def test_completion_can_be_repeated_and_never_goes_back(db: QueueDB, name: str) -> None:
    reader = open_stream(db, name)
    offsets = [reader.initial()]
    for _ in range(3):
        enqueue(db, name, 2)
        offsets.append(reader.allocate(offsets[-1]))
    left = snapshot(db, name)
    assert len(left.held) == 2, "what comes before a claim is completed by it"
    for earlier in offsets[:3]:
        reader.complete(earlier)
        now = snapshot(db, name)
        assert (now.held, now.batches, now.streams[0].acked) == (left.held, left.batches, 2)
    for _ in range(2):
        reader.complete(offsets[3])
        done = snapshot(db, name)
        assert (done.held, done.batches, done.streams[0].acked, done.streams[0].allocated) == ([], [], 3, 3)
    for earlier in offsets:
        reader.complete(earlier)
        assert snapshot(db, name).streams[0].acked == 3
    assert open_stream(db, name).initial() == offsets[3]


def test_a_completed_batch_cannot_be_read_any_more(db: QueueDB, name: str) -> None:
    enqueue(db, name, 3)
    reader = open_stream(db, name)
    start = reader.initial()
    end = reader.allocate(start)
    (part,) = reader.partition(start, end)
    reader.complete(end)
    assert reader.read(part) == []
    assert reader.partition(end, end) == []


def test_an_allocation_completes_what_comes_before_it(db: QueueDB, name: str) -> None:
    first = enqueue(db, name, 1)
    reader = open_stream(db, name)
    end = reader.allocate(reader.initial())
    second = enqueue(db, name, 1)
    assert snapshot(db, name).places == [(first[0], "held"), (second[0], "queue")]
    after = reader.allocate(end)
    assert snapshot(db, name).places == [(second[0], "held")]
    assert reader.allocate(after) == after
    assert snapshot(db, name).places == []


# --- one reader at a time -------------------------------------------------------------------------------------------

VERBS: dict[str, Callable[[Reader, Offset, Offset], object]] = {
    "initial": lambda reader, start, end: reader.initial(),
    "allocate": lambda reader, start, end: reader.allocate(end),
    "allocate what is claimed": lambda reader, start, end: reader.allocate(start),
    "partition": lambda reader, start, end: reader.partition(start, end),
    "complete": lambda reader, start, end: reader.complete(end),
    "complete what is completed": lambda reader, start, end: reader.complete(start),
}


def test_an_older_session_is_fenced_in_every_verb(ours: QueueDB, theirs: QueueDB, name: str) -> None:
    enqueue(ours, name, 4)
    old = open_stream(ours, name)
    start = old.initial()
    end = old.allocate(start, limit=2)
    new = open_stream(theirs, name)
    before = snapshot(ours, name)
    for what, verb in VERBS.items():
        with pytest.raises(StreamFencedError, match=rf"stream '{name}' was taken over .*epoch 2, .*has 1; now held by theirs"):
            verb(old, start, end)
        assert snapshot(ours, name) == before, what
    assert len(new.ids(start, end)) == 2


def test_a_session_that_is_not_the_first_one_is_fenced_by_the_next(ours: QueueDB, name: str) -> None:
    readers = [open_stream(ours, name) for _ in range(4)]
    for reader in readers[:-1]:
        with pytest.raises(StreamFencedError):
            reader.initial()
    assert readers[-1].initial().batch == 0
    # A number that was never given out is no better.
    with pytest.raises(StreamFencedError):
        replace(readers[-1], session=replace(readers[-1].session, epoch=99)).initial()


def test_a_stream_reads_one_queue(db: QueueDB, name: str) -> None:
    reader = open_stream(db, name)
    before = snapshot(db, name)
    with pytest.raises(StreamError, match=f"reads queue '{name}', not '{name}-other'"):
        open_stream(db, f"{name}-other", name)
    assert snapshot(db, name) == before
    assert reader.initial().batch == 0


# --- what others see ------------------------------------------------------------------------------------------------


def test_held_jobs_are_not_available(ours: QueueDB, clock: SettableClock, name: str) -> None:
    queue = ours.queue(name)
    enqueue(ours, name, 5)
    queue.enqueue("k", unique_key="a")
    reader = open_stream(ours, name)
    start = reader.initial()
    end = reader.allocate(start, limit=6)
    late = enqueue(ours, name, 1)
    clock.advance(10 * 365 * 86_400)
    stats = queue.stats()
    assert (stats.available, stats.scheduled, stats.running, stats.dead, stats.held) == (1, 0, 0, 0, 6)
    assert [job.id for job in queue.peek()] == late
    (stream,) = ours.streams.list(name)
    assert (stream.name, stream.queue, stream.holder, stream.epoch) == (name, name, "ours", 1)
    assert (stream.completed, stream.claimed, stream.held) == (0, 1, 6)
    assert stream.oldest_held_age == pytest.approx(10 * 365 * 86_400)
    assert ours.database.run(lambda connection: streams.backlog(Transaction(connection, ours.store), name), name="backlog")[0] == 1
    assert queue.purge() == 1, "a purge must leave what is held"
    assert [job.id for job in queue.claim(10)] == []
    assert len(reader.ids(start, end)) == 6
    reader.complete(end)
    (stream,) = ours.streams.list(name)
    assert (stream.completed, stream.claimed, stream.held, stream.oldest_held_age) == (1, 1, 0, None)
    stats = queue.stats()
    assert (stats.available, stats.scheduled, stats.running, stats.dead, stats.held) == (0, 0, 0, 0, 0)


def test_a_job_without_a_due_time_is_scheduled(db: QueueDB, name: str) -> None:
    db.queue(name).enqueue("k", run_at=datetime(9999, 12, 31, tzinfo=UTC))
    stats = db.queue(name).stats()
    assert (stats.scheduled, stats.held) == (1, 0)


def test_the_backlog_counts_due_jobs(ours: QueueDB, clock: SettableClock, name: str) -> None:
    def backlog() -> tuple[int, int | None]:
        return ours.database.run(lambda connection: streams.backlog(Transaction(connection, ours.store), name), name="backlog")

    assert backlog() == (0, None)
    enqueue(ours, name, 2)
    clock.advance(3)
    enqueue(ours, name, 1)
    ours.queue(name).enqueue("k", delay=9)
    assert backlog() == (3, 3_000_000)


def test_streams_are_listed_by_name(db: QueueDB, name: str) -> None:
    for stream in ("b", "a"):
        open_stream(db, name, f"{name} {stream}")
    open_stream(db, f"{name}-other", f"{name} c")
    assert [stream.name for stream in db.streams.list(name)] == [f"{name} a", f"{name} b"]
    assert {f"{name} a", f"{name} b", f"{name} c"} <= {stream.name for stream in db.streams.list()}


# --- other ways in --------------------------------------------------------------------------------------------------


def a_life(db: QueueDB, name: str) -> None:
    """Every verb once, with and without a key."""
    ids = enqueue(db, name, 3)
    keyed = db.queue(name).enqueue("k", unique_key="a")
    assert keyed is not None
    reader = open_stream(db, name)
    start = reader.initial()
    end = reader.allocate(start, limit=2)
    assert reader.ids(start, end) == ids[:2]
    after = reader.allocate(end)
    assert reader.ids(end, after) == [ids[2], keyed]
    assert db.queue(name).enqueue("k", unique_key="a", on_duplicate="skip") is None
    assert db.streams.release(name) == 2
    reader = open_stream(db, name)
    start = reader.initial()
    end = reader.allocate(start)
    row = next(row for part in reader.rows(start, end) for row in part if row[0] == keyed)
    assert reader.mark_dead({(keyed, row[7]): "no use"}) == 1
    reader.complete(end)
    assert snapshot(db, name).places == [(keyed, "dead")]
    assert db.dead.redrive(queue=name) == [keyed]
    assert name not in db.streams.expire()  # other tests' streams may have expired


def test_a_callers_engine_works(url: str, name: str) -> None:
    engine = create_engine(url)
    with QueueDB(engine) as db:
        a_life(db, name)
    engine.dispose()


def test_tables_of_another_name_work(url: str, name: str) -> None:
    with QueueDB(url, table="streamed_jobs") as db, QueueDB(url) as plain:
        db.migrate()
        a_life(db, name)
        assert plain.streams.list(name) == []
        with pytest.raises(StreamError, match=f"there is no stream '{name}'"):
            plain.streams.release(name)


def test_a_held_job_can_be_read_and_not_cancelled(db: QueueDB, queue: Queue) -> None:
    job_id = queue.enqueue("k", {"n": 1}, headers={"h": 1}) or 0
    queue.enqueue("k")
    reader = open_stream(db, queue.name)
    end = reader.allocate(reader.initial(), 1)
    job = queue.get(job_id)
    assert (job.id, job.queue, job.payload, job.headers) == (job_id, queue.name, {"n": 1}, {"h": 1})
    assert (job.state, job.worker, job.attempts) == (State.RUNNING, f"stream {queue.name}", 1)
    assert db.get(job_id) == job
    with pytest.raises(JobNotFoundError):
        db.queue(f"{queue.name}-other").get(job_id)
    assert not queue.cancel(job_id)
    assert [row.id for row in snapshot(db, queue.name).held] == [job_id]
    reader.complete(end)
    with pytest.raises(JobNotFoundError):
        queue.get(job_id)


# --- parts ----------------------------------------------------------------------------------------------------------


_MIGRATED: set[str] = set()


def dense(number: int) -> int:
    return number


class TestParts:
    """A batch is cut into ranges of ids with about as many jobs each."""

    @pytest.fixture
    def sparse(self, url: str) -> Iterator[QueueDB]:
        """Tables of their own: ids that are set by hand would get into others' way."""
        with QueueDB(url, table="sparse_jobs") as db:
            if url not in _MIGRATED:
                db.migrate()
                _MIGRATED.add(url)
            yield db

    def batch(self, db: QueueDB, name: str, count: int, partitions: int, place: Callable[[int], int]) -> list[int]:
        """The sizes of the parts of a batch; ``place``: number of a job → its id, counted from the highest that there has been."""
        jobs = db.store.tables.jobs
        base = enqueue(db, name, 1)[0]
        db.queue(name).purge()
        rows = [{"id": base + place(number), "queue": name, "payload": "1"} for number in range(count)]
        db.database.run(lambda connection: connection.execute(insert(jobs), rows), name="fill")
        expected = sorted(row["id"] for row in rows)
        reader = open_stream(db, name)
        start = reader.initial()
        end = reader.allocate(start, limit=count, partitions=partitions)
        parts = reader.partition(start, end)
        rows = [reader.read(part) for part in parts]
        assert [row[0] for some in rows for row in some] == expected, "the parts are not the batch"
        assert [len(some) for some in rows] == [part.jobs for part in parts]
        assert [(some[0][0], some[-1][0]) for some in rows] == [(part.low, part.high) for part in parts]
        assert len(parts) <= partitions
        assert snapshot(db, name).batches[0].size == count
        reader.complete(end)
        return [part.jobs for part in parts]

    @pytest.mark.parametrize("count", [1, 2, 1000])
    def test_a_small_batch_is_one_part(self, sparse: QueueDB, name: str, count: int) -> None:
        assert self.batch(sparse, name, count, 8, dense) == [count]

    def test_a_batch_is_cut_for_no_less_than_a_thousand_jobs(self, sparse: QueueDB, name: str) -> None:
        sizes = self.batch(sparse, name, 2500, 200, dense)
        assert 3 <= len(sizes) <= 5

    def test_one_partition_is_one_part(self, sparse: QueueDB, name: str) -> None:
        assert self.batch(sparse, name, 1500, 1, dense) == [1500]

    @pytest.mark.parametrize(
        "ids",
        [
            "dense",
            "far apart",
            "at random",
            "in two heaps",
            "in seven heaps",
        ],
    )
    def test_parts_are_about_the_same_size(self, sparse: QueueDB, name: str, few: None, ids: str) -> None:
        count, chance = 400, random.Random(7)
        somewhere = sorted(chance.sample(range(1, 2**40), count))
        place = {
            "dense": dense,
            "far apart": lambda number: number * 99_999_989,
            "at random": lambda number: somewhere[number],
            "in two heaps": lambda number: number + (2**40 if number >= count // 2 else 0),
            "in seven heaps": lambda number: number + 2**36 * (number * 7 // count),
        }[ids]
        partitions = 2 if ids == "in two heaps" else 4
        sizes = self.batch(sparse, name, count, partitions, place)
        assert len(sizes) == partitions
        assert max(sizes) <= 1.5 * count / partitions

    def test_one_distant_id_does_not_merge_the_parts_of_the_others(self, sparse: QueueDB, name: str, few: None) -> None:
        sizes = self.batch(sparse, name, 400, 4, lambda number: 0 if number == 0 else 5_000_000 + number)
        assert max(sizes) <= 200


def test_a_completed_batch_wakes_the_workers_of_the_jobs_that_waited_for_it(db: QueueDB, name: str) -> None:
    db.queue(name).enqueue_batch([("kind", 1), ("kind", 2)], ("after", None))
    reader = open_stream(db, name)
    start = reader.initial()
    end = reader.allocate(start)
    woken: list[str] = []
    db.notifications.add(woken.append)
    try:
        reader.complete(end)
    finally:
        db.notifications.remove(woken.append)
    assert woken == [name]
