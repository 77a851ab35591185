"""What is remembered: failed attempts, results, finished jobs."""

import threading

import pytest
from sqlalchemy import func, select

from queue_db import JobDeadError, JobNotFoundError, Retry, State
from queue_db.backoff import constant
from queue_db.worker import Worker
from tests.patience import PATIENCE


def test_each_failed_attempt_is_remembered_with_its_traceback(queue, db):
    worker = Worker(db, queue.name)

    @worker.handles("flaky", max_attempts=3, backoff=constant(0))
    def flaky(job):
        if job.attempts == 2:
            return Retry("not yet", 0)
        raise ValueError(f"attempt {job.attempts} \x00")

    job_id = queue.enqueue("flaky")
    worker.run(until_empty=True)
    assert queue.get(job_id).state is State.DEAD
    first, second, third = db.errors(job_id)
    assert [error.attempt for error in (first, second, third)] == [1, 2, 3]
    assert (first.error_class, first.message, first.worker) == ("ValueError", "attempt 1 �", db.worker)
    assert first.trace.startswith("Traceback")
    assert "in flaky" in first.trace
    assert (second.error_class, second.message, second.trace) == ("", "not yet", None)
    # Redriven, it is tried anew and its past stays.
    db.dead.redrive(job_id)
    (job,) = queue.claim()
    assert job.fail("again")
    assert [error.attempt for error in db.errors(job_id)] == [1, 2, 3, 1]


def test_the_history_of_a_job_is_bounded(queue, db):
    job_id = queue.enqueue("n", max_attempts=100)
    for number in range(25):
        (job,) = queue.claim()
        assert job.fail(f"{number}" + "x" * 20_000, retry_in=0)
    errors = db.errors(job_id)
    assert [error.attempt for error in errors] == list(range(16, 26))
    assert all(len(error.message) == 10_000 for error in errors)


def test_a_lost_lease_leaves_no_error(queue, db, open_db):
    job_id = queue.enqueue("n")
    (job,) = queue.claim()
    db.rescue(db.worker)
    assert not job.fail("too late")
    assert db.errors(job_id) == []


def test_results_are_kept_as_long_as_the_handler_says(queue, db, open_db, clock):
    db = open_db(clock=clock)
    queue = db.queue(queue.name)
    worker = Worker(db, queue.name)
    worker.handles("kept", result_ttl=100)(lambda job: {"sum": sum(job.payload)})
    worker.handles("strange", result_ttl=100)(lambda job: {1, 2})
    worker.handles("forgotten")(lambda job: 5)
    ids = {kind: queue.enqueue(kind, payload) for kind, payload in (("kept", [1, 2, 3]), ("strange", None), ("forgotten", None))}
    assert worker.run(until_empty=True).completed == 3
    kept = db.finished(ids["kept"])
    assert (kept.result, kept.payload, kept.kind, kept.queue, kept.attempts) == ({"sum": 6}, [1, 2, 3], "kept", queue.name, 1)
    assert (kept.expires_at - kept.finished_at).total_seconds() == 100
    assert db.finished(ids["strange"]).result == [1, 2]
    with pytest.raises(JobNotFoundError):
        db.finished(ids["forgotten"])
    clock.advance(101)
    with pytest.raises(JobNotFoundError):
        db.finished(ids["kept"])
    assert db.prune() >= 2
    table = db.store.tables.finished
    with queue.transaction() as connection:
        assert connection.execute(select(func.count()).where(table.c.queue == queue.name)).scalar_one() == 0


def test_the_result_and_the_completion_are_one(queue, db, open_db):
    """A lease that was lost leaves no result."""
    worker = Worker(db, queue.name)

    @worker.handles(None, result_ttl=100)
    def stolen(job):
        if job.attempts == 1:
            open_db().rescue(db.worker)
        return job.attempts

    job_id = queue.enqueue("n")
    summary = worker.run(until_empty=True)
    assert (summary.completed, summary.lost) == (1, 1)
    assert db.finished(job_id).result == 2


def test_to_wait_for_a_result(queue, db, running):
    worker = Worker(db, queue.name)
    go = threading.Event()

    @worker.handles("answer", result_ttl=100)
    def answer(job):
        assert go.wait(PATIENCE)
        return 42

    worker.handles("dies", max_attempts=1)(lambda job: 1 / 0)
    worker.handles("forgotten")(lambda job: 5)
    slow = queue.enqueue("answer")
    with running(worker):
        with pytest.raises(TimeoutError, match="is still"):
            db.wait(slow, 0.05)
        go.set()
        assert db.wait(slow, PATIENCE).result == 42
        with pytest.raises(JobDeadError, match=r"^job \d+ is dead: db\.get\(\d+\)\.last_error says why, "):
            db.wait(queue.enqueue("dies"), PATIENCE)
        with pytest.raises(JobNotFoundError, match="nothing is left of job .* not retained") as gone:
            db.wait(queue.enqueue("forgotten"), PATIENCE)
        assert not isinstance(gone.value, JobDeadError)


def test_old_errors_are_forgotten(queue, db, clock, open_db):
    db = open_db(clock=clock)
    job_id = db.queue(queue.name).enqueue("n")
    (job,) = db.queue(queue.name).claim()
    assert job.fail("no")
    clock.advance(100)
    db.prune(errors_older_than=200)
    assert len(db.errors(job_id)) == 1
    db.prune(errors_older_than=50)
    assert db.errors(job_id) == []
