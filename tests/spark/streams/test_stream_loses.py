"""Readers, workers and operators at the same rows at the same time: one comes first, and the other finds it so."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from queue_db import LeasedJob, Queue, QueueDB, Verdict
from queue_db.errors import StreamFencedError
from queue_db.spark.streams import store as streams
from queue_db.spark.streams.store import Offset
from queue_db.store import Transaction
from queue_db.testing import SettableClock
from tests.handles import Handles
from tests.patience import PATIENCE
from tests.races.interleaving import Loser, at_once, open_transaction, other_handle
from tests.races.test_claim_loses import STRATEGIES, state, steps_over_locks
from tests.races.test_settle_loses import LOSERS
from tests.races.winners import WINNERS
from tests.spark.streams.conftest import ID, Reader, enqueue, open_stream, snapshot

ROUNDS = 5

OpenDB = Callable[..., QueueDB]


# Handles of their own: waiting is detected by listening to an engine.
@pytest.fixture
def ours(handles: Handles, url: str, clock: SettableClock) -> QueueDB:
    return handles.get(url, "ours, watched", settable=True)


@pytest.fixture
def theirs(handles: Handles, url: str, clock: SettableClock) -> QueueDB:
    return handles.get(url, "theirs, watched", settable=True)


def run_out(queue: Queue, clock: SettableClock, key: str | None) -> LeasedJob:
    """A job with its worker's lease, which has run out."""
    queue.enqueue("mail", unique_key=key)
    (job,) = queue.claim(lease=1)
    clock.advance(2)
    return job


# --- two readers ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("there", [False, True], ids=["made by the first", "there already"])
def test_of_two_readers_that_open_a_stream_at_once_the_first_one_loses(
    ours: QueueDB, theirs: QueueDB, name: str, there: bool
) -> None:
    for number in range(ROUNDS):
        queue = f"{name}-{number}"
        ids = enqueue(ours, queue, 3)
        if there:
            held = open_stream(ours, queue)
            held.allocate(held.initial(), limit=2)
        readers = at_once(partial(open_stream, ours, queue), partial(open_stream, theirs, queue))
        assert not [reader for reader in readers if isinstance(reader, Exception)], readers
        first, second = sorted(readers, key=lambda reader: reader.session.epoch)
        assert second.session.epoch == first.session.epoch + 1
        assert len(snapshot(ours, queue).streams) == 1
        with pytest.raises(StreamFencedError):
            first.initial()
        start = second.initial()
        end = second.allocate(start, limit=2)
        assert second.ids(start, end) == ids[:2]
        second.complete(end)


@pytest.mark.parametrize("commits", [True, False], ids=["commits", "rolls back"])
def test_opening_a_stream_waits_for_a_claim_and_then_has_it(
    kind: str, ours: QueueDB, theirs: QueueDB, name: str, commits: bool
) -> None:
    ids = enqueue(ours, name, 4)
    old = open_stream(ours, name)
    start = old.initial()
    with open_transaction(ours) as connection:
        end = old.allocating(start, limit=2)(Transaction(connection, old.db.store))
        late = Loser(kind, theirs, partial(open_stream, theirs, name))
        assert late.until_it_waits(), "nothing was in its way"
        (connection.commit if commits else connection.rollback)()
        new = late.result()
    assert new.initial() == start
    found = new.allocate(start, limit=3)
    assert (found == end) is commits
    assert new.ids(start, found) == ids[: 2 if commits else 3]


VERBS: dict[str, Callable[[Reader, Offset, Offset], object]] = {
    "claims": lambda reader, start, end: reader.allocate(end),
    "asks for a replay": lambda reader, start, end: reader.allocate(start),
    "completes": lambda reader, start, end: reader.complete(end),
    "begins": lambda reader, start, end: reader.initial(),
}


