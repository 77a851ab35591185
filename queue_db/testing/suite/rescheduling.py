"""Another due time or priority for a job that waits."""

from __future__ import annotations

from datetime import timedelta

import pytest

from queue_db.errors import ArgumentError, JobNotFoundError, JobStateError
from queue_db.model import State, Verdict
from queue_db.queue import Queue
from queue_db.testing.clock import SettableClock

__all__ = ["TestReschedule"]

APPLIED, LOST = Verdict.APPLIED, Verdict.LOST


def _enqueued(queue: Queue, kind: str = "mail", **options: object) -> int:
    job_id: int | None = queue.enqueue(kind, **options)  # type: ignore[call-overload]
    assert job_id is not None
    return job_id


class TestReschedule:
    """``queue.reschedule``, and ``cancel`` with a version."""

    def test_a_delayed_job_runs_now(self, queue: Queue) -> None:
        job_id = _enqueued(queue, delay=3600)
        before = queue.get(job_id)
        assert queue.reschedule(job_id, delay=0) is APPLIED
        after = queue.get(job_id)
        assert (after.state, after.version, after.priority) == (State.AVAILABLE, before.version + 1, before.priority)
        (job,) = queue.claim()
        assert (job.id, job.attempts) == (job_id, 1)

    def test_a_job_gets_another_time(self, queue: Queue, clock: SettableClock) -> None:
        job_id = _enqueued(queue)
        start = clock.now()
        for options, seconds in (
            ({"delay": 60}, 60),
            ({"run_at": start + timedelta(seconds=30)}, 30),
            ({"run_at": start + timedelta(seconds=30), "delay": 90}, 90),
            ({"run_at": start + timedelta(seconds=30), "delay": 10}, 30),
        ):
            assert queue.reschedule(job_id, **options) is APPLIED
            seen = queue.get(job_id)
            assert (seen.state, seen.available_at) == (State.SCHEDULED, start + timedelta(seconds=seconds))
        assert queue.claim() == []
        assert queue.reschedule(job_id, run_at=start - timedelta(days=1)) is APPLIED
        assert queue.get(job_id).available_at == clock.now()
        assert [job.id for job in queue.claim()] == [job_id]

    def test_a_job_that_is_due_keeps_its_place(self, queue: Queue, clock: SettableClock) -> None:
        first = _enqueued(queue)
        due = queue.get(first).available_at
        clock.advance(5)
        _enqueued(queue)
        assert queue.reschedule(first, delay=0) is APPLIED
        assert queue.get(first).available_at == due
        assert queue.peek()[0].id == first

    def test_another_priority(self, queue: Queue, rival_queue: Queue, clock: SettableClock) -> None:
        plain, urgent = _enqueued(queue), _enqueued(queue, delay=60)
        assert rival_queue.reschedule(urgent, priority=-5) is APPLIED
        seen = queue.get(urgent)
        assert (seen.state, seen.priority, seen.available_at) == (State.SCHEDULED, -5, clock.now() + timedelta(seconds=60))
        clock.advance(60)
        assert [job.id for job in queue.peek()] == [urgent, plain]
        clock.advance(3)
        assert rival_queue.reschedule(plain, priority=-9) is APPLIED
        # Due since now: claims of that priority may begin later than its old time.
        assert queue.get(plain).available_at == clock.now()
        assert [job.id for job in queue.peek()] == [plain, urgent]
        assert rival_queue.reschedule(plain, priority=3, delay=10) is APPLIED
        assert (queue.get(plain).priority, queue.get(plain).state) == (3, State.SCHEDULED)
        assert sorted(job.id for job in queue.claim(limit=5)) == [urgent]

    def test_a_retry_is_brought_forward(self, queue: Queue) -> None:
        job_id = _enqueued(queue)
        assert queue.claim()[0].fail("no luck", retry_in=600)
        assert queue.reschedule(job_id, delay=0) is APPLIED
        (job,) = queue.claim()
        assert (job.attempts, job.last_error) == (2, "no luck")

    def test_only_with_its_version(self, queue: Queue) -> None:
        job_id = _enqueued(queue, delay=60)
        version = queue.get(job_id).version
        assert queue.reschedule(job_id, delay=0, version=version + 1) is LOST
        assert queue.get(job_id).state is State.SCHEDULED
        assert queue.reschedule(job_id, delay=30, version=version) is APPLIED
        assert queue.reschedule(job_id, delay=0, version=version) is LOST
        assert queue.db.cancel(job_id, version=version) is LOST
        assert queue.cancel(job_id, version=version) is LOST
        assert queue.cancel(job_id, version=version + 1) is APPLIED
        with pytest.raises(JobNotFoundError):
            queue.cancel(job_id, version=version + 2)

    def test_a_running_job_is_refused(self, queue: Queue) -> None:
        job_id = _enqueued(queue)
        (job,) = queue.claim()
        for options in ({"delay": 0}, {"priority": 3}):
            with pytest.raises(JobStateError, match=f"job {job_id} is running") as caught:
                queue.reschedule(job_id, **options)  # type: ignore[arg-type]
            assert (caught.value.job_id, caught.value.state) == (job_id, State.RUNNING)
        assert queue.reschedule(job_id, delay=0, version=job.version - 1) is LOST
        assert job.complete() is APPLIED

    def test_a_worker_whose_lease_ran_out_has_lost_the_job(self, queue: Queue, clock: SettableClock) -> None:
        job_id = _enqueued(queue)
        (job,) = queue.claim(lease=5)
        clock.advance(5)
        assert queue.reschedule(job_id, delay=60) is APPLIED
        seen = queue.get(job_id)
        assert (seen.state, seen.worker, seen.attempts) == (State.SCHEDULED, None, 1)
        assert job.complete() is LOST

    def test_a_dead_job_and_one_of_another_queue_are_not_found(self, queue: Queue) -> None:
        job_id = _enqueued(queue)
        with pytest.raises(JobNotFoundError):
            queue.db.queue(f"{queue.name}-other").reschedule(job_id, delay=0)
        assert queue.claim()[0].bury("no use")
        with pytest.raises(JobNotFoundError, match="dead"):
            queue.reschedule(job_id, delay=0)
        with pytest.raises(ArgumentError, match="nothing to change"):
            queue.reschedule(job_id)

    def test_in_a_group_only_the_first_has_a_time(self, queue: Queue) -> None:
        head, behind, last = (_enqueued(queue, kind, group="g") for kind in ("head", "behind", "last"))
        with pytest.raises(JobStateError, match=f"job {behind} is blocked in its group 'g'") as caught:
            queue.reschedule(behind, delay=0)
        assert caught.value.state is State.BLOCKED
        assert queue.reschedule(behind, priority=-3) is APPLIED
        assert (queue.get(behind).state, queue.get(behind).priority) == (State.BLOCKED, -3)
        assert queue.reschedule(head, delay=60) is APPLIED
        assert queue.claim(limit=5) == []  # the others still wait for it
        assert queue.reschedule(head, delay=0) is APPLIED
        for job_id in (head, behind, last):
            (job,) = queue.claim(limit=5)
            assert (job.id, job.complete()) == (job_id, APPLIED)
