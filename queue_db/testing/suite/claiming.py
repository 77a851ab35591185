"""Claim: which worker gets which job, in which order, and the attributes of the leased job."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

import pytest

from queue_db.errors import ArgumentError
from queue_db.model import State
from queue_db.queue import Queue
from queue_db.testing.clock import SettableClock

__all__ = ["TestClaim", "TestOrder"]

_LOWEST, _HIGHEST = -(2**31), 2**31 - 1


class TestClaim:
    """Each due job goes to one worker."""

    def test_the_leased_job_has_every_attribute(self, queue: Queue, name: str, clock: SettableClock) -> None:
        enqueued = clock.now()
        job_id = queue.enqueue("mail", {"to": "🦆"}, priority=2, unique_key="k", max_attempts=3, headers={"h": 1}, delay=1)
        clock.advance(2.5)
        (job,) = queue.claim(lease=30)
        assert (job.id, job.queue, job.kind, job.payload) == (job_id, name, "mail", {"to": "🦆"})
        assert (job.priority, job.unique_key, job.headers, job.last_error) == (2, "k", {"h": 1}, None)
        assert (job.attempts, job.max_attempts, job.version, job.fence) == (1, 3, 1, f"{job_id}:1")
        assert (job.created_at, job.due_at) == (enqueued, enqueued + timedelta(seconds=1))
        assert job.lease_expires == clock.now() + timedelta(seconds=30)

    def test_other_processes_see_it_running(self, queue: Queue, rival_queue: Queue, clock: SettableClock) -> None:
        queue.enqueue("mail")
        (job,) = queue.claim(lease=30)
        seen = rival_queue.get(job.id)
        assert (seen.state, seen.worker, seen.attempts, seen.version) == (State.RUNNING, "first", 1, 1)
        assert seen.available_at == clock.now() + timedelta(seconds=30)

    def test_an_empty_queue_gives_nothing(self, queue: Queue) -> None:
        assert queue.claim() == []
        assert queue.claim(limit=100) == []
        counters = queue.db.counters
        assert (counters.claims, counters.empty, counters.contended, counters.claimed, counters.missed) == (2, 2, 0, 0, 0)

    def test_no_job_is_given_twice(self, queue: Queue, rival_queue: Queue) -> None:
        ids = queue.enqueue_many([("mail", number) for number in range(8)])
        batches = [claimer.claim(limit=limit) for claimer, limit in [(queue, 3), (rival_queue, 3), (queue, 3), (rival_queue, 3)]]
        assert [len(batch) for batch in batches] == [3, 3, 2, 0]
        assert sorted(job.id for batch in batches for job in batch) == ids

    def test_a_large_batch_is_one_claim(self, queue: Queue) -> None:
        ids = queue.enqueue_many([("mail", number) for number in range(300)])
        jobs = queue.claim(limit=1000)
        assert [job.id for job in jobs] == ids
        assert [job.payload for job in jobs] == list(range(300))
        assert all(queue.complete_many(jobs))
        assert queue.stats().running == 0

    def test_a_job_is_not_seen_before_its_time(self, queue: Queue, rival_queue: Queue, clock: SettableClock) -> None:
        job_id = queue.enqueue("mail", delay=10)
        assert job_id is not None
        assert queue.get(job_id).state is State.SCHEDULED
        clock.advance(9.999999)
        assert queue.claim() == []
        assert rival_queue.claim(limit=10) == []
        clock.advance(0.000001)
        assert queue.get(job_id).state is State.AVAILABLE
        assert [job.id for job in rival_queue.claim()] == [job_id]

    def test_another_queue_keeps_its_jobs(self, queue: Queue, name: str) -> None:
        queue.db.queue(f"{name}-other").enqueue("mail")
        assert queue.claim(limit=10) == []

    def test_counters_add_up(self, queue: Queue) -> None:
        queue.enqueue_many([("mail", number) for number in range(5)])
        first, second = queue.claim(limit=3), queue.claim(limit=3)
        queue.claim()
        counters = queue.db.counters
        assert (counters.claims, counters.claimed, counters.empty) == (3, 5, 1)
        assert (counters.candidates, counters.missed, counters.contended) == (5, 0, 0)
        queue.complete_many([*first, *second])
        queue.complete_many(first)
        assert (counters.applied, counters.lost) == (5, 3)

    def test_values_out_of_range_are_refused(self, queue: Queue) -> None:
        queue.enqueue("mail")
        wrong: list[tuple[Any, Any]] = [(0, 60), (-1, 60), (10_001, 60), (1.5, 60), (True, 60), (1, 0), (1, -1), (1, math.inf)]
        for limit, lease in wrong:
            with pytest.raises(ArgumentError):
                queue.claim(limit, lease)
        assert queue.stats().available == 1


class TestOrder:
    """Lowest priority number first, then longest due, then lowest id."""

    @staticmethod
    def _fill(queue: Queue, clock: SettableClock) -> list[int]:
        """Enqueue jobs out of order; return their ids in claim order, as soon as all are due."""
        wishes = [(priority, delay) for delay in (3, 1, 2, 1, 0) for priority in (1, -1, 0)]
        ids = queue.enqueue_many([("mail", None, {"priority": priority, "delay": delay}) for priority, delay in wishes])
        clock.advance(5)
        return [job_id for _, job_id in sorted((wish, job_id) for wish, job_id in zip(wishes, ids, strict=True) if job_id)]

    def test_a_batch_comes_in_order(self, queue: Queue, clock: SettableClock) -> None:
        expected = self._fill(queue, clock)
        assert [job.id for job in queue.peek(limit=100)] == expected
        assert [job.id for job in queue.claim(limit=100)] == expected

    def test_single_claims_skip_no_more_than_the_window(self, queue: Queue, clock: SettableClock, displacement: int) -> None:
        waiting = self._fill(queue, clock)
        while waiting:
            (job,) = queue.claim()
            passed = waiting.index(job.id)
            assert passed <= displacement, f"passed over {passed} jobs; the fixture `displacement` allows {displacement}"
            waiting.remove(job.id)

    def test_a_retry_waits_its_turn_by_its_new_time(self, queue: Queue, clock: SettableClock) -> None:
        first = queue.enqueue("first")
        assert queue.claim()[0].fail("again", retry_in=10)
        clock.advance(5)
        second = queue.enqueue("second")
        clock.advance(10)
        assert [job.id for job in queue.claim(limit=2)] == [second, first]

    def test_a_new_priority_from_another_process_is_found(self, queue: Queue, rival_queue: Queue) -> None:
        queue.enqueue("known")
        assert queue.claim()[0].complete()
        wishes = [7, 0, -3, _HIGHEST, 5, _LOWEST]
        rival_queue.enqueue_many([("new", priority, {"priority": priority}) for priority in wishes])
        assert [job.payload for job in queue.claim(limit=10)] == sorted(wishes)

    def test_one_at_a_time_the_lowest_number_comes_first_from_another_process(self, queue: Queue, rival_queue: Queue) -> None:
        # One job at a time in the queue, so that a window has no choice.
        for priority in (3, -3, 0, _LOWEST, _HIGHEST):
            rival_queue.enqueue("mail", priority, priority=priority)
            assert [job.payload for job in queue.claim()] == [priority]

    def test_many_priorities_are_all_served_in_order(self, queue: Queue, rival_queue: Queue) -> None:
        priorities = [(number * 37) % 40 - 20 for number in range(40)]
        rival_queue.enqueue_many([("mail", priority, {"priority": priority}) for priority in priorities])
        assert [job.payload for job in queue.claim(limit=1000)] == sorted(priorities)
        queue.enqueue("late", 99, priority=99)
        queue.enqueue("late", -99, priority=-99)
        assert [job.payload for job in queue.claim(limit=10)] == [-99, 99]