@pytest.mark.parametrize("winner", ["a takeover", "a release"])
def test_a_reader_loses_to_what_commits_while_it_waits(kind: str, ours: QueueDB, theirs: QueueDB, name: str, winner: str) -> None:
    for verb, act in VERBS.items():
        queue = f"{name}-{verb}"
        enqueue(ours, queue, 3)
        ours.queue(queue).enqueue("k", unique_key="a")
        reader = open_stream(theirs, queue)
        start = reader.initial()
        end = reader.allocate(start)
        enqueue(ours, queue, 2)
        with open_transaction(ours) as connection:
            if winner == "a takeover":
                streams.open_stream(Transaction(connection, ours.store), queue, queue, "ours", 1_000_000)
            else:
                assert streams.release(Transaction(connection, ours.store), queue) == 4
            late = Loser(kind, theirs, partial(act, reader, start, end))
            assert late.until_it_waits(), f"nothing was in the way of what {verb}"
            connection.commit()
            after = snapshot(ours, queue)
            with pytest.raises(StreamFencedError):
                late.result()
        assert snapshot(ours, queue) == after, verb
        assert len(after.places) == 6


def test_a_release_loses_to_a_completion(kind: str, ours: QueueDB, theirs: QueueDB, name: str) -> None:
    enqueue(ours, name, 3)
    ours.queue(name).enqueue("k", unique_key="a")
    reader = open_stream(ours, name)
    end = reader.allocate(reader.initial())
    with open_transaction(ours) as connection:
        reader.completing(end)(Transaction(connection, reader.db.store))
        late = Loser(kind, theirs, partial(theirs.streams.release, name))
        assert late.until_it_waits(), "nothing was in its way"
        connection.commit()
        assert late.result() == 0
    assert snapshot(ours, name).places == []


def test_a_reader_whose_batch_another_one_has_completed_finds_it_gone_and_is_fenced_off(
    ours: QueueDB, theirs: QueueDB, name: str
) -> None:
    ids = enqueue(ours, name, 4)
    old = open_stream(ours, name)
    start = old.initial()
    end = old.allocate(start)
    parts = old.partition(start, end)
    new = open_stream(theirs, name)
    assert new.ids(start, end) == ids
    new.complete(end)
    assert [old.read(part) for part in parts] == [[]] * len(parts)
    with pytest.raises(StreamFencedError):
        old.complete(end)


def test_readers_that_take_a_stream_from_each_other_complete_every_job_once(ours: QueueDB, theirs: QueueDB, name: str) -> None:
    ids = enqueue(ours, name, 40)
    done: list[int] = []
    turn, finished = threading.Semaphore(0), threading.Event()

    def one_batch(reader: Reader, start: Offset) -> Offset:
        end = reader.allocate(start, limit=4)
        if end != start:
            parts = reader.partition(start, end)
            rows = [reader.read(part) for part in parts]
            # Reading is not fenced: of a batch that the other one has completed meanwhile nothing is left, and the verb says so.
            reader.complete(end)
            assert [len(some) for some in rows] == [part.jobs for part in parts], "a part has another number of jobs than recorded"
            done.extend([row[ID] for some in rows for row in some])  # list.extend is atomic
        return end

    def read() -> None:
        try:
            while True:
                reader = open_stream(ours, name)
                try:
                    at = reader.initial()
                    while (end := one_batch(reader, at)) != at:
                        at = end
                        turn.release()
                except StreamFencedError:
                    continue
                return
        finally:
            finished.set()
            turn.release()

    def disturb() -> None:
        while turn.acquire(timeout=PATIENCE) and not finished.is_set():
            reader = open_stream(theirs, name)
            try:
                one_batch(reader, reader.initial())
            except StreamFencedError:
                continue

    assert at_once(read, disturb) == [None, None]
    assert sorted(done) == ids
    assert snapshot(ours, name).places == []


# --- two streams on one queue -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("keyed", [False, True])
def test_two_streams_at_once_share_a_queue(ours: QueueDB, theirs: QueueDB, name: str, keyed: bool) -> None:
    ids = enqueue(ours, name, 70)
    if keyed:
        more = ours.queue(name).enqueue_many([("k", number, {"unique_key": f"{number}"}) for number in range(30)])
        ids += [job_id for job_id in more if job_id is not None]
    readers = [open_stream(db, name, f"{name} {number}") for number, db in enumerate((ours, theirs))]

    def drain(reader: Reader) -> list[int]:
        found: list[int] = []
        start = reader.initial()
        while (end := reader.allocate(start, limit=7)) != start:
            found += reader.ids(start, end)
            start = end
        return found

    one, other = at_once(*(partial(drain, reader) for reader in readers))
    assert isinstance(one, list), one
    assert isinstance(other, list), other
    assert sorted(one + other) == ids
    assert snapshot(ours, name).places == []


