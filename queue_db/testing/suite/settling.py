"""Settle: one verdict per job; a lost lease changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import pytest

from queue_db.errors import ArgumentError, JobNotFoundError, LeaseLostError
from queue_db.leased_job import LeasedJob
from queue_db.model import Job, State, Verdict
from queue_db.outcomes import Cancel, Dead, Retry, Snooze
from queue_db.queue import Queue
from queue_db.testing.clock import SettableClock
from queue_db.testing.suite.fixtures import OpenDB

__all__ = ["TestCancel", "TestFail", "TestFence", "TestGiveBack", "TestOutcomes", "TestSettleMany"]

APPLIED, LOST = Verdict.APPLIED, Verdict.LOST

Verb = Callable[[Queue, Sequence[LeasedJob]], list[Verdict]]

VERBS: dict[str, Verb] = {
    "complete": lambda queue, jobs: queue.complete_many(jobs),
    "fail": lambda queue, jobs: queue.fail_many(jobs, "broken", retry_in=5),
    "snooze": lambda queue, jobs: queue.snooze_many(jobs, 5),
    "release": lambda queue, jobs: queue.release_many(jobs),
    "extend": lambda queue, jobs: queue.extend_many(jobs, 500),
    "cancel": lambda queue, jobs: queue.cancel_many(jobs),
    "bury": lambda queue, jobs: queue.bury_many(jobs, "no use"),
}


def _every(*verdicts: Verdict) -> dict[str, list[Verdict]]:
    """The same verdicts from every verb."""
    return {verb: list(verdicts) for verb in VERBS}


def _own(queue: Queue, verb: str) -> Queue:
    """The queue of one verb's jobs."""
    own: Queue = queue.db.queue(f"{queue.name}-{verb}")
    return own


def _one_job_per_verb(queue: Queue, lease: float = 60.0) -> dict[str, list[LeasedJob]]:
    """A leased job for each verb, alone in its queue."""
    for verb in VERBS:
        _own(queue, verb).enqueue(verb)
    return _claim(queue, lease)


def _claim(queue: Queue, lease: float = 60.0) -> dict[str, list[LeasedJob]]:
    """Claim the due job of each verb."""
    return {verb: _own(queue, verb).claim(lease=lease) for verb in VERBS}


def _settle(queue: Queue, jobs: dict[str, list[LeasedJob]]) -> dict[str, list[Verdict]]:
    """Apply every verb to its jobs."""
    return {verb: VERBS[verb](_own(queue, verb), leased) for verb, leased in jobs.items()}


def _seen(queue: Queue, jobs: dict[str, list[LeasedJob]]) -> dict[str, list[Job]]:
    """The stored jobs of every verb."""
    return {verb: [_own(queue, verb).get(job.id) for job in leased] for verb, leased in jobs.items()}


