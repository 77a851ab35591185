"""Events of jobs that are published to topics."""

import pytest

from queue_db import QueueDB
from queue_db.backoff import constant
from queue_db.errors import ArgumentError
from queue_db.instrumentation.topics import publish_events
from queue_db.worker import Worker


@pytest.fixture
def worker(db: QueueDB, name: str) -> Worker:
    found = Worker(db, queues=[name])

    @found.handles("fails", max_attempts=2, backoff=constant(0.0))
    def fails(job):
        raise ValueError(f"no {job.payload}")

    @found.handles("works")
    def works(job):
        pass

    return found


@pytest.fixture
def routed(db: QueueDB, name: str):
    db.routes.set(name, feed=name)
    db.routes.subscribe(f"jobs.{name}.*", name)
    yield name
    db.routes.remove(name)


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"], scope="session")
def test_failures_and_deaths_are_published_and_nothing_else(db: QueueDB, routed: str, worker: Worker) -> None:
    publish_events(worker)
    job_id = db.queue(routed).enqueue("fails", 7)
    db.queue(routed).enqueue("works")
    worker.run(until_empty=True)
    failed, dead = db.feed(routed).read().messages
    assert (failed.kind, failed.key, failed.headers["topic"]) == ("failed", str(job_id), f"jobs.{routed}.failed")
    seconds = failed.payload.pop("seconds")
    assert seconds >= 0
    same = {"id": job_id, "queue": routed, "kind": "fails", "error": "ValueError: no 7"}
    assert failed.payload == same | {"attempts": 1, "reason": None}
    assert dead.headers["topic"] == f"jobs.{routed}.dead"
    del dead.payload["seconds"]
    assert dead.payload == same | {"attempts": 2, "reason": "failed"}


@pytest.mark.parametrize("kind", ["sqlite"], scope="session")
def test_jobs_made_of_events_have_no_events(db: QueueDB, name: str, worker: Worker) -> None:
    publish_events(worker)
    db.routes.set(name, enqueue=(name, "fails"))
    db.routes.subscribe("jobs.#", name, "amqp")
    db.queue(name).enqueue("fails", 7)
    worker.run(until_empty=True)
    db.routes.remove(name)
    # One failed, and one died: two alerts, and none of these.
    assert db.dead.count(name) == 3


@pytest.mark.parametrize("kind", ["sqlite"], scope="session")
def test_an_event_that_cannot_be_published_is_logged_and_changes_nothing(
    db: QueueDB, routed: str, worker: Worker, caplog: pytest.LogCaptureFixture
) -> None:
    publish_events(worker, events=["completed"])
    db.queue(routed).enqueue("works")
    worker.db.topic = lambda name: 1 / 0  # type: ignore[method-assign]
    with caplog.at_level("ERROR"):
        worker.run(until_empty=True)
    assert db.queue(routed).stats().available == 0
    assert any("ZeroDivisionError" in str(record.exc_info) for record in caplog.records)


@pytest.mark.parametrize("kind", ["sqlite"], scope="session")
def test_an_event_that_there_is_not_is_refused(worker: Worker) -> None:
    with pytest.raises(ArgumentError, match="there is no event 'died'; there are cancelled, completed"):
        publish_events(worker, events=["died"])
