"""Many who enqueue one key at once: one live job, and everyone is told the truth about it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from queue_db import DuplicateJobError, Queue, QueueDB, Verdict
from queue_db.testing import SettableClock
from tests.races.interleaving import Loser, at_once, between, open_transaction
from tests.races.test_claim_loses import expired
from tests.races.winners import WINNERS

THREADS = 6


@pytest.fixture
def producers(open_db: Callable[..., QueueDB], name: str) -> list[Queue]:
    return [open_db().queue(name) for _ in range(THREADS)]


def test_raising_enqueues_of_one_key_lose_but_one(producers: list[Queue]) -> None:
    for number in range(8):
        got = at_once(*(partial(queue.enqueue, "mail", unique_key=f"k{number}") for queue in producers))
        (winner,) = [job_id for job_id in got if isinstance(job_id, int)]
        losers = [error for error in got if isinstance(error, DuplicateJobError)]
        assert len(losers) == THREADS - 1, got
        assert {error.existing_id for error in losers} == {winner}
    assert producers[0].stats().available == 8


def test_skipping_enqueues_of_one_key_lose_but_one(producers: list[Queue]) -> None:
    for number in range(8):
        enqueues = (partial(queue.enqueue, "mail", unique_key=f"k{number}", on_duplicate="skip") for queue in producers)
        got = at_once(*enqueues)
        assert len([job_id for job_id in got if isinstance(job_id, int)]) == 1, got
        assert got.count(None) == THREADS - 1, got
    assert producers[0].stats().available == 8


def test_replacing_enqueues_of_one_key_all_stand_in_one_place(producers: list[Queue]) -> None:
    for number in range(8):
        enqueues = (partial(queue.enqueue, "mail", unique_key=f"k{number}", on_duplicate="replace") for queue in producers)
        got = at_once(*enqueues)
        (job_id,) = set(got)
        assert isinstance(job_id, int), got
        assert producers[0].get(job_id).version == THREADS - 1
    assert producers[0].stats().available == 8


def test_lists_with_the_same_keys_in_opposite_order_lose_key_by_key(producers: list[Queue]) -> None:
    # The two may well deadlock over the keys; the one that the database gives up is run again.
    jobs = [("mail", f"k{number}", {"unique_key": f"k{number}"}) for number in range(30)]
    there, back = at_once(
        partial(producers[0].enqueue_many, jobs, on_duplicate="skip"),
        partial(producers[1].enqueue_many, jobs[::-1], on_duplicate="skip"),
    )
    assert isinstance(there, list), there
    assert isinstance(back, list), back
    assert [(one is None) + (other is None) for one, other in zip(there, back[::-1], strict=True)] == [1] * 30
    assert sorted(job.payload for job in producers[0].peek(limit=100)) == sorted(key for _, key, _ in jobs)


def test_replace_loses_the_version_to_a_claim_and_fences_the_claimer(
    kind: str, clock: SettableClock, ours: Queue, theirs: Queue
) -> None:
    job = expired(ours, clock)
    with open_transaction(ours.db) as connection:
        WINNERS["claim"](connection, ours, job)
        replace = Loser(kind, theirs.db, lambda: theirs.enqueue("new", unique_key="k", on_duplicate="replace"))
        assert replace.until_it_waits()
        connection.commit()
        assert replace.result() == job.id
    seen = ours.get(job.id)
    assert (seen.kind, seen.version, seen.attempts, seen.worker) == ("new", job.version + 2, 0, None)
    assert job.complete() is Verdict.LOST


def test_replace_loses_the_place_to_a_completion_and_makes_a_new_job(
    kind: str, clock: SettableClock, ours: Queue, theirs: Queue
) -> None:
    job = expired(ours, clock)
    with open_transaction(ours.db) as connection:
        WINNERS["complete"](connection, ours, job)
        replace = Loser(kind, theirs.db, lambda: theirs.enqueue("new", unique_key="k", on_duplicate="replace"))
        assert replace.until_it_waits()
        connection.commit()
        new = replace.result()
    assert new > job.id
    assert [found.id for found in ours.peek()] == [new]


@pytest.mark.parametrize("policy", ["raise", "skip", "replace"])
def test_enqueue_loses_to_a_key_that_is_not_yet_committed(
    kind: str, open_db: Callable[..., QueueDB], name: str, policy: str
) -> None:
    first, second = open_db().queue(name), open_db().queue(name)
    with open_transaction(first.db) as connection:
        first_id = first.enqueue("first", unique_key="k", using=connection)
        late = Loser(kind, second.db, lambda: second.enqueue("second", unique_key="k", on_duplicate=policy))
        assert late.until_it_waits(), "the second one did not wait for the first one's fate"
        connection.commit()
        if policy == "raise":
            with pytest.raises(DuplicateJobError):
                late.result()
        else:
            assert late.result() == (None if policy == "skip" else first_id)
    assert [job.kind for job in first.peek()] == ["second" if policy == "replace" else "first"]


@pytest.mark.parametrize("policy", ["raise", "skip", "replace"])
def test_enqueue_wins_over_a_key_that_is_rolled_back(kind: str, open_db: Callable[..., QueueDB], name: str, policy: str) -> None:
    first, second = open_db().queue(name), open_db().queue(name)
    with open_transaction(first.db) as connection:
        first.enqueue("first", unique_key="k", using=connection)
        late = Loser(kind, second.db, lambda: second.enqueue("second", unique_key="k", on_duplicate=policy))
        assert late.until_it_waits()
        connection.rollback()
        assert late.result() is not None
    assert [job.kind for job in first.peek()] == ["second"]


@pytest.mark.parametrize("policy", ["raise", "skip", "replace"])
def test_enqueue_loses_between_its_look_and_its_insert(
    differs: Callable[[str], None], ours: Queue, theirs: Queue, policy: str
) -> None:
    differs("one writer")
    with between(ours.db.database.engine, "INSERT", lambda: theirs.enqueue("first", unique_key="k")) as done:
        if policy == "raise":
            with pytest.raises(DuplicateJobError) as caught:
                ours.enqueue("second", unique_key="k")
            assert caught.value.existing_id == done[0]
        else:
            job_id = ours.enqueue("second", unique_key="k", on_duplicate=policy)
            assert job_id == (None if policy == "skip" else done[0])
    assert [job.kind for job in ours.peek()] == ["second" if policy == "replace" else "first"]
