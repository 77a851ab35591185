"""Leases: they expire, are extended and lost, and each has its own version."""

from __future__ import annotations

from datetime import timedelta

import pytest

from queue_db.errors import JobNotFoundError
from queue_db.leased_job import LeasedJob
from queue_db.model import State, Verdict
from queue_db.queue import Queue
from queue_db.testing.clock import SettableClock

__all__ = ["TestExtend", "TestLease", "TestVanishedWorkers", "TestVersions"]


class TestLease:
    """A job whose lease has expired is due again, without a rescue."""

    def test_the_job_is_due_again_at_the_end_of_its_lease(self, queue: Queue, rival_queue: Queue, clock: SettableClock) -> None:
        queue.enqueue("mail")
        (first,) = queue.claim(lease=10)
        clock.advance(9.999999)
        assert rival_queue.claim() == []
        clock.advance(0.000001)
        assert queue.get(first.id).state is State.AVAILABLE
        (second,) = rival_queue.claim(lease=10)
        assert (second.id, second.attempts, second.version) == (first.id, 2, first.version + 1)
        assert second.due_at == first.lease_expires

    def test_an_expired_lease_is_valid_until_another_claim(self, queue: Queue, clock: SettableClock) -> None:
        queue.enqueue("mail")
        (job,) = queue.claim(lease=10)
        clock.advance(1000)
        assert job.complete() is Verdict.APPLIED

    def test_each_lease_has_its_own_length(self, queue: Queue, clock: SettableClock) -> None:
        queue.enqueue_many([("short", None), ("long", None)])
        (_, long) = sorted((queue.claim(lease=1)[0], queue.claim(lease=100)[0]), key=lambda job: job.lease_expires)
        clock.advance(50)
        assert [job.id for job in queue.claim(limit=10)] != [long.id]
        assert queue.claim(limit=10) == []
        assert long.complete()


class TestExtend:
    """The heartbeat."""

    def test_the_lease_ends_later_under_a_new_version(self, queue: Queue, clock: SettableClock) -> None:
        queue.enqueue("mail")
        (job,) = queue.claim(lease=10)
        clock.advance(4)
        assert job.extend(30) is Verdict.APPLIED
        assert (job.version, job.fence) == (2, f"{job.id}:2")
        assert job.lease_expires == clock.now() + timedelta(seconds=30)
        seen = queue.get(job.id)
        assert (seen.version, seen.available_at, seen.state, seen.attempts) == (2, job.lease_expires, State.RUNNING, 1)

    def test_the_job_is_not_claimable_between_the_old_end_and_the_new(
        self, queue: Queue, rival_queue: Queue, clock: SettableClock
    ) -> None:
        queue.enqueue("mail")
        (job,) = queue.claim(lease=10)
        assert job.extend(30)
        clock.advance(29)
        assert rival_queue.claim() == []
        clock.advance(1)
        assert [again.id for again in rival_queue.claim()] == [job.id]
        assert job.extend(30) is Verdict.LOST

    def test_the_pair_before_an_extend_is_a_lost_lease(self, queue: Queue) -> None:
        queue.enqueue("mail")
        (job,) = queue.claim()
        assert job.extend(60)
        before = queue.get(job.id)
        job.version -= 1  # as a copy of the job from before the heartbeat
        assert job.extend(60) is Verdict.LOST
        assert job.complete() is Verdict.LOST
        assert queue.get(job.id) == before

    def test_a_lost_extend_leaves_the_job_object_as_it_was(self, queue: Queue, rival_queue: Queue, clock: SettableClock) -> None:
        queue.enqueue("mail")
        (job,) = queue.claim(lease=1)
        clock.advance(2)
        assert rival_queue.claim()
        version, ends = job.version, job.lease_expires
        assert job.extend(60) is Verdict.LOST
        assert (job.version, job.lease_expires) == (version, ends)

    def test_extend_can_shorten_a_lease(self, queue: Queue, rival_queue: Queue, clock: SettableClock) -> None:
        queue.enqueue("mail")
        (job,) = queue.claim(lease=100)
        assert job.extend(1)
        clock.advance(2)
        assert [again.id for again in rival_queue.claim()] == [job.id]


