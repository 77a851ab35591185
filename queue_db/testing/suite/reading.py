"""Reading and clearing a queue: get, peek, stats, queues, purge, sweep."""

from __future__ import annotations

import pytest
from sqlalchemy import func, select

from queue_db.errors import ArgumentError, JobDeadError, JobNotFinishedError, JobNotFoundError
from queue_db.model import State, StoredResult, Verdict
from queue_db.monitoring.model import KindStats, QueueStats
from queue_db.queue import Queue
from queue_db.testing.clock import SettableClock
from queue_db.testing.suite.fixtures import OpenDB

__all__ = ["TestPurge", "TestRead", "TestSweep"]


class TestRead:
    """Reading changes nothing."""

    def test_a_job_that_is_not_there_is_not_found(self, queue: Queue, name: str) -> None:
        job_id = queue.enqueue("mail")
        assert job_id is not None
        for elsewhere, number in ((queue, job_id + 10**9), (queue.db.queue(f"{name}-other"), job_id)):
            with pytest.raises(JobNotFoundError):
                elsewhere.get(number)
        with pytest.raises(ArgumentError):
            queue.get("1")  # type: ignore[arg-type]
        assert queue.claim()[0].complete()
        with pytest.raises(JobNotFoundError) as caught:
            queue.get(job_id)
        assert caught.value.job_id == job_id

    def test_the_state_of_a_job_and_why_it_has_no_result(self, queue: Queue, clock: SettableClock) -> None:
        db = queue.db
        kept, dead, gone, running, due = [queue.enqueue(kind) or 0 for kind in ("kept", "dead", "gone", "running", "due")]
        later, first, blocked = queue.enqueue("later", delay=60), queue.enqueue("x", group="g"), queue.enqueue("x", group="g")
        claimed = {job.id: job for job in queue.claim(10)}
        to_keep, to_bury, to_complete = claimed[kept], claimed[dead], claimed[gone]
        assert all(queue.release_many([claimed[due], claimed[first or 0]]))
        assert queue.complete_many([to_keep], results=[StoredResult("1", 10_000_000)]) == [Verdict.APPLIED]
        assert to_bury.bury("no use")
        assert to_complete.complete()
        states = {
            kept: State.COMPLETED,
            dead: State.DEAD,
            gone: State.UNKNOWN,
            running: State.RUNNING,
            due: State.AVAILABLE,
            later or 0: State.SCHEDULED,
            first or 0: State.AVAILABLE,
            blocked or 0: State.BLOCKED,
            kept + 10**9: State.UNKNOWN,
        }
        assert {job_id: db.state(job_id) for job_id in states} == states
        assert db.finished(kept).result == 1
        for job_id, state in states.items():
            if state is State.COMPLETED:
                continue
            with pytest.raises(JobNotFoundError) as caught:
                db.finished(job_id)
            waits = state not in (State.DEAD, State.UNKNOWN)
            expected = JobDeadError if state is State.DEAD else JobNotFinishedError if waits else JobNotFoundError
            assert (type(caught.value), caught.value.job_id, getattr(caught.value, "state", None)) == (
                expected,
                job_id,
                state.value if waits else None,
            )
            with pytest.raises(TimeoutError if waits else expected):
                db.wait(job_id, timeout=0)
        clock.advance(10)
        assert db.state(kept) is State.UNKNOWN

    def test_peek_shows_what_is_due_and_takes_nothing(self, queue: Queue) -> None:
        queue.enqueue_many([("mail", number) for number in range(4)])
        queue.enqueue("late", delay=60)
        assert [job.payload for job in queue.peek()] == [0, 1, 2, 3]
        assert [job.payload for job in queue.peek(limit=2)] == [0, 1]
        assert len(queue.claim(limit=10)) == 4
        assert queue.peek() == []

    def test_stats_count_by_state_and_kind(self, queue: Queue, name: str, clock: SettableClock) -> None:
        queue.enqueue_many([("a", number) for number in range(5)])
        running_out, running, failed, buried, done = queue.claim(limit=5)
        queue.enqueue_many([("b", number) for number in range(2)])
        clock.advance(10)
        assert failed.fail("again", retry_in=100)
        assert buried.bury("no use")
        assert done.complete()
        assert running.extend(1000)
        queue.enqueue("a", delay=3)
        clock.advance(50)
        assert queue.stats() == QueueStats(
            queue=name,
            available=4,
            scheduled=1,
            running=1,
            dead=1,
            oldest_available_age=60.0,
            by_kind={"a": KindStats(2, 1, 1, 1), "b": KindStats(2, 0, 0, 0)},
        )
        assert queue.stats(most=7) == queue.stats()
        queue.enqueue("a", priority=-1)
        some = queue.stats(most=2)
        assert (some.available, some.oldest_available_age, some.capped) == (2, 60.0, ("available", "running", "scheduled"))
        assert running_out.complete()

    def test_stats_of_nothing(self, queue: Queue, name: str) -> None:
        assert queue.stats() == QueueStats(name, 0, 0, 0, 0, None, {}) == queue.stats(most=1)
        queue.enqueue("mail", delay=5)
        assert queue.stats() == QueueStats(name, 0, 1, 0, 0, None, {"mail": KindStats(scheduled=1)})

    def test_a_kind_with_only_dead_jobs_is_counted(self, queue: Queue, name: str) -> None:
        queue.enqueue("mail")
        assert queue.claim()[0].bury("no use")
        assert queue.stats() == QueueStats(name, 0, 0, 0, 1, None, {"mail": KindStats(dead=1)})

    def test_queues_are_those_with_live_or_dead_jobs(self, queue: Queue, name: str) -> None:
        db = queue.db
        queue.enqueue("mail")
        db.queue(f"{name}-dead").enqueue("mail")
        assert db.queue(f"{name}-dead").claim()[0].bury("no use")
        db.queue(f"{name}-done").enqueue("mail")
        assert db.queue(f"{name}-done").claim()[0].complete()
        db.queue(f"{name}-never")
        assert [found for found in db.queues() if found.startswith(name)] == [name, f"{name}-dead"]


