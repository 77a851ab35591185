"""What users test with: drain, inline, and the fixtures."""

import asyncio
import dataclasses

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import StaticPool

from queue_db import (
    ConfigurationError,
    Dead,
    JobNotFoundError,
    LeaseLostError,
    PayloadError,
    Snooze,
    State,
    UnknownKindError,
    Verdict,
)
from queue_db.aio import AsyncQueueDB
from queue_db.backoff import constant
from queue_db.testing import drain, inline
from queue_db.testing import job as made_job
from queue_db.testing.fixtures import queue_clock, queue_database  # noqa: F401 - fixtures, under their own names
from queue_db.worker import Worker
from tests.aio.loop import for_asyncio
from tests.patience import PATIENCE, wait_for

pytestmark = pytest.mark.parametrize("kind", ["sqlite"])


@dataclasses.dataclass
class Numbered:
    user: int


@pytest.fixture
def shop(queue_database):  # noqa: F811 - a fixture
    worker = Worker(queue_database, ["mail", "reports"])
    worker.seen = []

    @worker.handles("welcome")
    def welcome(job):
        worker.seen.append(("welcome", job.payload))
        queue_database.queue("reports").enqueue("report", job.payload)

    @worker.handles("report", result_ttl=60)
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


@pytest.mark.parametrize("unknown", ["wait", "dead"])
def test_strangers_and_misfits_are_parked_and_seen(kind, shop, unknown):
    """A test with a mistyped kind, or a payload that does not fit, must not pass."""
    shop.configure(unknown=unknown)
    mail = shop.db.queue("mail")
    with pytest.raises(PayloadError):
        mail.enqueue("number", "x")
    shop.db.schemas.clear()
    misfit = mail.enqueue("number", "x")
    with pytest.raises(PayloadError):
        drain(shop)
    stranger = mail.enqueue("stranger")
    with pytest.raises(UnknownKindError, match="stranger"):
        drain(shop)
    assert [shop.db.get(job_id).last_error.split(":")[0] for job_id in (misfit, stranger)] == ["parked", "parked"]
    with inline(shop), pytest.raises(UnknownKindError, match="strange"):
        mail.enqueue("strange")
    mail.enqueue("stranger")
    assert len(drain(shop, raises=False)) == 1


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


def test_drain_in_a_running_loop(kind, shop):
    """A coroutine of a test, as pytest-asyncio runs it."""
    report = shop.db.queue("reports").enqueue("report", 7)

    async def drains():
        return drain(shop)

    (job,) = asyncio.run(drains())
    assert job.id == report
    assert shop.seen == [("report", 7)]
    assert shop.db.finished(report).result == "done"


@pytest.mark.parametrize("asynchronous", [False, True])
def test_drain_obeys_timeouts(kind, shop, asynchronous):
    lost = []

    def hangs(job):
        lost.append(job.lost.wait(PATIENCE))

    async def hangs_too(job):
        await asyncio.sleep(PATIENCE)

    shop.handles("hangs", timeout=0.05)(hangs_too if asynchronous else hangs)
    shop.handles("in time", timeout=PATIENCE)(lambda job: shop.seen.append(job.payload))
    mail = shop.db.queue("mail")
    job_id = mail.enqueue("hangs")
    with pytest.raises(TimeoutError, match=r"no result after 0\.05 s"):
        drain(shop)
    assert shop.db.get(job_id).last_error == "TimeoutError: no result after 0.05 s"
    assert asynchronous or wait_for(lambda: lost) == [True]
    mail.enqueue("in time", 8)
    drain(shop)
    assert shop.seen == [8]


def test_a_handler_with_a_timeout_enqueues_into_its_own_queue(kind, shop):
    mail = shop.db.queue("mail")
    shop.handles("first", timeout=PATIENCE)(lambda job: mail.enqueue("second"))  # in a thread of its own
    shop.handles("second")(lambda job: shop.seen.append(job.kind))
    with inline(shop):
        mail.enqueue("first")
    assert shop.seen == ["second"]


def test_a_timeout_of_the_handlers_own_is_its_failure(kind, shop):
    def gives_up(job):
        raise TimeoutError("no answer from the mail server")

    shop.handles("gives up", timeout=PATIENCE)(gives_up)
    shop.db.queue("mail").enqueue("gives up")
    with pytest.raises(TimeoutError, match="no answer"):
        drain(shop)


# --- without a database -------------------------------------------------------------------------------------------------


