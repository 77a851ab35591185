"""Leased jobs made anew from id, version and token, and claims for others."""

from __future__ import annotations

import pytest

from queue_db.errors import ArgumentError, LeaseLostError
from queue_db.leased_job import LeasedJob
from queue_db.model import StoredResult, Verdict
from queue_db.queue import Queue
from queue_db.testing.clock import SettableClock

__all__ = ["TestHandles"]


def _claimed(queue: Queue, **options: object) -> LeasedJob:
    queue.enqueue("mail", {"to": "ann"}, **options)  # type: ignore[call-overload]
    (job,) = queue.claim()
    return job


class TestHandles:
    """``queue.lease_from_token`` and ``queue.leases_from_tokens``; ``queue.claim(worker=)``."""

    def test_a_handle_is_the_leased_job(self, queue: Queue, rival_queue: Queue) -> None:
        job = _claimed(queue, headers={"h": 1}, unique_key="k", group="g", priority=3)
        handle = rival_queue.lease_from_token(job.id, job.version, job.token)
        for name in (
            *("id", "version", "token", "kind", "payload", "headers", "priority", "attempts", "max_attempts", "unique_key"),
            *("group", "batch", "created_at", "due_at", "last_error", "lease_expires", "fence"),
        ):
            assert getattr(handle, name) == getattr(job, name), name
        assert (handle.worker, queue.get(job.id).worker) == ("first", "first")
        assert handle.complete() is Verdict.APPLIED
        assert job.complete() is Verdict.LOST

    def test_each_verb_works_with_a_handle(self, queue: Queue, rival_queue: Queue, clock: SettableClock) -> None:
        def handle(job: LeasedJob) -> LeasedJob:
            return rival_queue.lease_from_token(job.id, job.version, job.token)

        assert handle(_claimed(queue)).fail("no luck", retry_in=0)
        (job,) = queue.claim()
        assert (job.attempts, job.last_error) == (2, "no luck")
        assert handle(job).release()
        (job,) = queue.claim()
        assert handle(job).snooze(5)
        clock.advance(5)
        (job,) = queue.claim(lease=10)
        extended = handle(job)
        assert extended.extend(1000)
        with pytest.raises(LeaseLostError):
            handle(job)
        assert handle(extended).progress(0.5)
        assert handle(extended).bury("no use")
        assert [dead.last_error for dead in queue.db.dead.list(queue.name)] == ["no use"]
        assert handle(_claimed(queue)).cancel()
        with handle(_claimed(queue)).transaction():
            pass
        assert (queue.stats().running, queue.stats().available) == (0, 0)

    def test_jobs_of_a_group_follow_a_handle_that_completes(self, queue: Queue, rival_queue: Queue) -> None:
        job = _claimed(queue, group="g")
        following = queue.enqueue("mail", group="g")
        assert rival_queue.lease_from_token(job.id, job.version, job.token).complete()
        assert [one.id for one in queue.claim(limit=2)] == [following]

    def test_a_lease_that_is_lost_has_none(self, queue: Queue, rival_queue: Queue, clock: SettableClock) -> None:
        queue.enqueue_many([("mail", None), ("mail", None)])
        (job,) = queue.claim(lease=10)
        waiting = next(one.id for one in queue.jobs("available").jobs)
        (other,) = queue.claim(lease=10)
        good = (job.id, job.version, job.token)
        wrong = [
            (job.id, job.version + 1, job.token),
            (job.id, job.version - 1, job.token),
            (job.id, job.version, other.token),
            (job.id, job.version, ""),
            (job.id, job.version, job.token[:-1]),
            (job.id, job.version, job.token.upper() + "é\ud800"),
            (job.id + 10**9, job.version, job.token),
            (other.id, other.version, job.token),
        ]
        for lease in wrong:
            with pytest.raises(LeaseLostError) as caught:
                rival_queue.lease_from_token(*lease)
            assert (caught.value.job_id, caught.value.version) == lease[:2]
        with pytest.raises(LeaseLostError):
            queue.db.queue(f"{queue.name}-other").lease_from_token(*good)
        counters = rival_queue.db.counters
        before = counters.lost
        handles = rival_queue.leases_from_tokens([*wrong, good, good])
        assert counters.lost - before == len(wrong)
        assert [handle is not None for handle in handles] == [False] * len(wrong) + [True, True]
        assert other.release()
        for token in ("", "None", other.token):  # a job that waits has no token
            with pytest.raises(LeaseLostError):
                queue.lease_from_token(waiting, queue.get(waiting).version, token)
        clock.advance(10)  # as its claimant may: until another claim
        again = queue.lease_from_token(*good)
        assert len(rival_queue.claim(limit=2)) == 2
        assert again.complete() is Verdict.LOST
        with pytest.raises(LeaseLostError):
            queue.lease_from_token(*good)

    def test_many_handles_are_settled_together(self, queue: Queue, rival_queue: Queue) -> None:
        queue.enqueue_many([("mail", number) for number in range(1100)])
        jobs = queue.claim(limit=1100)
        assert jobs[7].cancel()
        handles = rival_queue.leases_from_tokens((job.id, job.version, job.token) for job in jobs)
        assert [index for index, handle in enumerate(handles) if handle is None] == [7]
        left = [handle for handle in handles if handle is not None]
        assert [handle.payload for handle in left] == [job.payload for job in jobs if job is not jobs[7]]
        assert all(rival_queue.complete_many(left))
        assert rival_queue.leases_from_tokens([]) == []

    def test_a_claim_for_others_shows_their_name(self, queue: Queue) -> None:
        queue.enqueue_many([("mail", None), ("mail", None)])
        ours = queue.claim()[0]
        (job,) = queue.claim(worker="node-17")
        assert [queue.get(one.id).worker for one in (ours, job)] == ["first", "node-17"]
        assert job.worker == "node-17"
        assert [one.worker for one in queue.jobs("running").jobs if one.id == job.id] == ["node-17"]
        handle = queue.lease_from_token(job.id, job.version, job.token)
        assert handle.fail(ValueError("no luck"), retry_in=0)
        assert [error.worker for error in queue.db.errors(job.id)] == ["node-17"]
        (again,) = queue.claim(worker="node-18")
        assert queue.complete_many(
            [queue.lease_from_token(again.id, again.version, again.token)], results=[StoredResult("1", 10**6)]
        )
        assert queue.db.finished(job.id).worker == "node-18"

    def test_what_is_no_lease_is_refused(self, queue: Queue) -> None:
        for bad in ("abc", (1, 2), None, 7, (1, 2, 3, 4), {"id": 1}):
            with pytest.raises(ArgumentError, match="lease"):
                queue.leases_from_tokens([bad])  # type: ignore[list-item]
        with pytest.raises(ArgumentError, match="token=5: must be a string"):
            queue.lease_from_token(1, 1, 5)  # type: ignore[arg-type]
