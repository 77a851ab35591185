"""A job whose attempts were not settled is not dead before it was the only one in its worker's hands."""

import threading

import pytest

from queue_db import State
from queue_db.backoff import constant
from queue_db.worker import Worker
from tests.patience import PATIENCE


def crashed(queue, times):
    """All jobs are claimed together, and their worker vanishes, so many times."""
    for _ in range(times):
        claimed = queue.claim(limit=100)
        assert queue.db.rescue(queue.db.worker) >= len(claimed) > 0


def test_last_attempts_after_crashes_run_one_by_one_and_count_when_they_begin(queue):
    ids = queue.enqueue_many([("it", None, {"max_attempts": 3})] * 4)
    crashed(queue, 2)
    worker = Worker(queue.db, queue.name, concurrency=3, prefetch=5)
    seen = []

    @worker.handles("it")
    def it(job):
        # What a crash in this moment would leave behind.
        seen.append((job.id, sorted(queue.get(one).attempts for one in ids if one not in {done for done, _ in seen})))

    worker.run(until_empty=True)
    assert sorted(job_id for job_id, _ in seen) == ids
    assert [attempts for _, attempts in seen] == [[2, 2, 2, 3], [2, 2, 3], [2, 3], [3]]
    assert worker.summary.completed == 4


def test_a_job_that_waits_to_run_alone_waits_for_those_in_hand_and_none_joins_it(queue, running, log):
    others, entered, go = [], threading.Semaphore(0), threading.Event()
    queue.enqueue("suspect", max_attempts=2)
    crashed(queue, 1)
    queue.enqueue("beside")
    worker = Worker(queue.db, queue.name, concurrency=2)

    @worker.handles("beside")
    def beside(job):
        entered.release()
        assert go.wait(PATIENCE)
        others.append(job.id)

    @worker.handles("suspect")
    async def suspect(job):
        queue.enqueue("beside")
        assert len(others) == 1

    with running(worker, until_empty=True) as thread:
        assert entered.acquire(timeout=PATIENCE)
        log.wait("waits until no other job runs")
        go.set()
        thread.join(PATIENCE)
    assert (worker.summary.completed, worker.summary.dead) == (3, 0)


def test_last_attempts_after_failures_run_beside_each_other(queue):
    """The control: what has failed in good order ends no process."""
    queue.enqueue_many([("it", None, {"max_attempts": 2})] * 2)
    worker = Worker(queue.db, queue.name, concurrency=2)
    together = threading.Barrier(2)

    @worker.handles("it", backoff=constant(0))
    def it(job):
        if job.attempts == 1:
            raise ValueError("once")
        together.wait(PATIENCE)

    worker.run(until_empty=True)
    assert (worker.summary.failed, worker.summary.completed, worker.summary.dead) == (2, 2, 0)


def test_a_stop_gives_back_what_waits_to_run_alone_with_its_last_attempt(queue, running, log):
    entered, go = threading.Event(), threading.Event()
    suspect = queue.enqueue("suspect", max_attempts=2)
    crashed(queue, 1)
    queue.enqueue("beside")
    worker = Worker(queue.db, queue.name, concurrency=2)

    @worker.handles("beside")
    def beside(job):
        entered.set()
        assert go.wait(PATIENCE)

    worker.handles("suspect")(lambda job: None)
    with running(worker):
        assert entered.wait(PATIENCE)
        log.wait("waits until no other job runs")
        worker.stop()
        log.wait("released 1 unfinished jobs")
        go.set()
    job = queue.get(suspect)
    assert (job.state, job.attempts) == (State.AVAILABLE, 1)


@pytest.mark.parametrize("kind", ["sqlite"])
def test_attempts_that_are_used_up_are_shown_as_they_are(queue, caplog):
    """The claim that finds them used up is no attempt."""
    job_id = queue.enqueue("it", max_attempts=3)
    crashed(queue, 3)
    assert queue.claim() == []
    assert queue.get(job_id).attempts == 3
    assert "is dead after attempt 3/3 (exhausted)" in caplog.text
