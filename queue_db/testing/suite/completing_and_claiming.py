"""complete_and_claim: the verdicts of a completion and the jobs of a claim, as from both verbs one after the other."""

from __future__ import annotations

from typing import Any

import pytest

from queue_db.errors import ArgumentError, JobNotFoundError
from queue_db.leased_job import LeasedJob
from queue_db.model import Verdict
from queue_db.queue import Queue
from queue_db.testing.clock import SettableClock

__all__ = ["TestCompleteAndClaim"]

APPLIED, LOST = Verdict.APPLIED, Verdict.LOST


def _expecting(queue: Queue) -> None:
    """Let a claim win all that it wanted: after that the next one expects jobs."""
    queue.enqueue("first", priority=-1)
    (job,) = queue.claim()
    assert job.kind == "first"
    assert job.complete()


def _numbers(jobs: list[LeasedJob]) -> list[int]:
    return sorted(job.payload for job in jobs)


class TestCompleteAndClaim:
    """In one transaction or in two: nothing but the cost differs."""

    @pytest.mark.parametrize("size", [1, 4])
    def test_every_job_is_claimed_and_completed_once(self, queue: Queue, size: int) -> None:
        queue.enqueue_many([("work", number) for number in range(9)])
        jobs, seen = queue.claim(size), []
        while jobs:
            seen += [job.payload for job in jobs]
            done = jobs
            verdicts, jobs = queue.complete_and_claim(done, size)
            assert verdicts == [APPLIED] * len(done)
            assert all(job.settled_by == "complete" for job in done)
            assert not {job.id for job in done} & {job.id for job in jobs}
        assert sorted(seen) == list(range(9))
        assert queue.stats().running == queue.stats().available == 0
        assert (queue.db.counters.applied, queue.db.counters.lost, queue.db.counters.claimed) == (9, 0, 9)

    def test_a_lost_lease_has_its_verdict_and_prevents_no_claim(
        self, queue: Queue, rival_queue: Queue, clock: SettableClock
    ) -> None:
        queue.enqueue_many([("work", number) for number in range(4)])
        jobs = queue.claim(4, lease=10)
        assert queue.extend_many(jobs[::2], 1000) == [APPLIED] * 2
        clock.advance(10)
        theirs = {job.id: rival_queue.get(job.id) for job in rival_queue.claim(4, lease=1000)}
        assert len(theirs) == 2
        _expecting(queue)
        queue.enqueue_many([("work", number) for number in range(10, 13)])
        order = [jobs[position] for position in (3, 0, 1, 2, 0)]
        verdicts, won = queue.complete_and_claim(order, 3, 1000)
        assert verdicts == [LOST, APPLIED, LOST, APPLIED, APPLIED]
        assert _numbers(won) == [10, 11, 12]
        assert {job_id: queue.get(job_id) for job_id in theirs} == theirs
        assert queue.complete_and_claim(order[1:3], 1)[0] == [LOST, LOST]
        assert queue.complete_many(won) == [APPLIED] * 3

    def test_two_leases_of_one_job(self, queue: Queue, clock: SettableClock) -> None:
        queue.enqueue("work", 1)
        (old,) = queue.claim(lease=10)
        clock.advance(10)
        (new,) = queue.claim(lease=10)
        _expecting(queue)
        queue.enqueue("work", 2)
        verdicts, (won,) = queue.complete_and_claim([new, old], 1)
        assert (verdicts, won.payload) == ([APPLIED, LOST], 2)

    def test_a_job_whose_lease_is_over_is_completed_and_not_claimed_anew(self, queue: Queue, clock: SettableClock) -> None:
        """The claim could take it, if the completion had not come first."""
        for size in (1, 3):
            queue.enqueue_many([("work", number) for number in range(size)])
            jobs = queue.claim(size, lease=10)
            assert len(jobs) == size
            clock.advance(10)
            verdicts, won = queue.complete_and_claim(jobs, size)
            assert verdicts == [APPLIED] * size
            assert won == []
            for job in jobs:
                with pytest.raises(JobNotFoundError):
                    queue.get(job.id)

    def test_completed_alone_or_claimed_alone(self, queue: Queue) -> None:
        assert queue.complete_and_claim([], 1) == ([], [])
        queue.enqueue_many([("work", number) for number in range(3)])
        verdicts, jobs = queue.complete_and_claim([], 2)
        assert (verdicts, len(jobs)) == ([], 2)
        assert queue.complete_and_claim(jobs, 0) == ([APPLIED] * 2, [])
        (job,) = queue.claim()
        assert queue.complete_and_claim([job], 5) == ([APPLIED], [])
        with pytest.raises(ArgumentError):
            queue.complete_and_claim([], -1)

    def test_what_is_no_list_is_refused_and_claims_nothing(self, queue: Queue) -> None:
        queue.enqueue("work")
        mistake: Any
        for mistake in (None, 0, "", "work", [None]):
            for limit in (0, 1):
                with pytest.raises(ArgumentError, match=r"leased job|LeasedJob"):
                    queue.complete_and_claim(mistake, limit)
        for mistake in (None, "abc"):
            with pytest.raises(ArgumentError, match=r"if_idle=.*queue names"):
                queue.complete_and_claim([], if_idle=mistake)
            with pytest.raises(ArgumentError, match=r"due=.*queue names"):
                queue.claim_if_idle(mistake, 1, 60)
        jobs = queue.claim()
        for mistake in ([queue], [None], [7], [""], ["a\0b"], ["\ud800"], ["x" * 500]):
            with pytest.raises(ArgumentError, match=r"if_idle"):
                queue.complete_and_claim(jobs, if_idle=mistake)
            with pytest.raises(ArgumentError, match=r"^due"):
                queue.claim_if_idle(mistake, 1, 60)
        assert queue.release_many(jobs) == [APPLIED]  # it was not completed before the refusal
        assert queue.stats().running == 0

    def test_groups_and_batches_go_on(self, queue: Queue) -> None:
        """The next job of a group, and the callback of a batch, are there for the claim of the same call."""
        for number in range(2):
            queue.enqueue("work", number, group="one")
        (job,) = queue.claim()
        for number in (1, 2, 3):
            if number == 2:
                queue.enqueue_batch([("work", 2)], then=("done", 3))
            verdicts, (job,) = queue.complete_and_claim([job], 1)
            assert (verdicts, job.payload) == ([APPLIED], number)

    def test_nothing_is_claimed_while_a_job_is_due_elsewhere(self, queue: Queue) -> None:
        urgent = queue.db.queue(f"{queue.name}-urgent")
        queue.enqueue_many([("work", number) for number in range(4)])
        jobs = queue.claim(2)
        urgent.enqueue("work")
        assert queue.complete_and_claim(jobs[:1], 1, if_idle=[urgent.name]) == ([APPLIED], [])
        assert urgent.complete_and_claim(urgent.claim(), 1)[0] == [APPLIED]
        verdicts, won = queue.complete_and_claim(jobs[1:], 2, if_idle=[urgent.name])
        assert (verdicts, len(won)) == ([APPLIED], 2)

    def test_an_exhausted_job_is_buried_on_the_way(self, queue: Queue, clock: SettableClock) -> None:
        queue.enqueue("work", 0)
        (job,) = queue.claim(lease=1000)
        queue.enqueue("work", 1, max_attempts=1)
        assert len(queue.claim(lease=10)) == 1
        clock.advance(10)
        queue.enqueue_many([("work", 2), ("work", 3)])
        verdicts, won = queue.complete_and_claim([job], 3)
        assert (verdicts, _numbers(won)) == ([APPLIED], [2, 3])
        (dead,) = queue.db.dead.list(queue.name)
        assert dead.payload == 1
        assert queue.db.counters.exhausted == 1