class TestFence:
    """Every verb, on valid leases and on lost ones."""

    def test_applied_then_lost_when_repeated(self, queue: Queue) -> None:
        jobs = _one_job_per_verb(queue)
        versions = {verb: leased[0].version for verb, leased in jobs.items()}
        assert _settle(queue, jobs) == _every(APPLIED)
        for verb, leased in jobs.items():
            leased[0].version = versions[verb]  # extend sets the new version: go back to the old one
        assert _settle(queue, jobs) == _every(LOST)

    def test_lost_after_another_worker_took_over(self, queue: Queue, rival_queue: Queue, clock: SettableClock) -> None:
        jobs = _one_job_per_verb(queue, lease=10)
        clock.advance(10)
        theirs = _claim(rival_queue, lease=1000)
        before = _seen(queue, theirs)
        assert _settle(queue, jobs) == _every(LOST)
        assert _seen(queue, theirs) == before
        assert queue.db.dead.list(_own(queue, "bury").name) == []
        assert [leased[0].complete() for leased in theirs.values()] == [APPLIED] * len(VERBS)

    def test_lost_after_the_same_worker_took_over(self, queue: Queue, clock: SettableClock) -> None:
        old = _one_job_per_verb(queue, lease=10)
        clock.advance(10)
        new = _claim(queue, lease=1000)
        before = _seen(queue, new)
        assert _settle(queue, old) == _every(LOST)
        assert _seen(queue, new) == before
        assert [leased[0].complete() for leased in new.values()] == [APPLIED] * len(VERBS)

    def test_lost_when_the_job_is_gone(self, queue: Queue, rival_queue: Queue) -> None:
        jobs = _one_job_per_verb(queue)
        for verb, leased in jobs.items():
            assert _own(rival_queue, verb).cancel(leased[0].id)
        assert _settle(queue, jobs) == _every(LOST)
        assert queue.db.dead.list(_own(queue, "bury").name) == []

    def test_mixed_verdicts_stand_by_position(self, queue: Queue, rival_queue: Queue, clock: SettableClock) -> None:
        for name, verb in VERBS.items():
            own, theirs = _own(queue, name), _own(rival_queue, name)
            own.enqueue_many([("mail", number) for number in range(6)])
            jobs = own.claim(limit=6, lease=10)
            assert own.extend_many(jobs[::2], 1000) == [APPLIED] * 3
            clock.advance(10)
            before = {job.id: own.get(job.id) for job in theirs.claim(limit=6, lease=1000)}
            assert len(before) == 3
            order = [jobs[position] for position in (5, 0, 3, 2, 1, 4)]
            assert (name, verb(own, order)) == (name, [LOST, APPLIED, LOST, APPLIED, LOST, APPLIED])
            assert {job_id: own.get(job_id) for job_id in before} == before
        assert (queue.db.counters.applied, queue.db.counters.lost) == (6 * len(VERBS), 3 * len(VERBS))

    def test_a_job_twice_in_the_list_has_one_verdict_twice(self, queue: Queue) -> None:
        for name, verb in VERBS.items():
            own = _own(queue, name)
            own.enqueue_many([("mail", 0), ("mail", 1)])
            first, second = own.claim(limit=2)
            versions = first.version, second.version
            assert (name, verb(own, [first, second, first])) == (name, [APPLIED] * 3)
            first.version, second.version = versions
            assert (name, verb(own, [first, second, first])) == (name, [LOST] * 3)

    def test_of_two_leases_of_one_job_the_later_is_valid(self, queue: Queue, clock: SettableClock) -> None:
        old = _one_job_per_verb(queue, lease=1)
        clock.advance(1)
        both = {verb: [*old[verb], *new, *old[verb]] for verb, new in _claim(queue).items()}
        assert _settle(queue, both) == _every(LOST, APPLIED, LOST)

    def test_the_stored_error_is_that_of_the_valid_lease(self, queue: Queue, clock: SettableClock) -> None:
        queue.enqueue("mail")
        (old,) = queue.claim(lease=1)
        clock.advance(1)
        (new,) = queue.claim()
        assert queue.fail_many([new, old], ["of the lease", "of the lost one"]) == [APPLIED, LOST]
        assert queue.get(new.id).last_error == "of the lease"

    def test_an_empty_list_returns_an_empty_list(self, queue: Queue) -> None:
        assert {name: verb(queue, []) for name, verb in VERBS.items()} == _every()

    def test_require_raises_for_a_lost_lease(self, queue: Queue) -> None:
        queue.enqueue("mail")
        (job,) = queue.claim()
        job.complete().require()
        with pytest.raises(LeaseLostError, match=f"job {job.id}, version {job.version}") as caught:
            job.complete().require(job)
        assert (caught.value.job_id, caught.value.version) == (job.id, job.version)


class TestSettleMany:
    """Lists of jobs."""

    def test_hundreds_at_once(self, queue: Queue) -> None:
        for name, verb in VERBS.items():
            own = _own(queue, name)
            ids = own.enqueue_many([("mail", number) for number in range(150)])
            jobs = own.claim(limit=150)
            assert [job.id for job in jobs] == ids
            assert (name, verb(own, jobs[::-1])) == (name, [APPLIED] * 150)
            stats = own.stats()
            left = (stats.available, stats.scheduled, stats.running, stats.dead)
            assert (name, left) == (
                name,
                {
                    "complete": (0, 0, 0, 0),
                    "fail": (0, 150, 0, 0),
                    "snooze": (0, 150, 0, 0),
                    "release": (150, 0, 0, 0),
                    "extend": (0, 0, 150, 0),
                    "cancel": (0, 0, 0, 0),
                    "bury": (0, 0, 0, 150),
                }[name],
            )
            if name == "extend":
                assert {job.lease_expires for job in jobs} == {own.get(jobs[0].id).available_at}
                assert {job.version for job in jobs} == {2}

    def test_a_job_of_another_queue_is_refused(self, queue: Queue, rival_queue: Queue) -> None:
        queue.enqueue("mail")
        jobs = queue.claim()
        with pytest.raises(ArgumentError, match="claimed from"):
            rival_queue.complete_many(jobs)
        with pytest.raises(ArgumentError, match="not a LeasedJob"):
            queue.complete_many([jobs[0].id])  # type: ignore[list-item]
        assert jobs[0].complete()