def test_a_handler_is_called_with_a_job_made_of_a_payload(kind):
    def welcome(job):
        if job.attempts > 1:
            return Dead("again")
        job.progress(0.5, "half of it")
        return Snooze(job.payload["user"] + job.priority)

    assert welcome(made_job({"user": 7}, priority=3)) == Snooze(10)
    assert welcome(made_job({"user": 7}, attempts=2)) == Dead("again")
    job = made_job((1, 2), kind="n", queue="mail", headers={"tenant": "a"}, group="g", unique_key="u", max_attempts=3)
    assert (job.payload, job.headers, job.group, job.unique_key) == ([1, 2], {"tenant": "a"}, "g", "u")
    assert repr(job) == "<LeasedJob 1:1 'n' in 'mail', attempt 1/3>"
    assert job.waited is None
    assert made_job({"user": 3}, schema=Numbered).payload == Numbered(3)
    for wrong in (lambda: made_job({1, 2}), lambda: made_job({"usr": 1}, schema=Numbered)):
        with pytest.raises(PayloadError):
            wrong()


@pytest.mark.parametrize(
    ("settle", "verb"),
    [
        (lambda job: job.complete(), "complete"),
        (lambda job: job.fail("no"), "fail"),
        (lambda job: job.snooze(1), "snooze"),
        (lambda job: job.release(), "release"),
        (lambda job: job.cancel(), "cancel"),
        (lambda job: job.bury("no"), "bury"),
        (lambda job: job.settle(Dead("no")), "bury"),
    ],
)
def test_a_job_without_a_database_shows_how_it_was_settled(kind, settle, verb):
    job = made_job()
    assert job.extend(60) is Verdict.APPLIED
    assert (job.settled, job.settled_by, job.version) == (False, None, 2)
    assert settle(job) is Verdict.APPLIED
    assert (job.settled, job.settled_by) == (True, verb)
    assert job.complete() is Verdict.LOST
    taken = made_job()
    taken.lost.set()
    assert settle(taken) is Verdict.LOST
    assert not taken.settled


def test_its_transaction_is_one_of_the_tests_engine(kind):
    engine = create_engine("sqlite://", poolclass=StaticPool)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE ledger (job INTEGER)"))

    def book(job):
        with job.transaction() as connection:
            connection.execute(text("INSERT INTO ledger VALUES (:job)"), {"job": job.id})

    job = made_job(engine=engine)
    book(job)
    taken = made_job(engine=engine, id=2)
    taken.lost.set()
    with pytest.raises(LeaseLostError):
        book(taken)
    with engine.begin() as connection:
        assert connection.execute(text("SELECT job FROM ledger")).scalars().all() == [1]
    assert job.settled_by == "complete"
    with pytest.raises(ConfigurationError, match="engine="):
        book(made_job())


def test_inline_does_a_job_when_the_callers_transaction_has_committed(kind, shop):
    mail, engine = shop.db.queue("mail"), create_engine(shop.db.database.engine.url)
    with inline(shop):
        with Session(engine) as session:
            mail.enqueue("welcome", 1, using=session)
            assert shop.seen == []
            session.commit()
            assert shop.seen == [("welcome", 1), ("report", 1)]
            mail.enqueue("welcome", 2, using=session)
            session.rollback()
        with engine.begin() as connection:
            mail.enqueue_many([("welcome", 3)], using=connection)
            shop.db.queue("other").enqueue("welcome", 9, using=connection)  # not one of this worker's queues
        assert shop.seen[2:] == [("welcome", 3), ("report", 3)]
    with pytest.raises(ValueError, match="a bad one"), inline(shop):  # noqa: PT012 - at its end
        with engine.begin() as connection:
            mail.enqueue("bad", using=connection)
        assert len(shop.seen) == 4
    with engine.begin() as connection:
        mail.enqueue("welcome", 4, using=connection)
    assert len(shop.seen) == 4
    engine.dispose()


def test_inline_does_the_jobs_of_tasks_too(kind, shop, queue_clock):  # noqa: F811 - a fixture
    async def serve():
        engine = create_async_engine(for_asyncio(str(shop.db.database.engine.url)))
        async with AsyncQueueDB(engine, clock=queue_clock) as db:
            mail = db.queue("mail")
            with inline(shop, db):
                await mail.enqueue("welcome", 1)
                assert shop.seen == [("welcome", 1), ("report", 1)]  # the report is a coroutine
                async with AsyncSession(engine) as session, session.begin():
                    await mail.enqueue("welcome", 2, using=session)
                    assert len(shop.seen) == 2
                assert shop.seen[2:] == [("welcome", 2), ("report", 2)]
                with pytest.raises(ValueError, match="a bad one"):
                    await mail.enqueue("bad")
            await mail.enqueue("welcome", 3)
            assert len(shop.seen) == 4
        await engine.dispose()

    asyncio.run(serve())