class TestPurge:
    """Purge deletes the jobs that wait."""

    def test_waiting_jobs_go_and_running_ones_stay(self, queue: Queue, rival_queue: Queue, clock: SettableClock) -> None:
        queue.enqueue_many([("mail", number) for number in range(4)])
        expired, running = queue.claim(limit=1, lease=1)[0], queue.claim(limit=1, lease=1000)[0]
        clock.advance(1)  # the lease is over when it could be claimed again
        queue.enqueue("late", delay=500)
        rival_queue.db.queue(f"{queue.name}-other").enqueue("mail")
        assert rival_queue.purge() == 4  # two never claimed, one whose lease ran out, one for later
        assert expired.complete() is Verdict.LOST
        assert running.complete() is Verdict.APPLIED
        assert queue.stats().by_kind == {}
        assert rival_queue.db.queue(f"{queue.name}-other").stats().available == 1

    def test_a_queue_of_more_than_one_batch_is_emptied(self, queue: Queue) -> None:
        queue.enqueue_many([("mail", number) for number in range(1050)])
        (job,) = queue.claim()
        assert queue.purge() == 1049
        assert queue.purge() == 0
        assert job.complete()


class TestSweep:
    """Rows that are marked as done are deleted later."""

    def test_a_marked_job_is_invisible_to_every_verb(self, open_db: OpenDB, clock: SettableClock, name: str) -> None:
        db = open_db(removal="delete_mark", clock=clock)
        db.sweep()  # marked rows of other tests
        queue, jobs = db.queue(name), db.store.tables.jobs
        ids = queue.enqueue_many([("mail", number, {"unique_key": f"k{number}"}) for number in range(3)])
        *done, left = queue.claim(limit=3, lease=1)
        assert queue.complete_many(done) == [Verdict.APPLIED] * 2
        assert left.release()
        clock.advance(10)

        def rows() -> int:
            with db.database.engine.connect() as connection:
                mine = (jobs.c.queue == name) | jobs.c.id.in_(ids)
                return connection.execute(select(func.count()).where(mine)).scalar_one()

        assert rows() == 3
        assert [job.payload for job in queue.peek()] == [2]
        assert (queue.stats().available, queue.stats().running) == (1, 0)
        for job in done:
            with pytest.raises(JobNotFoundError):
                queue.get(job.id)
            with pytest.raises(JobNotFoundError):
                queue.cancel(job.id)
            assert job.extend(60) is Verdict.LOST
        assert queue.enqueue("mail", "again", unique_key="k0") is not None
        assert sorted(str(job.payload) for job in queue.claim(limit=10)) == ["2", "again"]
        assert queue.purge() == 0
        assert db.sweep(limit=1) == 1
        assert db.sweep() == 1
        assert db.sweep() == 0
        assert rows() == 2