class TestFail:
    """A failed attempt."""

    def test_the_job_comes_back_after_the_given_time(self, queue: Queue, rival_queue: Queue, clock: SettableClock) -> None:
        queue.enqueue("mail")
        (job,) = queue.claim()
        assert job.fail(LookupError("no such person"), retry_in=30)
        seen = queue.get(job.id)
        assert (seen.state, seen.attempts, seen.worker) == (State.SCHEDULED, 1, None)
        assert (seen.last_error, seen.available_at) == ("LookupError: no such person", clock.now() + timedelta(seconds=30))
        clock.advance(29)
        assert rival_queue.claim() == []
        clock.advance(1)
        (again,) = rival_queue.claim()
        assert (again.attempts, again.last_error) == (2, "LookupError: no such person")

    def test_without_a_time_the_backoff_decides(self, queue: Queue, clock: SettableClock) -> None:
        queue.enqueue("mail")
        for attempt in (1, 2, 3):
            (job,) = queue.claim()
            assert job.fail("again")
            assert queue.get(job.id).available_at == clock.now() + timedelta(seconds=10 * attempt)
            clock.advance(10 * attempt)

    def test_after_the_last_attempt_the_job_is_dead(self, queue: Queue, clock: SettableClock) -> None:
        job_id = queue.enqueue("mail", "text", max_attempts=2, unique_key="k", headers={"h": 1}, priority=4)
        assert job_id is not None
        assert queue.claim()[0].fail("first", retry_in=0)
        (job,) = queue.claim()
        assert job.fail("second", retry_in=0)
        assert queue.claim() == []
        dead = queue.get(job_id)
        assert (dead.state, dead.attempts, dead.last_error, dead.available_at) == (State.DEAD, 2, "second", clock.now())
        assert (dead.payload, dead.headers, dead.priority, dead.unique_key) == ("text", {"h": 1}, 4, "k")
        assert dead.version > job.version

    def test_each_job_has_its_own_error_and_outcome(self, queue: Queue, clock: SettableClock) -> None:
        queue.enqueue_many([("mail", number, {"max_attempts": 1 + number % 2}) for number in range(6)])
        jobs = queue.claim(limit=6)
        assert queue.fail_many(jobs, [f"error {job.payload}" for job in jobs]) == [APPLIED] * 6
        assert queue.complete_many(jobs) == [LOST] * 6
        for job in jobs:
            seen = queue.get(job.id)
            assert seen.last_error == f"error {job.payload}"
            assert seen.state is (State.SCHEDULED if job.payload % 2 else State.DEAD)
        with pytest.raises(ArgumentError, match="2 errors for 6 jobs"):
            queue.fail_many(jobs, ["one", "two"])

    def test_waits_differ_by_attempt_within_one_list(self, queue: Queue, clock: SettableClock) -> None:
        queue.enqueue("old")
        assert queue.claim()[0].fail("again", retry_in=0)
        queue.enqueue("new")
        jobs = {job.kind: job for job in queue.claim(limit=2)}
        assert queue.fail_many(list(jobs.values()), "again") == [APPLIED] * 2
        assert queue.get(jobs["new"].id).available_at == clock.now() + timedelta(seconds=10)
        assert queue.get(jobs["old"].id).available_at == clock.now() + timedelta(seconds=20)

    def test_any_text_can_be_a_reason(self, queue: Queue) -> None:
        for verb in ("fail", "bury"):
            for reason in ("nul \x00", "surrogate \ud800", "🦆 'quote' \\ %s :name", "long " * 10_000):
                queue.enqueue("mail")
                (job,) = queue.claim()
                assert getattr(job, verb)(reason)
                stored = queue.get(job.id).last_error or ""
                assert stored[:4] == reason[:4]
                assert len(stored) <= 10_000
        with pytest.raises(ArgumentError):
            job.fail(7)  # type: ignore[arg-type]

    def test_a_wait_out_of_range_is_refused(self, queue: Queue) -> None:
        queue.enqueue("mail")
        (job,) = queue.claim()
        for wait in (-1, float("nan"), "soon"):
            with pytest.raises(ArgumentError):
                job.fail("again", retry_in=wait)  # type: ignore[arg-type]
        assert job.complete() is APPLIED