@pytest.mark.parametrize(("others", "count", "limit", "keyed"), [(60, 12, 5, False), (0, 100, 50, False), (0, 12, 5, True)])
def test_a_stream_steps_over_what_another_one_claims_at_this_moment(
    kind: str,
    differs: Callable[[str], None],
    request: pytest.FixtureRequest,
    url: str,
    name: str,
    others: int,
    count: int,
    limit: int,
    keyed: bool,
) -> None:
    differs("one writer")
    # In a table of its own, by the database's clock: how many rows there are decides which index a planner likes best, and the
    # claim must lock no more than it takes all the same.
    table = f"few_jobs_{others}_{count}"
    with QueueDB(url, table=table, worker="ours") as ours, QueueDB(url, table=table, worker="theirs") as theirs:
        ours.migrate()
        enqueue(ours, f"{name}-other", others)
        rows = [("k", number, {"unique_key": f"{number}" if keyed else None}) for number in range(count)]
        ids = ours.queue(name).enqueue_many(rows)
        mine, other = open_stream(ours, name, f"{name} a"), open_stream(theirs, name, f"{name} b")
        start, at = mine.initial(), other.initial()
        with open_transaction(ours) as connection:
            end = mine.allocating(start, limit=limit)(Transaction(connection, mine.db.store))
            late = Loser(kind, theirs, partial(other.allocate, at, limit=limit))
            assert not late.until_it_waits(), "it waited for the other stream"
            connection.commit()
            after = late.result()
        assert mine.ids(start, end) == ids[:limit]
        assert after != at, "it found nothing, although unclaimed jobs are due"
        assert other.ids(at, after) == ids[limit : 2 * limit]


# --- streams and workers ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("others", [False, True], ids=["the only stream", "one of two streams"])
def test_a_claim_loses_to_what_commits_while_it_waits_and_goes_on_with_the_rest(
    kind: str, ours: QueueDB, theirs: QueueDB, clock: SettableClock, name: str, others: bool
) -> None:
    for winner, act in WINNERS.items():
        queue = ours.queue(f"{name}-{winner}")
        # One that is replaced has a key; of the others every second one has.
        job = run_out(queue, clock, "k" if winner in ("replace", "extend", "bury", "claim") else None)
        more = enqueue(ours, queue.name, 2)
        reader = open_stream(theirs, queue.name)
        start = reader.initial()
        if others:
            open_stream(ours, queue.name, f"{queue.name} other")
        with open_transaction(ours) as connection:
            act(connection, queue, job)
            late = Loser(kind, theirs, partial(reader.allocate, start))
            assert late.until_it_waits() is (kind == "sqlite" or not others), winner
            connection.commit()
            after = state(queue, job)
            end = late.result()
        assert state(queue, job) == after, winner
        assert reader.ids(start, end) == more, winner


@pytest.mark.parametrize("key", [None, "k"], ids=["without a key", "with a key"])
def test_a_late_verdict_loses_to_a_stream(
    kind: str, ours: QueueDB, theirs: QueueDB, clock: SettableClock, name: str, key: str | None
) -> None:
    for verb, settle in LOSERS.items():
        queue = ours.queue(f"{name}-{verb}")
        job = run_out(queue, clock, key)
        late = other_handle(job, theirs.queue(queue.name))
        reader = open_stream(ours, queue.name)
        start = reader.initial()
        with open_transaction(ours) as connection:
            end = reader.allocating(start)(Transaction(connection, reader.db.store))
            loser = Loser(kind, theirs, partial(settle, late))
            assert loser.until_it_waits(), f"nothing was in the way of {verb}"
            connection.commit()
            assert loser.result() is Verdict.LOST, verb
        assert reader.ids(start, end) == [job.id], verb
        assert reader.rows(start, end)[0][0][5] == 2, "both claims are attempts"
        assert snapshot(ours, queue.name).places == [(job.id, "held")], verb
        reader.complete(end)