class TestVanishedWorkers:
    """A job whose workers vanish uses up its attempts and moves to the dead table."""

    def test_attempts_count_without_a_verdict(self, queue: Queue, clock: SettableClock) -> None:
        queue.enqueue("crash", max_attempts=3)
        for attempt in (1, 2, 3):
            (job,) = queue.claim(lease=1)
            assert job.attempts == attempt
            clock.advance(2)
        assert queue.claim() == []
        (dead,) = queue.db.dead.list(queue.name)
        assert (dead.kind, dead.state) == ("crash", State.DEAD)
        assert "no verdict after 3 attempts" in (dead.last_error or "")
        assert queue.db.counters.exhausted == 1
        assert job.complete() is Verdict.LOST

    def test_the_last_reported_error_is_kept(self, queue: Queue, clock: SettableClock) -> None:
        queue.enqueue("crash", max_attempts=2)
        assert queue.claim()[0].fail("the first reason", retry_in=0)
        queue.claim(lease=1)
        clock.advance(2)
        assert queue.claim() == []
        (dead,) = queue.db.dead.list(queue.name)
        assert "the first reason" in (dead.last_error or "")

    def test_the_claim_goes_on_to_the_jobs_behind(self, queue: Queue, clock: SettableClock) -> None:
        queue.enqueue_many([("crash", number, {"max_attempts": 1}) for number in range(3)])
        assert len(queue.claim(limit=3, lease=1)) == 3
        clock.advance(2)
        queue.enqueue_many([("fine", number) for number in range(2)])
        claimed = [job.kind for _ in range(2) for job in queue.claim()]
        assert claimed == ["fine", "fine"]
        assert queue.claim() == []
        assert queue.stats().dead == 3


class TestVersions:
    """A pair (id, version) identifies one lease and is never reused."""

    def test_the_version_goes_up_by_one_with_every_change(self, queue: Queue, clock: SettableClock) -> None:
        job_id = queue.enqueue("mail", unique_key="k", max_attempts=4)
        assert job_id is not None
        leases: list[tuple[int, int]] = []

        def claim() -> LeasedJob:
            (job,) = queue.claim(lease=10)
            leases.append((job.id, job.version))
            return job

        def expect(version: int) -> None:
            assert queue.get(job_id).version == version

        expect(0)
        job = claim()
        expect(1)
        assert job.extend(10)
        expect(2)
        assert job.snooze(1)
        expect(3)
        clock.advance(1)
        job = claim()
        expect(4)
        assert job.release()
        expect(5)
        claim()
        expect(6)
        clock.advance(10)
        job = claim()
        expect(7)
        assert job.fail("again", retry_in=0)
        expect(8)
        queue.enqueue("mail", unique_key="k", on_duplicate="replace", max_attempts=1)
        expect(9)
        assert claim().fail("the last one")
        expect(11)
        assert queue.db.dead.redrive(job_id) == [job_id]
        expect(12)
        assert claim().bury("no use")
        expect(14)
        assert queue.db.dead.redrive(job_id) == [job_id]
        expect(15)
        assert claim().complete()
        with pytest.raises(JobNotFoundError):
            queue.get(job_id)
        assert len(set(leases)) == len(leases)
        assert leases == sorted(leases)

    def test_a_fence_of_an_earlier_life_matches_nothing(self, queue: Queue) -> None:
        job_id = queue.enqueue("mail")
        (job,) = queue.claim()
        assert job.bury("no use")
        assert queue.db.dead.redrive(job_id) == [job_id]
        before = queue.get(job.id)
        assert job.complete() is Verdict.LOST
        assert job.bury("again") is Verdict.LOST
        assert queue.get(job.id) == before
