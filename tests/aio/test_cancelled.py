"""A task that is cancelled at any point of a verb leaves it done or not done, and the pool as good as before."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from sqlalchemy import text

from queue_db import State, TransientStorageError, Verdict
from queue_db.aio import AsyncLeasedJob, AsyncQueue, AsyncQueueDB
from queue_db.database.transaction import OwnTransaction
from queue_db.testing import SettableClock
from queue_db.verbs.claim_round import Unanswered
from tests.aio.cancelling import cancel_everywhere
from tests.aio.harness import OpenAsync
from tests.patience import PATIENCE


async def idle(db: AsyncQueueDB) -> bool:
    """Whether all connections are back."""
    pool: Any = db._db.database.engine.pool
    return pool.checkedout() == 0


async def test_an_enqueue(adb: AsyncQueueDB, mail: AsyncQueue) -> None:
    missing = 0  # of those that were cancelled: the server may still be at their COMMIT

    async def check(at: int, cancelled: bool) -> None:
        nonlocal missing
        found = await mail.purge()
        assert (0 if cancelled else 1) <= found <= 1 + missing
        missing += 1 - found
        assert await idle(adb)

    assert await cancel_everywhere(lambda at: mail.enqueue("k", at), check) > 1


async def test_an_enqueue_of_many(adb: AsyncQueueDB, mail: AsyncQueue) -> None:
    missing = 0  # as for one

    async def check(at: int, cancelled: bool) -> None:
        nonlocal missing
        calls, rest = divmod(await mail.purge(), 2100)
        assert not rest
        assert (0 if cancelled else 1) <= calls <= 1 + missing
        missing += 1 - calls
        assert await idle(adb)

    assert await cancel_everywhere(lambda at: mail.enqueue_many([("k", at)] * 2100), check) > 1


async def test_a_claim(open_async: OpenAsync, name: str) -> None:
    clock = SettableClock()
    db = await open_async(clock=clock)
    queue = db.queue(name)
    ids = set(await queue.enqueue_many([("k", number) for number in range(3)]))

    async def check(at: int, cancelled: bool) -> None:
        assert await idle(db)
        clock.advance(100)
        jobs: list[AsyncLeasedJob] = []
        async with asyncio.timeout(PATIENCE):  # the server may still be at the COMMIT of the one that was cancelled
            while len(jobs) < len(ids):
                jobs += await queue.claim(10)
        assert sorted(job.id for job in jobs) == sorted(ids)
        assert all(await queue.release_many(jobs))

    assert await cancel_everywhere(lambda at: queue.claim(3, lease=60), check) > 1


async def test_what_a_cancelled_claim_has_won_is_given_back_by_the_next(mail: AsyncQueue) -> None:
    """Cancelled where the answer has come, but the verb is not at its end."""
    await mail.enqueue_many([("k", number) for number in range(3)])
    claiming = mail._sync._claims
    claim = claiming._take_in

    def stop_after(*arguments: Any, **named: Any) -> Any:
        claim(*arguments, **named)
        raise asyncio.CancelledError

    claiming._take_in = stop_after  # type: ignore[method-assign]
    with pytest.raises(asyncio.CancelledError):
        await mail.claim(3)
    claiming._take_in = claim  # type: ignore[method-assign]
    assert (await mail.stats()).running == 3
    # It gives back unanswered claims after its first look, so where one look is enough the jobs are there for the one after.
    jobs = await mail.claim(3) or await mail.claim(3)
    assert [job.attempts for job in jobs] == [1, 1, 1]


async def test_a_claim_that_is_cancelled_while_it_gives_back_loses_nothing(
    mail: AsyncQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    await mail.enqueue_many([("k", number) for number in range(6)])
    claiming = mail._sync._claims
    (first,) = await mail.claim()
    claiming.unanswered.append(Unanswered(first.leased.token))  # as if nobody had it in hand
    enter = OwnTransaction.__enter__

    def stop_before(tx: OwnTransaction) -> OwnTransaction:
        if tx.run.name == "settle.give_back_claim":
            raise asyncio.CancelledError
        return enter(tx)

    with monkeypatch.context() as patched:
        patched.setattr(OwnTransaction, "__enter__", stop_before)
        with pytest.raises(asyncio.CancelledError):
            await mail.claim(3)
    assert (await mail.stats()).running == 4
    got = [job.id for _ in range(3) for job in await mail.claim(6)]
    assert len(set(got)) == len(got) == 6


@pytest.mark.parametrize("verb", ["complete", "fail", "release", "extend", "bury"])
async def test_a_settlement(adb: AsyncQueueDB, mail: AsyncQueue, verb: str) -> None:
    verbs: dict[str, Callable[[AsyncLeasedJob], Awaitable[Verdict]]] = {
        "complete": lambda job: job.complete(),
        "fail": lambda job: job.fail("no", 60),
        "release": lambda job: job.release(),
        "extend": lambda job: job.extend(600),
        "bury": lambda job: job.bury("no use"),
    }
    done = {"fail": State.SCHEDULED, "release": State.AVAILABLE, "extend": State.RUNNING, "bury": State.DEAD}
    held: list[AsyncLeasedJob] = []

    async def settle() -> Verdict:
        return await verbs[verb](held[-1])

    async def check(at: int, cancelled: bool) -> None:
        job = held[-1]
        # First, as it waits for the server, which may still be at the COMMIT of the one that was cancelled.
        ours = await job.complete() is Verdict.APPLIED
        (stored,) = (
            [*await mail.peek(), *await adb.dead.list(mail.name), *[await adb.get(job.id)]][:1] if await there(job) else [None]
        )
        if ours:
            # Not done, or done and told: it was ours still.
            assert cancelled or verb == "extend"
            assert stored is None
        elif stored is None:
            assert verb == "complete"
        else:
            assert stored.state is done[verb]
        assert await idle(adb)
        await clean()
        await another()

    async def there(job: AsyncLeasedJob) -> bool:
        stats = await mail.stats()
        return bool(stats.running + stats.available + stats.scheduled + stats.dead)

    async def another() -> None:
        await mail.enqueue("k")
        (job,) = await mail.claim()
        held.append(job)

    async def clean() -> None:
        async with mail.transaction() as connection:
            await connection.execute(text("DELETE FROM jobs WHERE queue = :queue"), {"queue": mail.name})
            await connection.execute(text("DELETE FROM jobs_dead WHERE queue = :queue"), {"queue": mail.name})

    await another()
    assert await cancel_everywhere(lambda at: settle(), check) > 1


async def test_a_transaction(adb: AsyncQueueDB, mail: AsyncQueue) -> None:
    """Two queues and one transaction: both have the job or neither."""
    other = adb.queue(f"{mail.name}-2")

    async def both() -> None:
        async with mail.transaction() as connection:
            await mail.enqueue("k", using=connection)
            await connection.execute(text("SELECT 1"))
            await other.enqueue("k", using=connection)

    per_queue = text("SELECT (SELECT count(*) FROM jobs WHERE queue = :one), (SELECT count(*) FROM jobs WHERE queue = :other)")
    before = 0

    async def check(at: int, cancelled: bool) -> None:
        nonlocal before
        # In one statement: the server may still be at the COMMIT of one that was cancelled.
        async with mail.transaction() as connection:
            there = (await connection.execute(per_queue, {"one": mail.name, "other": other.name})).one()
        assert there[0] == there[1]
        assert before + (0 if cancelled else 1) <= there[0] <= at
        before = there[0]
        assert await idle(adb)

    assert await cancel_everywhere(lambda at: both(), check) > 1


async def test_the_opening(async_url: str) -> None:
    opened: list[AsyncQueueDB] = []

    async def make() -> None:
        opened.append(AsyncQueueDB(async_url))
        await opened[-1].open()

    async def check(at: int, cancelled: bool) -> None:
        db = opened[-1]
        await db.open()
        await db.check()
        await db.close()

    assert await cancel_everywhere(lambda at: make(), check) > 1


async def test_a_wait_and_a_timeout(adb: AsyncQueueDB, mail: AsyncQueue) -> None:
    await mail.enqueue("k")
    (job,) = await mail.claim()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await adb.wait(job.id, timeout=600)
    assert await job.complete() is Verdict.APPLIED
    assert await idle(adb)


async def test_a_task_that_waits_for_a_lock(adb: AsyncQueueDB, mail: AsyncQueue, differs: Callable[[str], None]) -> None:
    differs("one writer")
    await mail.enqueue("k")
    (job,) = await mail.claim()
    async with mail.transaction() as connection:
        await job.complete(using=connection)
        waiting = asyncio.create_task(mail.cancel(job.id))
        for _ in range(20):
            await asyncio.sleep(0.001)
        waiting.cancel()
        with pytest.raises((asyncio.CancelledError, TransientStorageError)):
            await waiting
    assert (await mail.stats()).running == 0
    assert await idle(adb)