def test_a_worker_loses_to_a_stream_that_claims_first(
    kind: str, open_db: OpenDB, ours: QueueDB, clock: SettableClock, name: str
) -> None:
    for strategy in STRATEGIES:
        if kind == "sqlite" and steps_over_locks(strategy):
            continue
        queue = f"{name}-{strategy}"
        enqueue(ours, queue, 2)
        ours.queue(queue).enqueue("k", unique_key="a")
        worker = open_db(strategy=strategy, clock=clock)
        reader = open_stream(ours, queue)
        start = reader.initial()
        with open_transaction(ours) as connection:
            end = reader.allocating(start)(Transaction(connection, reader.db.store))
            claim = Loser(kind, worker, partial(worker.queue(queue).claim, 10))
            claim.until_it_waits()
            connection.commit()
            assert claim.result() == [], strategy
        assert len(reader.ids(start, end)) == 3
        assert worker.queue(queue).claim(10) == []


def test_content_that_replaces_a_job_at_its_completion_is_another_job(kind: str, ours: QueueDB, theirs: QueueDB, name: str) -> None:
    old = ours.queue(name).enqueue("k", "old", unique_key="a")
    reader = open_stream(ours, name)
    end = reader.allocate(reader.initial())
    with open_transaction(ours) as connection:
        reader.completing(end)(Transaction(connection, reader.db.store))
        late = Loser(kind, theirs, partial(theirs.queue(name).enqueue, "k", "new", unique_key="a", on_duplicate="replace"))
        assert late.until_it_waits(), "nothing was in its way"
        connection.commit()
        new = late.result()
    assert new != old
    assert [(job.id, job.payload) for job in ours.queue(name).peek()] == [(new, "new")]


def test_a_completion_loses_to_a_replacement_of_its_job(kind: str, ours: QueueDB, theirs: QueueDB, name: str) -> None:
    old = ours.queue(name).enqueue("k", "old", unique_key="a")
    reader = open_stream(theirs, name)
    end = reader.allocate(reader.initial())
    with open_transaction(ours) as connection:
        assert ours.queue(name).enqueue("k", "new", unique_key="a", on_duplicate="replace", using=connection) == old
        late = Loser(kind, theirs, partial(reader.complete, end))
        assert late.until_it_waits(), "nothing was in its way"
        connection.commit()
        assert late.result() is None
    assert [(job.id, job.payload) for job in ours.queue(name).peek()] == [(old, "new")]
    assert snapshot(ours, name).places == [(old, "queue")]


JOBS = 70


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_stream_and_workers_at_once_have_every_job_once(
    kind: str, differs: Callable[[str], None], open_db: OpenDB, name: str, strategy: str
) -> None:
    if steps_over_locks(strategy):
        differs("no SKIP LOCKED")
    dbs = [open_db(strategy=strategy, worker=f"{number}") for number in range(3)]
    # One job in five has a key.
    rows = [("k", number, {"unique_key": f"{number}"} if number % 5 == 0 else {}) for number in range(JOBS)]
    ids = dbs[0].queue(name).enqueue_many(rows)
    found: list[int] = []
    give_up = time.monotonic() + PATIENCE

    def more() -> bool:
        """Whether there is anything left; a test that loses a job comes to its end too."""
        return len(found) < JOBS and time.monotonic() < give_up

    def stream(db: QueueDB) -> int:
        reader = open_stream(db, name)
        at, batches = reader.initial(), 0
        while more():
            if (end := reader.allocate(at, limit=6)) != at:
                mine = reader.ids(at, end)
                reader.complete(end)
                found.extend(mine)  # list.extend is atomic
                at, batches = end, batches + 1
        return batches

    def work(db: QueueDB) -> int:
        queue, batches = db.queue(name), 0
        while more():
            jobs = queue.claim(3)
            assert all(queue.complete_many(jobs))
            found.extend([job.id for job in jobs])
            batches += bool(jobs)
        return batches

    outcomes: list[Any] = at_once(partial(stream, dbs[0]), partial(work, dbs[1]), partial(work, dbs[2]))
    assert not [one for one in outcomes if isinstance(one, Exception)], outcomes
    assert sorted(found) == ids
    assert snapshot(dbs[0], name).places == []
