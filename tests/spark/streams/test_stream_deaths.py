"""Jobs that a reader gives up: read again as long as their batch is, and dead when it is completed."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

import pytest

from queue_db import QueueDB, State
from queue_db.database.transaction import Run
from queue_db.spark.streams import store as streams
from queue_db.spark.streams.store import Offset
from queue_db.store import Transaction
from queue_db.testing import SettableClock
from tests.plans.test_many_of_their_own import MOST_PARAMETERS, parameters
from tests.races.interleaving import Loser, open_transaction
from tests.spark.streams.conftest import ID, VERSION, Reader, delivered_again, enqueue, open_stream, snapshot
from tests.spark.streams.test_stream_keys import cancel


@pytest.fixture
def held(ours: QueueDB, name: str) -> tuple[Reader, Offset, Offset]:
    """A batch of five jobs, the fourth of them with a key."""
    enqueue(ours, name, 3, headers={"h": 1}, priority=2, max_attempts=3)
    ours.queue(name).enqueue("k", "keyed", unique_key="a")
    enqueue(ours, name, 1)
    reader = open_stream(ours, name)
    start = reader.initial()
    return reader, start, reader.allocate(start)


def pairs(held: tuple[Reader, Offset, Offset]) -> list[tuple[int, int]]:
    reader, start, end = held
    return sorted((row[ID], row[VERSION]) for part in reader.rows(start, end) for row in part)


def test_marked_jobs_are_read_again_and_die_at_completion(
    ours: QueueDB, theirs: QueueDB, clock: SettableClock, name: str, held: tuple[Reader, Offset, Offset]
) -> None:
    reader, start, end = held
    first, second, _, keyed, _ = pairs(held)
    rows = reader.rows(start, end)
    reason = "no use \N{GRINNING FACE}'\\"
    assert reader.mark_dead({second: "not this", keyed: "key"}) == 2
    assert reader.mark_dead({first: "x" * 100_000, second: reason}) == 2, "the last reason counts"
    assert theirs.dead.list(name) == []
    late = open_stream(theirs, name)
    assert late.allocate(start) == end
    assert late.rows(start, end) == delivered_again(rows, 1)
    clock.advance(9)
    late.complete(end)
    dead = {job.id: job for job in ours.dead.list(name)}
    assert {job_id: job.last_error for job_id, job in dead.items()} == {
        first[0]: "x" * 100_000,
        second[0]: reason,
        keyed[0]: "key",
    }
    job = dead[second[0]]
    assert (job.kind, job.payload, dict(job.headers), job.priority, job.max_attempts) == ("kind", 1, {"h": 1}, 2, 3)
    assert (job.state, job.version, job.attempts, job.worker) == (State.DEAD, second[1], 2, "theirs")
    assert (job.available_at, (job.available_at - job.created_at).total_seconds()) == (clock.now(), 9)
    assert snapshot(ours, name).places == sorted((job_id, "dead") for job_id in dead)
    assert dead[keyed[0]].unique_key == "a"
    # The key is free again, and what is dead can come back.
    assert ours.queue(name).enqueue("k", unique_key="a", on_duplicate="skip") is not None
    assert ours.dead.redrive(second[0]) == [second[0]]
    assert ours.queue(name).get(second[0]).version == second[1] + 1


def test_many_jobs_are_marked_with_a_few_statements_each_with_its_own_reason(ours: QueueDB, name: str) -> None:
    enqueue(ours, name, 1100)
    reader = open_stream(ours, name)
    start = reader.initial()
    end = reader.allocate(start, limit=1100)
    found = pairs((reader, start, end))
    wrong = {(job_id, version + 1): "of another delivery" for job_id, version in found[:100]}
    with parameters(ours) as sent:
        assert reader.mark_dead({pair: f"no {number % 999}" for number, pair in enumerate(found)} | wrong) == 1100
    updates = [count for statement, count in sent if statement.startswith("UPDATE")]
    assert len(updates) == 3
    assert max(updates) < MOST_PARAMETERS
    reader.complete(end)
    reasons = {job.id: job.last_error for job in ours.dead.list(name, limit=2000)}
    assert reasons == {job_id: f"no {number % 999}" for number, (job_id, _) in enumerate(found)}


def test_an_allocation_buries_the_marked_jobs_of_the_batch_before(
    ours: QueueDB, name: str, held: tuple[Reader, Offset, Offset]
) -> None:
    reader, _, end = held
    first = pairs(held)[0]
    reader.mark_dead({first: "no use"})
    assert reader.allocate(end) == end
    assert snapshot(ours, name).places == [(first[0], "dead")]


def test_only_held_jobs_are_marked(ours: QueueDB, theirs: QueueDB, name: str, held: tuple[Reader, Offset, Offset]) -> None:
    reader, _, end = held
    job_id, version = pairs(held)[0]
    other = open_stream(theirs, name, f"{name} other")
    before = snapshot(ours, name)
    assert reader.mark_dead({}) == 0
    assert reader.mark_dead({(job_id, version + 1): "", (job_id, version - 1): "", (2**60, 1): ""}) == 0
    assert other.mark_dead({(job_id, version): "not mine"}) == 0
    assert snapshot(ours, name) == before
    reader.complete(end)
    assert reader.mark_dead({(job_id, version): "too late"}) == 0
    assert ours.dead.list(name) == []


def test_released_jobs_do_not_die(ours: QueueDB, name: str, held: tuple[Reader, Offset, Offset]) -> None:
    reader, _, _ = held
    assert reader.mark_dead(dict.fromkeys(pairs(held), "no use")) == 5
    assert ours.streams.release(name) == 5
    assert [place for _, place in snapshot(ours, name).places] == ["queue"] * 5
    reader = open_stream(ours, name)
    reader.complete(reader.allocate(reader.initial()))
    assert snapshot(ours, name).places == []


# --- of jobs that are not the stream's any more -----------------------------------------------------------------------


@pytest.mark.parametrize("first", ["marked", "replaced"])
def test_a_job_that_was_replaced_while_held_is_in_one_place(
    ours: QueueDB, name: str, held: tuple[Reader, Offset, Offset], first: str
) -> None:
    reader, _, end = held
    keyed = pairs(held)[3]
    if first == "marked":
        reader.mark_dead({keyed: "no use"})
    assert ours.queue(name).enqueue("k", "new", unique_key="a", on_duplicate="replace") == keyed[0]
    if first == "replaced":
        reader.mark_dead({keyed: "no use"})
    reader.complete(end)
    assert snapshot(ours, name).places == [(keyed[0], "queue")]


@pytest.mark.parametrize("by", ["a worker", "the stream"])
def test_the_new_content_of_a_job_that_was_replaced_while_held_can_die(
    ours: QueueDB, name: str, held: tuple[Reader, Offset, Offset], by: str
) -> None:
    reader, _, end = held
    keyed = pairs(held)[3]
    reader.mark_dead({keyed: "no use"})
    ours.queue(name).enqueue("k", "new", unique_key="a", on_duplicate="replace")
    reader.complete(end)
    if by == "a worker":
        (job,) = ours.queue(name).claim()
        assert job.bury("no use either")
    else:
        after = reader.allocate(end)
        assert reader.mark_dead(dict.fromkeys(pairs((reader, end, after)), "no use either")) == 1
        reader.complete(after)
    (dead,) = ours.dead.list(name)
    assert (dead.payload, dead.last_error) == ("new", "no use either")


def test_a_job_that_was_cancelled_while_held_does_not_die(ours: QueueDB, name: str, held: tuple[Reader, Offset, Offset]) -> None:
    reader, _, end = held
    keyed = pairs(held)[3]
    reader.mark_dead({keyed: "no use"})
    cancel(ours, name, keyed[0])
    reader.complete(end)
    assert snapshot(ours, name).places == []


def test_a_mark_loses_to_a_completion(kind: str, open_db: Callable[..., QueueDB], name: str) -> None:
    ours, theirs = open_db(), open_db()
    enqueue(ours, name, 2)
    reader = open_stream(ours, name)
    start = reader.initial()
    end = reader.allocate(start)
    pair = pairs((reader, start, end))[0]
    with open_transaction(ours) as connection:
        reader.completing(end)(Transaction(connection, reader.db.store))
        mark = Loser(kind, theirs, partial(Reader(theirs, reader.session).mark_dead, {pair: "no use"}))
        assert mark.until_it_waits(), "nothing was in its way"
        connection.commit()
        assert mark.result() == 0
    assert snapshot(ours, name).places == []


def test_a_completion_that_waits_for_a_mark_sees_it(kind: str, open_db: Callable[..., QueueDB], name: str) -> None:
    ours, theirs = open_db(), open_db()
    enqueue(ours, name, 2)
    reader = open_stream(ours, name)
    start = reader.initial()
    end = reader.allocate(start)
    pair = pairs((reader, start, end))[0]
    with open_transaction(ours) as connection:
        assert streams.mark_dead(Transaction(connection, ours.store), reader.session.stream, {pair: "no use"}) == 1
        late = Loser(kind, theirs, partial(Reader(theirs, reader.session).complete, end))
        assert late.until_it_waits(), "nothing was in its way"
        connection.commit()
        late.result()
    assert snapshot(ours, name).places == [(pair[0], "dead")]


@pytest.mark.parametrize("by", ["complete", "allocate"])
def test_each_death_is_logged_and_counted_after_the_commit(
    ours: QueueDB, name: str, held: tuple[Reader, Offset, Offset], by: str, caplog: pytest.LogCaptureFixture
) -> None:
    reader, _, end = held
    first, second, _, keyed, _ = pairs(held)
    assert reader.mark_dead({first: "no use", second: "no use", keyed: "key"}) == 3
    before = ours.counters.dead
    ours.core.queue_counters.take()
    with caplog.at_level(logging.WARNING, "queue_db.dead"):
        work = {
            "complete": partial(streams.complete, session=reader.session, end=end),
            "allocate": partial(streams.allocate, session=reader.session, start=end, limit=5, ceiling=None, partitions=1),
        }[by]

        def change(tx: Transaction) -> None:
            work(tx)
            assert caplog.records == []

        ours.core.run_reporting_deaths(Run("stream", repeatable=True), change)
    assert ours.counters.dead - before == len(ours.dead.list(name)) == 3
    assert ours.core.queue_counters.take() == {name: {"died": 3}}, "the metrics of its queue do not have them"
    logged = {record.job_id: (record.queue, record.reason, record.getMessage()) for record in caplog.records}
    assert {job_id: record[:2] for job_id, record in logged.items()} == dict.fromkeys(
        (job_id for job_id, _ in (first, second, keyed)), (name, "rejected")
    )
    assert logged[first[0]][2] == f"job {first[0]} 'kind' in {name!r} is dead after attempt 1/3 (rejected): no use"


def test_each_death_of_a_completion_by_hand_is_logged_and_counted(
    ours: QueueDB, name: str, held: tuple[Reader, Offset, Offset], caplog: pytest.LogCaptureFixture
) -> None:
    reader, _, _ = held
    first, *_ = pairs(held)
    assert reader.mark_dead({first: "no use"}) == 1
    with caplog.at_level(logging.WARNING, "queue_db.dead"):
        assert ours.streams.complete(reader.session.name) == 5
    assert [record.job_id for record in caplog.records if record.name == "queue_db.dead"] == [first[0]]