class TestGiveBack:
    """Snooze and release do not count as an attempt."""

    def test_snooze_comes_back_later_and_does_not_count(self, queue: Queue, clock: SettableClock) -> None:
        queue.enqueue("mail", max_attempts=1)
        for _ in range(3):
            (job,) = queue.claim()
            assert job.attempts == 1
            assert job.snooze(20)
            seen = queue.get(job.id)
            assert (seen.state, seen.attempts, seen.worker, seen.last_error) == (State.SCHEDULED, 0, None, None)
            assert seen.available_at == clock.now() + timedelta(seconds=20)
            clock.advance(20)
        assert queue.claim()[0].complete()

    def test_release_comes_back_at_once_and_does_not_count(self, queue: Queue, rival_queue: Queue) -> None:
        queue.enqueue("mail", max_attempts=1)
        for claimer in (queue, rival_queue, queue):
            (job,) = claimer.claim()
            assert job.attempts == 1
            assert job.release()
            seen = queue.get(job.id)
            assert (seen.state, seen.attempts, seen.worker) == (State.AVAILABLE, 0, None)

    def test_the_last_error_is_kept(self, queue: Queue) -> None:
        queue.enqueue("mail")
        assert queue.claim()[0].fail("a reason", retry_in=0)
        assert queue.claim()[0].release()
        (job,) = queue.claim()
        assert (job.attempts, job.last_error) == (2, "a reason")

    def test_a_time_out_of_range_is_refused(self, queue: Queue) -> None:
        queue.enqueue("mail")
        (job,) = queue.claim()
        wrong: list[Any] = [-1, float("inf"), None]
        for seconds in wrong:
            with pytest.raises(ArgumentError):
                job.snooze(seconds)
            with pytest.raises(ArgumentError):
                job.extend(seconds)
        with pytest.raises(ArgumentError):
            job.extend(0)
        assert job.complete() is APPLIED


class TestCancel:
    """A job that is no longer needed."""

    def test_a_waiting_job_is_gone(self, queue: Queue, clock: SettableClock) -> None:
        for delay in (0, 60):
            job_id = queue.enqueue("mail", delay=delay)
            assert job_id is not None
            assert queue.cancel(job_id) is APPLIED
            with pytest.raises(JobNotFoundError) as caught:
                queue.cancel(job_id)
            assert caught.value.job_id == job_id
        clock.advance(120)
        assert queue.claim() == []

    def test_the_worker_of_a_running_job_has_lost_its_lease(self, queue: Queue, rival_queue: Queue) -> None:
        queue.enqueue("mail")
        (job,) = rival_queue.claim()
        assert queue.cancel(job.id) is APPLIED
        assert job.complete() is LOST

    def test_a_dead_job_is_not_cancelled(self, queue: Queue) -> None:
        queue.enqueue("mail")
        (job,) = queue.claim()
        assert job.bury("no use")
        with pytest.raises(JobNotFoundError, match="dead"):
            queue.cancel(job.id)
        assert queue.get(job.id).state is State.DEAD

    def test_a_job_of_another_queue_is_not_found(self, queue: Queue, name: str) -> None:
        job_id = queue.enqueue("mail")
        assert job_id is not None
        with pytest.raises(JobNotFoundError):
            queue.db.queue(f"{name}-other").cancel(job_id)
        assert queue.claim()[0].complete()

    def test_by_its_lease_the_job_is_deleted(self, queue: Queue) -> None:
        queue.enqueue("mail")
        (job,) = queue.claim()
        assert job.cancel() is APPLIED
        with pytest.raises(JobNotFoundError):
            queue.get(job.id)
        assert queue.db.dead.list(queue.name) == []


class TestOutcomes:
    """What a handler may return."""

    def test_each_outcome_settles_the_job(self, open_db: OpenDB, clock: SettableClock, name: str) -> None:
        queue = open_db(clock=clock, retry_after=lambda _: 7.0).queue(name)

        def settled(outcome: object) -> LeasedJob:
            queue.enqueue("mail")
            (job,) = queue.claim()
            assert job.settle(outcome) is APPLIED  # type: ignore[arg-type]
            return job

        for leaves in (None, Cancel()):
            with pytest.raises(JobNotFoundError):
                queue.get(settled(leaves).id)
        snoozed = queue.get(settled(Snooze(30)).id)
        assert (snoozed.attempts, snoozed.available_at) == (0, clock.now() + timedelta(seconds=30))
        retried = queue.get(settled(Retry("busy", 40)).id)
        assert (retried.attempts, retried.last_error, retried.available_at) == (1, "busy", clock.now() + timedelta(seconds=40))
        assert queue.get(settled(Retry("busy")).id).available_at == clock.now() + timedelta(seconds=7)
        dead = queue.get(settled(Dead("hopeless")).id)
        assert (dead.state, dead.last_error) == (State.DEAD, "hopeless")

    def test_anything_else_is_refused(self, queue: Queue) -> None:
        queue.enqueue("mail")
        (job,) = queue.claim()
        with pytest.raises(ArgumentError, match="a handler returned"):
            job.settle("done")  # type: ignore[arg-type]
        assert job.complete() is APPLIED
