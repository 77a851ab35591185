"""While a verb waits the event loop goes on; and tasks that want the same thing take turns, or share it, but never both have it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from sqlalchemy import Connection
from sqlalchemy.exc import OperationalError

from queue_db import JobNotFoundError, State, TransientStorageError, Verdict
from queue_db.aio import AsyncQueue, AsyncQueueDB
from queue_db.concurrency.greenlets import run
from queue_db.model import ClaimResult, StoredResult
from queue_db.store.base import Transaction
from queue_db.strategies import Adaptive
from queue_db.strategies.optimistic import Slots
from tests.aio.harness import OpenAsync

#: Turns of another task in a pause of :func:`ticks_during`.
TURNS = 10


async def ticks_during(verb: Awaitable[Any], monkeypatch: pytest.MonkeyPatch) -> int:
    """How often another task gets its turn while ``verb`` is waited for.

    A pause that lets it work lasts for some of its turns, however long they take; one that blocks the loop lasts as it is.
    """
    ticks, sleep = 0, asyncio.sleep

    async def tick() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await sleep(0.001)

    async def pause(_: float) -> None:
        until = ticks + TURNS
        while ticks < until:
            await sleep(0.001)

    ticking = asyncio.create_task(tick())
    try:
        with monkeypatch.context() as patched:
            patched.setattr(asyncio, "sleep", pause)
            await verb
    finally:
        ticking.cancel()
    return ticks


async def test_a_wait_for_a_result_lets_others_work(adb: AsyncQueueDB, mail: AsyncQueue) -> None:
    """The one that is waited for is completed by another task of the same loop: a wait that blocks would never end."""
    await mail.enqueue("k")
    (job,) = await mail.claim()

    async def work() -> None:
        await asyncio.sleep(0)
        await mail.complete_many([job], results=[StoredResult(result="1", lasts=60_000_000)])

    waiting = asyncio.create_task(adb.wait(job.id, timeout=60))
    await asyncio.gather(waiting, work())
    assert waiting.result().result == 1


async def test_a_wait_for_rest_lets_others_work(mail: AsyncQueue) -> None:
    await mail.enqueue("k")
    (job,) = await mail.claim()
    rested = asyncio.create_task(mail.pause(wait=60))
    while not (await mail.controls()).paused:
        pass
    assert await job.complete() is Verdict.APPLIED
    assert await rested is True
    await mail.resume()


async def test_the_pauses_of_a_retry_let_others_work(adb: AsyncQueueDB, monkeypatch: pytest.MonkeyPatch) -> None:
    """Five pauses: a loop that they block ticks about once between two attempts."""
    attempts = 0

    def refused(_: Connection) -> None:
        nonlocal attempts
        attempts += 1
        raise TransientStorageError("try again")

    async def verb() -> None:
        with pytest.raises(TransientStorageError, match="try again"):
            await run(adb._db.database.run, refused, name="refused", attempts=6)

    assert await ticks_during(verb(), monkeypatch) >= 5 * TURNS
    assert attempts == 6
    assert adb.counters.retried == 5


async def test_a_retry_that_succeeds_ends_the_attempts(adb: AsyncQueueDB) -> None:
    attempts = 0

    def at_last(_: Connection) -> int:
        nonlocal attempts
        attempts += 1
        if attempts < 4:
            raise OperationalError("SELECT 1", None, Exception("no code: the server may be starting"))
        return attempts

    assert await run(adb._db.database.run, at_last, name="at last") == 4


class AlwaysLate(Adaptive):
    """Loses every candidate to others."""

    def claim(self, tx: Transaction, request: Any) -> ClaimResult:
        return ClaimResult(queue=request.queue, rows=(), missed=1, min_due={}, new_priorities=(), limit=request.limit, window=1)


async def test_the_pauses_of_a_claim_that_loses_let_others_work(
    open_async: OpenAsync, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = (await open_async(strategy=AlwaysLate())).queue(name)
    await queue.enqueue("k")
    assert await ticks_during(empty(queue), monkeypatch) >= TURNS


async def empty(queue: AsyncQueue) -> None:
    for _ in range(5):
        assert await queue.claim() == []


async def test_a_statement_that_waits_for_a_lock_lets_others_work(mail: AsyncQueue) -> None:
    """The holder of the lock is a task of the same loop."""
    await mail.enqueue("k")
    (job,) = await mail.claim()
    held, go = asyncio.Event(), asyncio.Event()

    async def hold() -> None:
        async with mail.transaction() as connection:
            await job.complete(using=connection)
            held.set()
            await go.wait()

    holder = asyncio.create_task(hold())
    await held.wait()
    waiting = asyncio.create_task(mail.cancel(job.id))
    for _ in range(50):
        await asyncio.sleep(0.001)
    go.set()
    await holder
    with pytest.raises(JobNotFoundError):
        await waiting


async def test_no_two_tasks_get_the_same_job(adb: AsyncQueueDB, mail: AsyncQueue) -> None:
    ids = await mail.enqueue_many([("k", number) for number in range(300)])
    got: list[int] = []

    async def work() -> None:
        empty_handed = 0
        while empty_handed < 3:
            jobs = await mail.claim(3)
            empty_handed = 0 if jobs else empty_handed + 1
            got.extend(job.id for job in jobs)
            assert all(await mail.complete_many(jobs))

    await asyncio.gather(*[work() for _ in range(12)])
    while rest := await mail.claim(300):
        got.extend(job.id for job in rest)
    assert len(got) == len(set(got))
    assert set(got) == set(ids)
    assert adb.counters.applied >= len(set(got)) - 300


async def test_each_task_keeps_a_place_of_its_own_in_the_window() -> None:
    """Tasks that share a place, as they share a thread, would lose half of what they try."""
    slots = Slots(random.Random(7))

    async def place() -> int:
        found = await run(slots.slot, "q", 1000)
        await asyncio.sleep(0)
        assert await run(slots.slot, "q", 1000) == found
        return found

    places = await asyncio.gather(*[place() for _ in range(20)])
    assert len(set(places)) > 15


async def test_a_task_that_loses_its_place_leaves_those_of_others() -> None:
    slots = Slots(random.Random(7))
    here = await run(slots.slot, "q", 1000)

    async def lose() -> int:
        assert await run(slots.slot, "q", 1000) == here
        slots.observe(ClaimResult(queue="q", limit=1, missed=1))
        return await run(slots.slot, "q", 1000)

    assert await asyncio.create_task(lose()) != here
    assert await run(slots.slot, "q", 1000) == here


async def test_more_tasks_than_connections_are_served(open_async: OpenAsync, name: str) -> None:
    queue = (await open_async(pool_size=2)).queue(name)
    ids = await asyncio.gather(*[queue.enqueue("k", number) for number in range(120)])
    assert len(set(ids)) == 120
    assert await queue.purge() == 120


async def test_a_completion_counts_whatever_extends_its_lease_meanwhile(mail: AsyncQueue) -> None:
    """A heartbeat extends while the handler completes: the completion finds the version that the extension has made."""
    for _ in range(10):
        await mail.enqueue("k")
        (job,) = await mail.claim()
        extended, completed = await asyncio.gather(job.extend(60), job.complete())
        assert completed is Verdict.APPLIED
        assert job.version == (2 if extended else 1)


async def test_a_heartbeat_and_a_transaction_take_turns(mail: AsyncQueue, differs: Callable[[str], None]) -> None:
    differs("one writer")
    await mail.enqueue("k")
    (job,) = await mail.claim()
    async with job.transaction():
        beating = asyncio.create_task(job.extend(60))
        await asyncio.sleep(0)
    assert await beating in (Verdict.APPLIED, Verdict.LOST)
    with pytest.raises(JobNotFoundError):
        await mail.get(job.id)


async def test_two_tasks_that_settle_overlapping_jobs_do_not_wait_in_a_circle(mail: AsyncQueue) -> None:
    await mail.enqueue_many([("k", number) for number in range(20)])
    jobs = await mail.claim(20)
    answers = await asyncio.gather(
        mail.extend_many(jobs, 60), mail.extend_many(jobs[::-1], 90), mail.complete_many(jobs[5:] + jobs[:5] + jobs[:1])
    )
    assert set(answers[2]) == {Verdict.APPLIED}


async def test_a_clash_of_keys_lets_one_in(mail: AsyncQueue) -> None:
    ids = await asyncio.gather(*[mail.enqueue("k", number, unique_key="one", on_duplicate="skip") for number in range(10)])
    (job_id,) = [job_id for job_id in ids if job_id is not None]
    assert (await mail.get(job_id)).state is State.AVAILABLE
    assert (await mail.stats()).available == 1


def test_each_loop_has_an_object_of_its_own(tmp_path: Any) -> None:
    async def work() -> None:
        async with AsyncQueueDB(f"sqlite:///{tmp_path}/queue.db") as db:
            await db.migrate()
            await db.queue("q").enqueue("k")
            (job,) = await db.queue("q").claim()
            assert await job.complete()

    for _ in range(2):
        asyncio.run(work())


async def test_a_database_in_memory_is_shared_by_tasks() -> None:
    async with AsyncQueueDB("sqlite://") as db:
        await db.migrate()
        queue = db.queue("q")
        await asyncio.gather(*[queue.enqueue("k", number) for number in range(20)])
        got = await asyncio.gather(*[queue.claim() for _ in range(20)])
        assert len({job.id for jobs in got for job in jobs}) == 20
