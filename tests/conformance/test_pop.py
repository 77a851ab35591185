"""Pop: a job leaves the table with its claim, at most once, on every database with each strategy and with each removal."""

# ruff: noqa: F811 - tests ask for fixtures by the names under which they are imported

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Connection, event, update

from queue_db import QueueDB
from queue_db.errors import ArgumentError, JobNotFoundError
from queue_db.model import Job, State
from queue_db.queue import MAX_CLAIM, Queue
from queue_db.testing.clock import SettableClock
from queue_db.testing.statements import counted_statements
from queue_db.testing.suite import OpenDB, clock, db, name, queue, rival, rival_queue  # noqa: F401
from tests.conformance import grid
from tests.conformance.combinations import SERVED, Combination

#: Longer than any lease.
LONG = 10 * 365 * 86400


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    grid.parametrize(metafunc, SERVED)


@pytest.fixture
def open_db(combination: Combination, pooled: Callable[..., QueueDB]) -> OpenDB:
    return lambda **options: pooled(combination, options)


def fill(queue: Queue, clock: SettableClock) -> list[int]:
    """Nine jobs enqueued out of order; their ids in claim order, once all are due."""
    wishes = [(priority, delay) for delay in (2, 0, 1) for priority in (1, -1, 0)]
    ids = queue.enqueue_many([("mail", None, {"priority": priority, "delay": delay}) for priority, delay in wishes])
    clock.advance(5)
    return [job_id for _, job_id in sorted((wish, job_id) for wish, job_id in zip(wishes, ids, strict=True) if job_id)]


def test_a_batch_comes_in_claim_order(queue: Queue, clock: SettableClock) -> None:
    expected = fill(queue, clock)
    assert [job.id for job in queue.peek(limit=100)] == expected
    assert [job.id for job in queue.pop(100)] == expected


def test_one_at_a_time_passes_over_no_more_than_the_window(queue: Queue, clock: SettableClock, combination: Combination) -> None:
    waiting = fill(queue, clock)
    while waiting:
        (job,) = queue.pop()
        passed = waiting.index(job.id)
        assert passed <= combination.displacement, (
            f"passed over {passed}: DISPLACEMENT in tests/conformance/combinations.py has the most"
        )
        waiting.remove(job.id)
    assert queue.pop() == []


def test_a_pop_returns_the_whole_job(queue: Queue, name: str, clock: SettableClock) -> None:
    enqueued = clock.now()
    job_id = queue.enqueue("mail", {"to": "🦆"}, priority=2, unique_key="k", max_attempts=3, headers={"h": 1})
    (job,) = queue.pop()
    assert type(job) is Job
    assert (job.id, job.queue, job.kind, job.payload) == (job_id, name, "mail", {"to": "🦆"})
    assert (job.priority, job.unique_key, job.headers, job.last_error) == (2, "k", {"h": 1}, None)
    assert (job.attempts, job.max_attempts, job.created_at) == (1, 3, enqueued)
    assert (job.state, job.worker) == (State.RUNNING, "first")


def test_what_was_popped_never_comes_back(queue: Queue, rival_queue: Queue, clock: SettableClock) -> None:
    queue.enqueue_many([("mail", number) for number in range(3)])
    popped = queue.pop(2)
    assert len(popped) == 2
    for job in popped:
        with pytest.raises(JobNotFoundError):
            rival_queue.get(job.id)
    clock.advance(LONG)
    (left,) = rival_queue.claim(10)
    assert left.id not in [job.id for job in popped]
    assert rival_queue.stats().dead == 0
    assert left.complete()


def test_no_row_is_left_to_sweep(queue: Queue) -> None:
    """Under delete_mark too a popped row is deleted: it is never completed, so there is nothing to mark."""
    queue.enqueue_many([("mail", number) for number in range(3)])
    assert len(queue.pop(3)) == 3
    jobs = queue.db.store.tables.jobs
    with queue.db.database.engine.connect() as connection:
        assert connection.execute(jobs.select().where(jobs.c.queue == queue.name)).all() == []


def test_its_unique_key_is_free_at_once(queue: Queue) -> None:
    queue.enqueue("mail", unique_key="k")
    assert [job.unique_key for job in queue.pop()] == ["k"]
    assert queue.enqueue("mail", unique_key="k") is not None


def test_pops_are_counted_as_claims(queue: Queue) -> None:
    queue.enqueue_many([("mail", number) for number in range(5)])
    assert [len(queue.pop(3)) for _ in range(3)] == [3, 2, 0]
    counters = queue.db.counters
    assert (counters.claims, counters.claimed, counters.empty, counters.contended) == (3, 5, 1, 0)
    assert (counters.candidates, counters.missed, counters.applied, counters.lost) == (5, 0, 0, 0)


def test_jobs_of_groups_that_nobody_else_claims_are_not_counted_as_missed(queue: Queue) -> None:
    queue.enqueue_many([("mail", number, {"group": str(number)}) for number in range(4)])
    assert [len(queue.pop()) for _ in range(5)] == [1, 1, 1, 1, 0]
    assert (queue.db.counters.candidates, queue.db.counters.missed) == (4, 0)


