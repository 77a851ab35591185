"""Steps of a job that a task has claimed."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession

from queue_db import ArgumentError, JobNotFoundError, LeaseLostError, Suspended, Verdict
from queue_db.aio import AsyncLeasedJob, AsyncQueue
from queue_db.steps.resumption import Loop


async def leased(mail: AsyncQueue) -> AsyncLeasedJob:
    await mail.enqueue("order")
    (job,) = await mail.claim()
    return job


async def pay(amount: int, *, unit: str) -> str:
    return f"{amount} {unit}"


async def test_each_verb_is_awaited(mail: AsyncQueue) -> None:
    job = await leased(mail)
    steps = mail.db.steps
    assert await job.step("charge", pay, 3, unit="EUR") == "3 EUR"

    async def book(connection: AsyncConnection) -> Any:
        return (await connection.execute(text("SELECT 7"))).scalar_one()

    assert await job.step_transaction("book", book) == 7

    async def count(loop: Loop) -> str:
        for number in range(3):
            async with mail.transaction() as connection:
                await loop.advance(number, using=connection)
        await loop.check()
        return str(loop.cursor)

    assert await job.loop("count", count) == "2"
    assert await job.state.load() is None
    assert await job.state.save({"a": 1}) is Verdict.APPLIED
    assert await job.state.load() == {"a": 1}
    token = await job.callback("approved")
    with pytest.raises(Suspended):
        await job.sleep(0)
    (again,) = await mail.claim()
    await again.sleep(0)
    with pytest.raises(Suspended):
        await again.wait_for("approved", timeout=3600)
    assert await mail.claim() == []
    assert await steps.call_back(token, "yes") == job.id
    assert await steps.send(job.id, "approved", "no") is False
    (last,) = await mail.claim()
    assert await last.wait_for("approved") == "yes"
    assert await last.step("charge", pay, 4, unit="EUR") == "3 EUR"
    assert {one.name for one in await steps.list(job.id)} == {"charge", "book", "count", "", "approved"}
    assert await last.complete() is Verdict.APPLIED
    with pytest.raises(JobNotFoundError):
        await steps.send(job.id, "approved")


async def test_a_step_is_stored_with_the_transaction_of_its_caller(mail: AsyncQueue) -> None:
    job = await leased(mail)
    other = await mail.enqueue("other")

    async def put_off(using: AsyncConnection | AsyncSession) -> int:
        return await mail.enqueue("follow up", using=using)

    with suppress(RuntimeError):
        async with mail.transaction() as connection:
            await job.step("book", put_off, connection, using=connection)
            raise RuntimeError
    assert await mail.db.steps.list(job.id) == []
    async with mail.transaction() as connection, AsyncSession(connection) as session:
        made = await job.step("book", put_off, session, using=session)
        with pytest.raises(ArgumentError, match="has had the step 'book'"):
            await job.step("book", put_off, session, using=session)
    (step,) = await mail.db.steps.list(job.id)
    assert (step.name, step.value, (await mail.get(made)).kind) == ("book", made, "follow up")
    await mail.cancel(job.id)
    with pytest.raises(LeaseLostError):
        async with mail.transaction() as connection:
            await job.step("late", put_off, connection, using=connection)
    assert {one.id for one in await mail.claim(9)} == {other, made}


async def test_a_job_does_not_sleep_beside_a_step(mail: AsyncQueue) -> None:
    job = await leased(mail)
    begun = asyncio.Event()

    async def charge() -> str:
        begun.set()
        await asyncio.sleep(0)
        return "paid"

    async def sleep() -> None:
        await begun.wait()
        await job.sleep(60)

    charged, slept = await asyncio.gather(job.step("charge", charge), sleep(), return_exceptions=True)
    assert charged == "paid"
    assert isinstance(slept, ArgumentError)
    assert "while its step 'charge' runs: wait for it first" in str(slept)
    assert await job.complete()


async def test_a_lost_lease_stores_nothing(mail: AsyncQueue) -> None:
    job = await leased(mail)
    await mail.cancel(job.id)
    with pytest.raises(LeaseLostError):
        await job.step("charge", pay, 3, unit="EUR")
    assert await job.state.save(1) is Verdict.LOST
    with pytest.raises(ArgumentError, match="make it an async def"):
        await job.step("plain", lambda: 1)  # type: ignore[arg-type, return-value]
