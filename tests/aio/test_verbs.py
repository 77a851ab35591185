"""Each verb, awaited, on every database."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine

from queue_db import (
    Cancel,
    ConfigurationError,
    Dead,
    DeathReason,
    DuplicateJobError,
    JobNotFoundError,
    PayloadError,
    QueueDB,
    Retry,
    Snooze,
    State,
    Verdict,
)
from queue_db.aio import AsyncLeasedJob, AsyncQueue, AsyncQueueDB
from queue_db.errors import ArgumentError, LeaseLostError, StreamError
from queue_db.model import StoredResult
from queue_db.testing import SettableClock
from tests.aio.harness import OpenAsync
from tests.aio.loop import for_asyncio


async def test_a_job_from_enqueue_to_complete(mail: AsyncQueue, name: str) -> None:
    job_id = await mail.enqueue("welcome", {"to": "🦆"}, priority=-1, headers={"h": 1}, unique_key="k", max_attempts=3)
    (job,) = await mail.claim(lease=30)
    assert isinstance(job, AsyncLeasedJob)
    assert (job.id, job.queue, job.kind, job.payload, job.payload_text) == (job_id, name, "welcome", {"to": "🦆"}, '{"to":"🦆"}')
    assert (job.priority, job.headers, job.unique_key, job.attempts, job.max_attempts) == (-1, {"h": 1}, "k", 1, 3)
    assert (job.version, job.fence, job.last_error, job.source) == (1, f"{job_id}:1", None, mail)
    assert job.due_at is not None
    assert job.created_at <= job.due_at < job.lease_expires
    assert "welcome" in repr(job)
    assert (await mail.get(job.id)).state is State.RUNNING
    assert await job.extend(60) is Verdict.APPLIED
    assert (job.version, job.lease_expires) == (2, (await mail.get(job.id)).available_at)
    assert await job.complete() is Verdict.APPLIED
    assert await job.complete() is Verdict.LOST
    with pytest.raises(JobNotFoundError):
        await mail.get(job.id)


async def test_what_is_wrong_is_told(mail: AsyncQueue) -> None:
    await mail.enqueue("k", unique_key="one")
    with pytest.raises(DuplicateJobError):
        await mail.enqueue("k", unique_key="one")
    assert await mail.enqueue("k", unique_key="one", on_duplicate="skip") is None
    with pytest.raises(PayloadError):
        await mail.enqueue("k", object())
    with pytest.raises(ArgumentError):
        await mail.claim(0)
    with pytest.raises(ArgumentError, match="is not a LeasedJob"):
        await mail.complete_many(["job"])  # type: ignore[list-item]


@pytest.mark.parametrize("number", [3, 2500])
async def test_many_at_once_are_all_there_and_in_order(mail: AsyncQueue, number: int) -> None:
    ids = await mail.enqueue_many(("k", place) for place in range(number))
    assert len(set(ids)) == number
    jobs = await mail.claim(number)
    assert [(job.id, job.payload) for job in jobs] == list(zip(ids, range(number), strict=True))
    assert await mail.complete_many(jobs) == [Verdict.APPLIED] * number


async def test_a_claim_of_many_answers_for_each(mail: AsyncQueue, caplog: pytest.LogCaptureFixture) -> None:
    await mail.enqueue_many([("k", place) for place in range(6)])
    jobs = await mail.claim(6)
    assert await mail.fail_many(jobs[:1], "no", retry_in=60) == [Verdict.APPLIED]
    assert await mail.snooze_many(jobs[1:2], 60) == [Verdict.APPLIED]
    assert await mail.release_many(jobs[2:3]) == [Verdict.APPLIED]
    assert await mail.extend_many([jobs[3], jobs[3], jobs[0]], 60) == [Verdict.APPLIED, Verdict.APPLIED, Verdict.LOST]
    assert await mail.cancel_many(jobs[4:5]) == [Verdict.APPLIED]
    assert await mail.bury_many(jobs[5:], ["no use"], reason=DeathReason.PAYLOAD) == [Verdict.APPLIED]
    assert [vars(record)["reason"] for record in caplog.records if "reason" in vars(record)] == ["payload"]
    stats = await mail.stats()
    assert (stats.scheduled, stats.available, stats.running, stats.dead) == (2, 1, 1, 1)
    assert (await mail.get(jobs[1].id)).attempts == 0
    failed, snoozed, buried = [await mail.get(jobs[at].id) for at in (0, 1, 5)]
    assert (failed.last_error, buried.last_error) == ("no", "no use")
    assert all(job.available_at - job.created_at > timedelta(seconds=55) for job in (failed, snoozed))


async def test_a_handlers_outcomes(mail: AsyncQueue) -> None:
    outcomes = [None, Snooze(60), Retry("later", 60), Cancel(), Dead("no use")]
    await mail.enqueue_many([("k", None)] * len(outcomes))
    jobs = await mail.claim(len(outcomes))
    for job, outcome in zip(jobs, outcomes, strict=True):
        assert await job.settle(outcome) is Verdict.APPLIED
    stats = await mail.stats()
    assert (stats.scheduled, stats.running, stats.dead) == (2, 0, 1)
    await mail.enqueue_many([("k", None)] * 5)
    fail, snooze, release, cancel, bury = await mail.claim(5)
    verdicts = [await fail.fail(ValueError("no"), 60), await snooze.snooze(60), await cancel.cancel(), await bury.bury("no")]
    assert verdicts == [Verdict.APPLIED] * 4
    assert await release.release() is Verdict.APPLIED
    assert [job.id for job in await mail.peek()] == [release.id]
    later = [await mail.get(job.id) for job in (fail, snooze)]
    assert all(job.available_at - job.created_at > timedelta(seconds=55) for job in later)
    assert (await mail.get(bury.id)).last_error == "no"


async def test_whoever_lost_the_lease_changes_nothing(open_async: OpenAsync, name: str) -> None:
    clock = SettableClock()
    mine, theirs = [(await open_async(clock=clock)).queue(name) for _ in range(2)]
    await mine.enqueue("k")
    (late,) = await mine.claim(lease=1)
    clock.advance(2)
    (job,) = await theirs.claim()
    before = await theirs.get(job.id)
    for verb in (late.complete, late.release, late.cancel, lambda: late.fail("no"), lambda: late.extend(9), lambda: late.snooze(9)):
        assert await verb() is Verdict.LOST
    assert await theirs.get(job.id) == before
    assert await job.complete() is Verdict.APPLIED


async def test_the_queues_of_a_database(adb: AsyncQueueDB, mail: AsyncQueue, name: str) -> None:
    assert adb.queue(name) is mail
    assert adb.queue(name) is not adb.queue(f"{name}-2")
    await adb.check()
    assert "CREATE TABLE" in adb.migration_sql()
    assert name not in await adb.queues()
    assert await adb.next_due([name]) == {name: None}
    job_id = await mail.enqueue("k", delay=3600) or 0
    assert name in await adb.queues()
    wait = (await adb.next_due([name]))[name]
    assert wait is not None
    assert 3000 < wait <= 3600
    assert await adb.now() < (await adb.get(job_id)).available_at <= await adb.now() + timedelta(seconds=3600)
    assert (await adb.get(job_id)).queue == name
    assert await adb.cancel(job_id) is Verdict.APPLIED
    await mail.enqueue("k")
    await mail.enqueue("k", run_at=datetime.now(UTC) + timedelta(days=1))
    assert [job.kind for job in await mail.pop(5)] == ["k"]
    assert await mail.purge() == 1
    assert adb.counters.claimed >= 1


async def test_a_handle_settles_elsewhere(mail: AsyncQueue, open_async: OpenAsync, name: str) -> None:
    await mail.enqueue_many([("k", 1), ("k", 2)])
    one, two = await mail.claim(2, worker="node-17")
    assert (one.worker, (await mail.get(one.id)).worker) == ("node-17", "node-17")
    other = (await open_async()).queue(name)
    assert await (await other.lease_from_token(one.id, one.version, one.token)).complete()
    lost, held = await other.leases_from_tokens([(one.id, one.version, one.token), (two.id, two.version, two.token)])
    assert lost is None
    assert held is not None
    assert await held.complete()
    with pytest.raises(LeaseLostError):
        await other.lease_from_token(two.id, two.version, two.token)


async def test_a_job_runs_now(mail: AsyncQueue, adb: AsyncQueueDB) -> None:
    job_id = await mail.enqueue("k", delay=3600) or 0
    assert await mail.reschedule(job_id, delay=0, version=0)
    assert await mail.cancel(job_id, version=0) is Verdict.LOST
    assert await adb.cancel(job_id, version=1)


async def test_pages_of_jobs(mail: AsyncQueue) -> None:
    await mail.enqueue_many([("k", number) for number in range(3)])
    first = await mail.jobs("available", limit=2)
    second = await mail.jobs("available", after=first.after, limit=2)
    assert ([job.payload for job in [*first.jobs, *second.jobs]], second.after) == ([0, 1, 2], None)


async def test_what_is_remembered(adb: AsyncQueueDB, mail: AsyncQueue, open_async: OpenAsync, name: str) -> None:
    await mail.enqueue_many([("k", 1), ("k", 2)])
    done, failed = await mail.claim(2)
    await failed.fail(ValueError("no luck"))
    assert [(error.attempt, error.error_class) for error in await adb.errors(failed.id)] == [(1, "ValueError")]
    with pytest.raises(TimeoutError):
        await adb.wait(done.id, timeout=0.01)
    await mail.complete_many([done], results=[StoredResult(result="42", lasts=60_000_000)])
    assert (await adb.finished(done.id)).result == 42
    assert (await adb.wait(done.id, timeout=5)).result == 42
    assert await adb.prune(errors_older_than=10**8) >= 0
    assert await adb.sweep() >= 0
    assert isinstance(await adb.workers(), list)
    other = await open_async(worker=f"worker of {name}")
    await mail.enqueue("k")
    await other.queue(name).claim()
    assert await adb.rescue(f"worker of {name}") == 1


async def test_the_dead_come_back(adb: AsyncQueueDB, mail: AsyncQueue, name: str) -> None:
    await mail.enqueue_many([("k", 1), ("k", 2)])
    for job in await mail.claim(2):
        await job.bury("no use")
    first, second = await adb.dead.list(name)
    assert await adb.dead.redrive(first.id) == [first.id]
    assert await adb.dead.purge(name) == 1
    with pytest.raises(JobNotFoundError):
        await adb.dead.redrive(second.id)


async def test_schedules_and_streams(adb: AsyncQueueDB, mail: AsyncQueue, name: str) -> None:
    assert await adb.schedules.set(name, name, "nightly", {"n": 1}, every=60, first_at=datetime.now(UTC) - timedelta(seconds=1))
    await adb.schedules.pause(name)
    assert [one.paused for one in await adb.schedules.list() if one.name == name] == [True]
    await adb.schedules.resume(name)
    enqueued, _ = await adb.schedules.tick()
    assert enqueued >= 1
    assert [job.kind for job in await mail.peek()] == ["nightly"]
    assert await adb.schedules.remove(name)
    assert await adb.streams.list(name) == []
    with pytest.raises(StreamError):
        await adb.streams.release(name)
    assert name not in await adb.streams.expire()


async def test_what_is_said_about_a_queue(mail: AsyncQueue) -> None:
    await mail.limit(concurrency=3, rate=5, per=2)
    controls = await mail.controls()
    assert (controls.concurrency, controls.rate, controls.paused) == (3, 5, False)
    await mail.limit(rate=None)
    assert ((await mail.controls()).concurrency, (await mail.controls()).rate) == (3, None)
    assert await mail.pause() is True
    assert (await mail.controls()).paused
    await mail.resume()
    assert not (await mail.controls()).paused
    await mail.enqueue("k")
    await mail.claim()
    assert await mail.pause(wait=0.01) is False


async def test_stamps_and_schemas(adb: AsyncQueueDB, mail: AsyncQueue) -> None:
    assert adb.header_provider is None
    adb.header_provider = lambda: {"trace": "t"}
    await mail.enqueue("k")
    assert (await mail.peek())[0].headers == {"trace": "t"}
    assert adb.schemas == {}


async def test_the_tables_are_made_and_removed(kind: str, fresh_url: str) -> None:
    with QueueDB(fresh_url):
        pass  # MySQL lets a password in without TLS only once it has seen it with TLS
    async with AsyncQueueDB(for_asyncio(fresh_url)) as db:
        await db.migrate()
        await db.check()
        await db.migrate(revision="base")
    engine = create_async_engine(for_asyncio(fresh_url))
    async with AsyncQueueDB(engine) as db:
        async with engine.begin() as connection:
            await db.migrate(connection)
        await db.check()
        await db.queue("q").enqueue("k")
    async with engine.connect() as connection:
        assert (await connection.execute(text("SELECT count(*) FROM jobs"))).scalar_one() == 1
    await engine.dispose()


async def test_jobs_of_another_queue_object_are_refused(open_async: OpenAsync, name: str) -> None:
    mine, theirs = [(await open_async()).queue(name) for _ in range(2)]
    await mine.enqueue("k")
    jobs = await mine.claim()
    with pytest.raises(ArgumentError, match="was claimed from"):
        await theirs.complete_many(jobs)


async def test_a_missing_queue_name_is_refused(adb: AsyncQueueDB) -> None:
    with pytest.raises(ArgumentError):
        adb.queue("")
    with pytest.raises(ConfigurationError):
        AsyncQueueDB("sqlite://").queue("q")