def test_no_job_is_popped_twice_and_none_that_is_leased(queue: Queue, rival_queue: Queue) -> None:
    ids = queue.enqueue_many([("mail", number) for number in range(9)])
    leased = queue.claim(3)
    popped = [popper.pop(2) for popper in (queue, rival_queue, queue, rival_queue)]
    assert [len(batch) for batch in popped] == [2, 2, 2, 0]
    assert sorted([*(job.id for job in leased), *(job.id for batch in popped for job in batch)]) == ids
    assert all(queue.complete_many(leased))


def test_a_job_is_not_popped_before_its_time(queue: Queue, clock: SettableClock) -> None:
    queue.enqueue("mail", delay=10)
    assert queue.pop() == []
    clock.advance(10)
    assert len(queue.pop()) == 1


def test_the_limit_is_kept(queue: Queue) -> None:
    queue.enqueue_many([("mail", number) for number in range(5)])
    assert len(queue.pop()) == 1
    assert len(queue.pop(3)) == 3
    assert queue.stats().available == 1
    wrong: list[Any] = [0, -1, 1.5, True, MAX_CLAIM + 1]
    for limit in wrong:
        with pytest.raises(ArgumentError, match="limit"):
            queue.pop(limit)
    assert queue.stats().available == 1


def exhaust(queue: Queue, clock: SettableClock, jobs: int) -> list[int]:
    """Jobs whose worker vanished during their only attempt."""
    queue.enqueue_many([("fatal", number, {"max_attempts": 1}) for number in range(jobs)])
    gone = queue.claim(jobs, lease=10)
    clock.advance(11)
    return [job.id for job in gone]


def test_an_exhausted_job_goes_to_the_dead_and_is_not_popped(queue: Queue, name: str, clock: SettableClock) -> None:
    ids = exhaust(queue, clock, 2)
    assert queue.pop(10) == []
    dead = queue.db.dead.list(name)
    assert sorted(job.id for job in dead) == sorted(ids)
    assert all(job.last_error is not None and "no verdict after 1 attempts" in job.last_error for job in dead)
    counters = queue.db.counters
    assert (counters.exhausted, counters.claimed) == (2, 2)  # claimed: by the worker that vanished


def test_exhausted_jobs_are_replaced_by_others(queue: Queue, clock: SettableClock) -> None:
    exhaust(queue, clock, 2)
    fresh = queue.enqueue_many([("mail", number) for number in range(3)])
    # The claim takes several rounds, each in claim order; a window may pass over some jobs in the first.
    assert sorted(job.id for job in queue.pop(3)) == fresh


def test_a_payload_that_cannot_be_decoded_is_shown_as_its_text(queue: Queue) -> None:
    job_id = queue.enqueue("mail", {"to": "a@b"})
    jobs = queue.db.store.tables.jobs
    with queue.db.database.engine.begin() as connection:
        connection.execute(update(jobs).where(jobs.c.id == job_id).values(payload="{not json"))
    (job,) = queue.pop()
    assert (job.id, job.payload) == (job_id, "{not json")


class Struck(Exception):
    """Interrupts a pop after its DELETE."""


def test_jobs_stay_when_the_pop_is_interrupted(queue: Queue, clock: SettableClock) -> None:
    ids = queue.enqueue_many([("mail", number) for number in range(2)])
    engine = queue.db.database.engine
    deleted: list[str] = []

    def strike(connection: Connection, cursor: Any, statement: str, *_: Any) -> None:
        if "DELETE FROM" in statement:
            deleted.append(statement)
            raise Struck

    event.listen(engine, "after_cursor_execute", strike)
    try:
        with pytest.raises(Struck):
            queue.pop(2)
    finally:
        event.remove(engine, "after_cursor_execute", strike)
    assert deleted
    # Neither deleted nor leased: the lease of a pop is part of its transaction.
    assert queue.stats().available == 2
    assert queue.db.counters.claimed == 0
    popped = queue.pop(2)
    assert [job.id for job in popped] == ids
    assert [job.attempts for job in popped] == [1, 1]


def test_it_takes_the_statements_of_a_claim_and_of_a_deletion(
    open_db: OpenDB, clock: SettableClock, name: str, combination: Combination
) -> None:
    deletion = Combination(combination.kind, "adaptive", "delete").costs(open_db())
    claim = combination.costs(open_db()).claim
    for jobs in (1, 10):
        # A new object: its very first pop counts.
        queue = open_db(clock=clock).queue(name)
        open_db(clock=clock).queue(name).enqueue_many([("mail", number) for number in range(2 * jobs)])
        for _ in range(2):
            with counted_statements(queue.db.database.engine) as popping:
                assert len(queue.pop(jobs)) == jobs
            assert len(popping) <= claim + (deletion.complete if jobs > 1 else deletion.complete_one), popping
