"""What users test with: drain, inline, and the fixtures."""

import asyncio

import pytest

from queue_db import JobNotFoundError, PayloadError, Snooze, State
from queue_db.backoff import constant
from queue_db.testing import drain, inline
from queue_db.testing.fixtures import queue_clock, queue_database  # noqa: F401 - fixtures, under their own names
from queue_db.worker import Worker

pytestmark = pytest.mark.parametrize("kind", ["sqlite"])


@pytest.fixture
def shop(queue_database):  # noqa: F811 - a fixture
    worker = Worker(queue_database, ["mail", "reports"])
    worker.seen = []

    @worker.handles("welcome")
    def welcome(job):
        worker.seen.append(("welcome", job.payload))
        queue_database.queue("reports").enqueue("report", job.payload)

    @worker.handles("report", keep=60)
    async def report(job):
        await asyncio.sleep(0)
        worker.seen.append(("report", job.payload))
        return "done"

    @worker.handles("later")
    def later(job):
        worker.seen.append(("later", job.attempts))
        return Snooze(60) if len(worker.seen) == 1 else None

    @worker.handles("bad", backoff=constant(5), max_attempts=2)
    def bad(job):
        raise ValueError("a bad one")

    worker.handles("number", schema=int)(lambda job: worker.seen.append(job.payload))
    return worker


def test_drain_does_what_is_due_and_what_that_adds(kind, shop):
    mail = shop.db.queue("mail")
    first, second = mail.enqueue("welcome", 1), mail.enqueue("welcome", 2)
    jobs = drain(shop)
    assert [job.kind for job in jobs] == ["welcome", "welcome", "report", "report"]
    assert [job.id for job in jobs[:2]] == [first, second]
    assert shop.seen == [("welcome", 1), ("welcome", 2), ("report", 1), ("report", 2)]
    assert shop.db.finished(jobs[-1].id).result == "done"
    assert drain(shop) == []


def test_time_passes_when_the_clock_is_set(kind, shop, queue_clock):  # noqa: F811 - a fixture
    shop.db.queue("mail").enqueue("later", delay=30)
    assert drain(shop) == []
    queue_clock.advance(31)
    assert len(drain(shop)) == 1
    queue_clock.advance(61)
    assert len(drain(shop)) == 1
    assert shop.seen == [("later", 1), ("later", 1)]


def test_what_a_handler_raises_is_seen_and_counts(kind, shop, queue_clock):  # noqa: F811 - a fixture
    job_id = shop.db.queue("mail").enqueue("bad")
    with pytest.raises(ValueError, match="a bad one"):
        drain(shop)
    assert shop.db.get(job_id).attempts == 1
    queue_clock.advance(6)
    assert len(drain(shop, raises=False)) == 1
    assert shop.db.get(job_id).state is State.DEAD


def test_strangers_and_misfits_are_parked(kind, shop):
    mail = shop.db.queue("mail")
    with pytest.raises(PayloadError):
        mail.enqueue("number", "x")
    shop.db.schemas.clear()
    ids = [mail.enqueue("number", "x"), mail.enqueue("stranger")]
    drain(shop)
    assert [shop.db.get(job_id).last_error.split(":")[0] for job_id in ids] == ["parked", "parked"]


def test_inline_does_a_job_before_enqueue_returns(kind, shop):
    mail = shop.db.queue("mail")
    with inline(shop):
        job_id = mail.enqueue("welcome", 7)
        assert shop.seen == [("welcome", 7), ("report", 7)]
        with pytest.raises(JobNotFoundError):
            mail.get(job_id)
        shop.db.queue("other").enqueue("welcome", 8)  # not one of this worker's queues
    mail.enqueue("welcome", 9)
    assert len(shop.seen) == 2


def test_a_job_that_enqueues_itself_comes_to_an_end(kind, shop, monkeypatch):
    monkeypatch.setattr("queue_db.testing.running.MOST", 20)
    mail = shop.db.queue("mail")
    shop.handles("again")(lambda job: mail.enqueue("again") and None)
    mail.enqueue("again")
    with pytest.raises(RuntimeError, match="enqueue itself"):
        drain(shop)
