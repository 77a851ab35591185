"""Deadlocks and networks that break: what is run again, and what is said."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from sqlalchemy import text

from queue_db import PermanentStorageError, QueueDB, State, StorageError, TransientStorageError, Verdict
from queue_db.aio import AsyncLeasedJob, AsyncQueue, AsyncQueueDB
from queue_db.concurrency.greenlets import run
from queue_db.feeds.store import cursors
from tests.aio.loop import for_asyncio
from tests.faults.once import Once
from tests.faults.test_contention import Gate, Rival
from tests.servers.proxy import Proxy

SERVERS = pytest.mark.parametrize("kind", ["postgresql", "mysql", "mariadb"], scope="session")


@pytest.fixture
def proxy(url: str) -> Iterator[Proxy]:
    with Proxy.before(url) as between:
        yield between


@pytest.fixture
def far(async_url: str, url: str, proxy: Proxy, name: str) -> Callable[[], Any]:
    """A queue at the other end of a network that breaks."""

    @asynccontextmanager
    async def opened() -> AsyncIterator[AsyncQueue]:
        async with AsyncQueueDB(for_asyncio(proxy.url(url))) as db:
            await db.check()
            yield db.queue(name)

    return opened


@SERVERS
async def test_a_deadlock_in_our_transaction_is_run_again_and_counted(
    kind: str, fresh_url: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with QueueDB(fresh_url) as db:
        db.migrate()
        async with AsyncQueueDB(for_asyncio(fresh_url)) as adb:
            queue = adb.queue(name)
            await queue.enqueue_many([("k", number) for number in range(50)])
            every = await queue.claim(50)
            jobs: Any = [*every[:2], every[-1]]
            if kind == "postgresql":
                async with queue.transaction() as connection:  # on the one connection that there is
                    await connection.execute(text("SET lock_timeout = 0"))
            rival = Rival(db, kind, jobs)
            rival.take_last()
            gate = Gate(adb._db, monkeypatch)

            def close_once() -> None:
                rival.close_the_circle()
                gate.let_one_in()  # the loop waits at the gate

            gate.let_one_in()
            verdicts = asyncio.create_task(queue.complete_many(jobs))
            await asyncio.to_thread(close_once)
            assert await verdicts == [Verdict.APPLIED] * 3
            assert (adb.counters.retried, adb.counters.deadlocks) == (1, 1)
            rival.close()


@pytest.mark.parametrize("kind", ["postgresql"], scope="session")
@pytest.mark.parametrize("number", [1, 3])
async def test_a_serialization_failure_is_run_again(mail: AsyncQueue, number: int) -> None:
    """Somebody changes the row between our snapshot and our change of it, for as many times as we try but one."""
    job_id = await mail.enqueue("k")
    runs = 0

    def work(connection: Any) -> int:
        nonlocal runs
        runs += 1
        connection.execute(text("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"))
        connection.execute(text("SELECT 1 FROM jobs"))
        if runs <= number:
            with connection.engine.connect() as other:
                other.execute(text("UPDATE jobs SET last_error = 'other' WHERE id = :id"), {"id": job_id})
        return connection.execute(text("UPDATE jobs SET last_error = 'ours' WHERE id = :id"), {"id": job_id}).rowcount

    database = mail.db._db.database
    assert await run(database.run, work, name="test") == 1
    assert runs == number + 1
    assert mail.db.counters.serialization_failures == number
    assert (await mail.get(job_id or 0)).last_error == "ours"


@SERVERS
@pytest.mark.usefixtures("no_second_look")
async def test_a_claim_cut_at_any_of_its_statements_is_made_again(mail: AsyncQueue, far: Callable[[], Any], proxy: Proxy) -> None:
    async with far() as queue:
        at = 0
        while True:
            at += 1
            job_id = await mail.enqueue("k", at)
            cut = Once(queue.db._db.database.engine, "", proxy.cut, at)
            (job,) = await queue.claim()
            assert (job.id, job.attempts, job.version) == (job_id, 1, 1)
            assert await job.complete()
            if not cut.happened:
                break
            cut.left = 0
        assert at > 1
        assert queue.db.counters.retried >= at - 1


@SERVERS
async def test_connections_that_all_died_are_no_error(far: Callable[[], Any], proxy: Proxy) -> None:
    async with far() as queue:
        await asyncio.gather(*[queue.enqueue("k", number) for number in range(10)])
        assert await asyncio.to_thread(proxy.cut) >= 1
        job_id = await queue.enqueue("k", priority=-1)
        assert (await queue.get(job_id)).state is State.AVAILABLE
        (job,) = await queue.claim()
        assert await asyncio.to_thread(proxy.cut) >= 1
        assert job.id == job_id
        assert await job.complete()


@SERVERS
async def test_a_network_that_is_gone_is_a_clear_error_and_loses_nothing(far: Callable[[], Any], proxy: Proxy) -> None:
    async with far() as queue:
        job_id = await queue.enqueue("k")
        await asyncio.to_thread(proxy.refuse)
        await asyncio.to_thread(proxy.cut)
        with pytest.raises(StorageError, match=r"^claim: ") as down:
            await queue.claim()
        assert not down.value.outcome_unknown
        assert down.value.__cause__ is not None
        proxy.forward()
        assert [job.id for job in await queue.claim()] == [job_id]


SETTLED: dict[str, tuple[Callable[[AsyncLeasedJob], Any], State | None]] = {
    "fail": (lambda job: job.fail("no luck", retry_in=60), State.SCHEDULED),
    "bury": (lambda job: job.bury("no use"), State.DEAD),
    "snooze": (lambda job: job.snooze(60), State.SCHEDULED),
    "release": (lambda job: job.release(), State.AVAILABLE),
    "extend": (lambda job: job.extend(600), State.RUNNING),
}


@SERVERS
@pytest.mark.parametrize("verb", SETTLED)
async def test_a_verdict_survives_a_connection_that_breaks_at_its_commit(
    mail: AsyncQueue, far: Callable[[], Any], proxy: Proxy, verb: str
) -> None:
    settle, expected = SETTLED[verb]
    async with far() as queue:
        await queue.enqueue("k")
        (job,) = await queue.claim(lease=60)
        cut = Once(queue.db._db.database.engine, "COMMIT", proxy.cut)
        assert await settle(job) is Verdict.APPLIED
        assert cut.happened
        seen = await mail.get(job.id)
        assert seen.state is expected
        assert seen.version == 2, "it happened twice, or not at all"


@SERVERS
async def test_an_enqueue_whose_commit_is_in_doubt_says_so(mail: AsyncQueue, far: Callable[[], Any], proxy: Proxy) -> None:
    async with far() as queue:
        Once(queue.db._db.database.engine, "COMMIT", proxy.cut)
        with pytest.raises(TransientStorageError, match="it is unknown whether it took effect") as doubt:
            await queue.enqueue("k", unique_key="order 7")
        assert doubt.value.outcome_unknown
        await queue.enqueue("k", unique_key="order 7", on_duplicate="skip")
    assert (await mail.stats()).available == 1


async def test_the_error_of_a_reader_comes_out_and_not_that_of_the_release(
    adb: AsyncQueueDB, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> bool:
        raise PermanentStorageError("the release failed")

    monkeypatch.setattr(cursors, "release", fail)
    with pytest.raises(KeyError, match="first"):
        async with await adb.feed(name).cursor("mine"):
            raise KeyError("first")
    with pytest.raises(PermanentStorageError, match="the release failed"):
        async with await adb.feed(name).cursor("mine", take_over=True):
            pass
