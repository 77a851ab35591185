"""Jobs that are held outside a worker."""

from __future__ import annotations

import os

import pytest

from queue_db import ArgumentError, StorageError
from queue_db.held_jobs import HeldJobs
from tests.patience import HOURS, wait_for


@pytest.fixture
def queue(db, name):
    return db.queue(name)


def test_a_lease_is_extended_until_the_job_is_taken_out(db, queue):
    queue.enqueue("k")
    (job,) = queue.claim(lease=0.6)
    with HeldJobs(0.6) as held:
        tag, version = held.add(job), job.version
        wait_for(lambda: db.get(job.id).version >= version + 4)
        assert held.get(tag) is job
        assert held.take(tag) is job
        assert held.take(tag) is held.get(tag) is None
        assert job.complete()


def test_what_is_held_at_the_end_is_due_when_its_lease_ends(queue):
    queue.enqueue("k")
    with HeldJobs(0.3) as held:
        held.add(queue.claim(lease=0.3)[0])
    again = wait_for(queue.claim)
    assert again[0].complete()


def test_jobs_of_several_queues_are_extended(db, name):
    queues = [db.queue(f"{name}-{number}") for number in range(2)]
    with HeldJobs(0.6) as held:
        for _ in range(2):
            for queue in queues:
                queue.enqueue("k")
                held.add(queue.claim(lease=0.6)[0])
        assert [job.queue for job in held.jobs()] == [queue.name for queue in queues for _ in range(2)]
        versions = {job.id: job.version for job in held.jobs()}
        wait_for(lambda: all(db.get(job).version >= version + 2 for job, version in versions.items()))
        for tag in held.tags():
            assert held.take(tag).complete()


def test_a_lost_lease_is_named_and_the_job_leaves(db, queue, caplog):
    queue.enqueue("k")
    (job,) = queue.claim(lease=HOURS)
    assert db.cancel(job.id)
    with HeldJobs(0.3) as held:
        tag = held.add(job)
        wait_for(job.lost.is_set)
        assert held.take(tag) is None
    assert f"the lease of job {job.id} (k) in {queue.name!r} was lost" in caplog.text


def test_a_job_that_is_settled_while_it_is_held_is_not_lost(queue, caplog):
    for _ in range(2):
        queue.enqueue("k")
    jobs = queue.claim(2, lease=0.6)
    with HeldJobs(0.6) as held:
        for job in jobs:
            held.add(job)
        assert jobs[0].complete()
        version = jobs[1].version
        wait_for(lambda: jobs[1].version >= version + 2)
        assert "lost" not in caplog.text
        jobs[1].complete()


def test_a_failure_is_reported_and_tried_again(queue, monkeypatch):
    queue.enqueue("k")
    (job,) = queue.claim(lease=HOURS)
    heard: list[str] = []

    class Heard:
        def failed(self, what: str, error: BaseException, wait: float) -> None:
            heard.append(f"{what}: {error}")

        def worked(self) -> None:
            heard.append("worked")

    def fail_once(*_: object) -> None:
        monkeypatch.undo()
        raise StorageError("away")

    monkeypatch.setattr(queue, "extend_unlocked", fail_once)
    with HeldJobs(0.3, outage=Heard()) as held:
        held.add(job)
        wait_for(lambda: "worked" in heard)
    assert heard[0] == f"extending the leases of {queue.name!r}: away"
    assert job.complete()


@pytest.mark.parametrize("lease", [0, -1, "60", None])
def test_a_lease_that_is_none_is_refused(lease):
    with pytest.raises(ArgumentError, match="lease"):
        HeldJobs(lease)


def test_after_a_fork_the_child_holds_nothing_of_its_parent(queue):
    queue.enqueue("k")
    (job,) = queue.claim(lease=HOURS)
    with HeldJobs(HOURS) as held:
        tag = held.add(job)
        held._lock.acquire()  # as in another thread of the parent, at this moment
        pid = os.fork()
        if not pid:
            status = 1
            try:
                empty = held.take(tag) is None
                held.add(job)  # a thread of its own
                status = 0 if empty and held._thread.is_alive() else 2
            finally:
                os._exit(status)
        held._lock.release()
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert held.take(tag) is job
