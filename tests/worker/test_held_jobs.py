"""Jobs that are held outside a worker."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import ExitStack

import pytest

from queue_db import ArgumentError, ConfigurationError, QueueDB, StorageError
from queue_db.aio import AsyncQueueDB
from queue_db.held_jobs import HeldJobs
from queue_db.verbs.running import Verbs
from queue_db.worker.leases import Heartbeat
from tests.patience import HOURS, PATIENCE, wait_for


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


class Rounds:
    """In place of the event of close(): set after some rounds, at once."""

    left = 3

    def wait(self, seconds: float) -> bool:
        self.left -= 1
        return not self.left


def test_an_outage_is_not_over_before_the_database_has_answered(queue):
    heard: list[str] = []

    class Heard:
        def failed(self, what: str, error: BaseException, wait: float) -> None:
            heard.append("failed")

        def worked(self) -> None:
            heard.append("worked")

    queue.enqueue("k")
    (job,) = queue.claim(lease=HOURS)
    with HeldJobs(HOURS, outage=Heard()) as held:
        tag = held.add(job)
        heartbeat = Heartbeat(held, HOURS, held._lose, Heard())
        with Verbs([job]):  # as while a verb waits for the database
            heartbeat.beat()
        assert heard == []
        heartbeat.beat()
        assert heard == ["worked"]
        held.take(tag)
    held._closed = Rounds()
    held._run()
    assert heard == ["worked"]


def test_jobs_of_two_databases_have_tags_of_their_own(tmp_path):
    with ExitStack() as stack:
        held, jobs = stack.enter_context(HeldJobs(HOURS)), []
        for number in range(2):
            db = stack.enter_context(QueueDB(f"sqlite:///{tmp_path}/{number}.db"))
            db.migrate()
            db.queue("q").enqueue("k")
            jobs += db.queue("q").claim(lease=HOURS)
        assert jobs[0].fence == jobs[1].fence
        tags = [held.add(job) for job in jobs]
        assert [held.take(tag) for tag in tags] == jobs


def test_what_has_no_lease_is_refused(queue):
    for _ in range(2):
        queue.enqueue("k")
    (popped,) = queue.pop()
    (job,) = queue.claim()
    assert job.complete()
    with HeldJobs(HOURS) as held:
        for wrong in (popped, job.id, None):
            with pytest.raises(ArgumentError, match=r"add\(\) takes a LeasedJob"):
                held.add(wrong)
        with pytest.raises(ArgumentError, match="complete has ended it"):
            held.add(job)
        assert held.tags() == []


def test_a_job_for_asyncio_is_refused(tmp_path):
    async def main() -> None:
        async with AsyncQueueDB(f"sqlite+aiosqlite:///{tmp_path}/a.db") as db:
            await db.migrate()
            await db.queue("q").enqueue("k")
            (job,) = await db.queue("q").claim()
            with HeldJobs(HOURS) as held, pytest.raises(ArgumentError, match="not an object of AsyncLeasedJob"):
                held.add(job)

    asyncio.run(main())


def test_closed_ones_take_no_jobs(queue):
    queue.enqueue("k")
    (job,) = queue.claim(lease=HOURS)
    held = HeldJobs(HOURS)
    held.close()
    with pytest.raises(ConfigurationError, match="closed"):
        held.add(job)


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
            signal.alarm(int(PATIENCE))  # ends a child that hangs
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
