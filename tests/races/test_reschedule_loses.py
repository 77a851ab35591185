"""A job is rescheduled or cancelled while another changes it: one of the two takes effect, and the other gets LOST or an error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

from queue_db import JobStateError, LeasedJob, Queue, State, Verdict
from queue_db.database.transaction import Run
from queue_db.testing import SettableClock
from tests.races.interleaving import at_once

MOVED = {"delay": 3600}


def waiting(queue: Queue, **options: object) -> int:
    job_id = queue.enqueue("mail", **options)  # type: ignore[arg-type]
    assert job_id is not None
    return job_id


@contextmanager
def claimed_meanwhile(ours: Queue, theirs: Queue, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[LeasedJob]]:
    """Another process claims the job after ours has read it, and before it begins to write."""
    jobs: list[LeasedJob] = []
    run = ours.core.run

    def after_a_claim(how: Run, *args: Any, **options: Any) -> Any:
        if how.write:
            jobs.extend(theirs.claim())
        return run(how, *args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(ours.core, "run", after_a_claim)
        yield jobs


def test_reschedule_loses_to_a_claim_and_says_so(ours: Queue, theirs: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    job_id = waiting(ours)
    with (
        claimed_meanwhile(ours, theirs, monkeypatch) as jobs,
        pytest.raises(JobStateError, match=f"job {job_id} is running") as caught,
    ):
        ours.reschedule(job_id, delay=3600)
    assert caught.value.state is State.RUNNING
    assert [job.complete() for job in jobs] == [Verdict.APPLIED]


def test_reschedule_with_a_version_loses_to_a_claim(ours: Queue, theirs: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    job_id = waiting(ours)
    with claimed_meanwhile(ours, theirs, monkeypatch) as jobs:
        assert ours.reschedule(job_id, delay=3600, version=0) is Verdict.LOST
    assert [job.complete() for job in jobs] == [Verdict.APPLIED]


def test_cancel_with_a_version_loses_to_a_claim(ours: Queue, theirs: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    job_id = waiting(ours)
    with claimed_meanwhile(ours, theirs, monkeypatch) as jobs:
        assert ours.cancel(job_id, version=0) is Verdict.LOST
    assert [job.complete() for job in jobs] == [Verdict.APPLIED]


def test_a_claim_and_a_reschedule_of_one_job_do_not_both_count(ours: Queue, theirs: Queue) -> None:
    for _ in range(5):
        job_id = waiting(ours)
        moved, jobs = at_once(partial(ours.reschedule, job_id, version=0, **MOVED), theirs.claim)  # type: ignore[arg-type]
        seen = ours.get(job_id)
        assert seen.version == 1
        if moved is Verdict.APPLIED:
            assert (jobs, seen.state) == ([], State.SCHEDULED)
        else:
            assert moved is Verdict.LOST, moved
            assert isinstance(jobs, list), jobs
            assert [job.id for job in jobs] == [job_id]
        assert ours.cancel(job_id)


def test_a_worker_whose_lease_ran_out_loses_to_a_reschedule_or_the_other_way_round(
    ours: Queue, theirs: Queue, clock: SettableClock
) -> None:
    for _ in range(5):
        job_id = waiting(ours)
        (job,) = theirs.claim(lease=5)
        clock.advance(5)
        moved, settled = at_once(partial(ours.reschedule, job_id, version=job.version, **MOVED), job.release)  # type: ignore[arg-type]
        assert sorted([moved, settled], key=str) == [Verdict.APPLIED, Verdict.LOST], (moved, settled)
        seen = ours.get(job_id)
        assert (seen.state is State.SCHEDULED) == (moved is Verdict.APPLIED)
        assert ours.cancel(job_id)


def test_of_two_reschedules_with_one_version_one_loses(ours: Queue, theirs: Queue) -> None:
    for _ in range(5):
        job_id = waiting(ours, delay=60)
        got = at_once(
            partial(ours.reschedule, job_id, delay=3600, version=0), partial(theirs.reschedule, job_id, priority=5, version=0)
        )
        assert sorted(got, key=str) == [Verdict.APPLIED, Verdict.LOST], got
        assert (ours.get(job_id).priority == 5) == (got[1] is Verdict.APPLIED)
        assert ours.cancel(job_id, version=1)


def test_the_next_job_of_a_group_loses_no_turn_to_a_reschedule(ours: Queue, theirs: Queue) -> None:
    for _ in range(5):
        waiting(ours, group="g")
        behind = waiting(ours, group="g")
        (head,) = ours.claim(limit=2)
        done, moved = at_once(head.complete, partial(theirs.reschedule, behind, priority=-1))
        assert [done, moved] == [Verdict.APPLIED] * 2
        # Not blocked for good, as if the one who admits it had found another version.
        seen = ours.get(behind)
        assert (seen.state, seen.priority) == (State.AVAILABLE, -1)
        (job,) = ours.claim()
        assert job.complete()
