"""A job, its result and its steps as the caller's transaction sees them: ``using=`` of what only reads."""

from __future__ import annotations

import pytest

from queue_db import JobNotFoundError, Queue, QueueDB
from queue_db.model import StoredResult


def test_a_transaction_sees_the_jobs_that_it_has_added(queue: Queue, db: QueueDB) -> None:
    with queue.transaction() as connection:
        job_id = queue.enqueue("mail", "order", using=connection)
        assert db.get(job_id, using=connection).payload == "order"
        with pytest.raises(JobNotFoundError):
            db.get(job_id)
    assert db.get(job_id).payload == "order"


def test_a_transaction_sees_the_results_that_it_has_stored(queue: Queue, db: QueueDB) -> None:
    queue.enqueue("mail", "order")
    (job,) = queue.claim()
    assert job.state.save({"done": 1})
    with queue.transaction() as connection:
        assert [step.value for step in db.steps.list(job.id, using=connection)] == [{"done": 1}]
        (verdict,) = queue.complete_many([job], using=connection, results=[StoredResult('"sent"', 10**9)])
        assert verdict
        assert db.finished(job.id, using=connection).result == "sent"
        assert db.steps.list(job.id, using=connection) == []
        with pytest.raises(JobNotFoundError):
            db.get(job.id, using=connection)
        with pytest.raises(JobNotFoundError):
            db.finished(job.id)
    assert db.finished(job.id).result == "sent"
