"""``using=`` and the two kinds of transactions: the queue's change and the caller's own, both or neither."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from sqlalchemy import Column, MetaData, String, Table, create_engine, delete, insert, select
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine

from queue_db import ConfigurationError, DuplicateJobError, LeaseLostError, QueueDB, Verdict
from queue_db.aio import AsyncQueue, AsyncQueueDB
from queue_db.testing import SettableClock
from tests.aio.harness import OpenAsync

NOTES = Table("async_notes", MetaData(), Column("owner", String(100)), Column("text", String(100)))


class Notes:
    """A table of the caller's own, on an engine of the caller's own."""

    def __init__(self, url: str, owner: str) -> None:
        self.engine: AsyncEngine = create_async_engine(url)
        self._owner = owner

    async def write(self, using: Any, text: str) -> None:
        await using.execute(insert(NOTES).values(owner=self._owner, text=text))

    async def read(self) -> list[str]:
        async with self.engine.connect() as connection:
            return sorted((await connection.execute(select(NOTES.c.text).where(NOTES.c.owner == self._owner))).scalars())


@pytest.fixture
def ways(url: str, async_url: str, name: str) -> Callable[..., Any]:
    engine = create_engine(url)
    NOTES.create(engine, checkfirst=True)
    engine.dispose()

    @asynccontextmanager
    async def opened() -> AsyncIterator[Notes]:
        notes = Notes(async_url, name)
        yield notes
        async with notes.engine.begin() as connection:
            await connection.execute(delete(NOTES).where(NOTES.c.owner == name))
        await notes.engine.dispose()

    return opened


@pytest.mark.parametrize("session", [False, True], ids=["connection", "session"])
@pytest.mark.parametrize("commit", [True, False], ids=["commit", "rollback"])
async def test_the_callers_transaction_has_both_or_neither(
    mail: AsyncQueue, ways: Callable[..., Any], session: bool, commit: bool
) -> None:
    await mail.enqueue("first")
    (job,) = await mail.claim()
    async with ways() as notes:
        async with AsyncSession(notes.engine) if session else notes.engine.connect() as using:
            await notes.write(using, "sent")
            (await job.complete(using=using)).require(job)
            await mail.enqueue("next", using=using)
            await mail.enqueue_many([("next", number) for number in range(1100)], using=using)
            await (using.commit() if commit else using.rollback())
        assert await notes.read() == (["sent"] if commit else [])
        stats = await mail.stats()
        assert (stats.running, stats.available) == ((0, 1101) if commit else (1, 0))
        assert await job.complete() is (Verdict.LOST if commit else Verdict.APPLIED)


async def test_a_handlers_writes_and_its_completion_are_one(mail: AsyncQueue, ways: Callable[..., Any]) -> None:
    async with ways() as notes:
        await mail.enqueue("k")
        (job,) = await mail.claim()

        async def fail() -> None:
            async with job.transaction() as connection:
                await notes.write(connection, "undone")
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await fail()
        assert await notes.read() == []
        async with job.transaction() as connection:
            await notes.write(connection, "done")
        assert await notes.read() == ["done"]
        assert await job.complete() is Verdict.LOST


@pytest.mark.parametrize("commit", [True, False], ids=["commit", "rollback"])
async def test_after_a_rollback_that_is_told_the_job_is_leased_as_before(
    mail: AsyncQueue, ways: Callable[..., Any], commit: bool
) -> None:
    await mail.enqueue("k")
    (job,) = await mail.claim()
    async with ways() as notes, notes.engine.connect() as using:
        (await job.complete(using=using)).require(job)
        assert await job.state.save({"page": 1}) is Verdict.LOST
        await (using.commit() if commit else using.rollback())
    job.rolled_back()
    told = Verdict.LOST if commit else Verdict.APPLIED  # a rollback that was a commit is found out
    assert await job.state.save({"page": 1}) is told
    assert await job.complete() is told


async def test_a_lost_lease_takes_the_handlers_writes_back(open_async: OpenAsync, name: str, ways: Callable[..., Any]) -> None:
    clock = SettableClock()
    mine, theirs = [(await open_async(clock=clock)).queue(name) for _ in range(2)]
    await mine.enqueue("k")
    (late,) = await mine.claim(lease=1)
    clock.advance(2)
    (job,) = await theirs.claim()
    async with ways() as notes:
        with pytest.raises(LeaseLostError):
            async with late.transaction() as connection:
                await notes.write(connection, "too late")
        assert await notes.read() == []
    assert await job.complete() is Verdict.APPLIED


async def test_a_transaction_of_the_queues_own_connections(mail: AsyncQueue, ways: Callable[..., Any]) -> None:
    async with ways() as notes:

        async def fail() -> None:
            async with mail.transaction() as connection:
                await notes.write(connection, "undone")
                await mail.enqueue("k", unique_key="one", using=connection)
                await mail.enqueue("k", unique_key="one", using=connection)

        with pytest.raises(DuplicateJobError):
            await fail()
        assert await notes.read() == []
        assert (await mail.stats()).by_kind == {}
        async with mail.transaction() as connection:
            await notes.write(connection, "done")
            await mail.enqueue("k", unique_key="one", using=connection)
            assert await notes.read() == []
        assert await notes.read() == ["done"]
        assert [job.unique_key for job in await mail.claim()] == ["one"]


async def test_what_is_no_open_connection_is_refused(mail: AsyncQueue, url: str, async_url: str, db: QueueDB) -> None:
    engine = create_async_engine(async_url)
    wrong: list[Any] = [object(), "postgresql://", db, engine, engine.connect()]
    for using in wrong:
        with pytest.raises(ConfigurationError, match="AsyncConnection"):
            await mail.enqueue("k", using=using)
    with db.database.engine.connect() as connection, pytest.raises(ConfigurationError, match="not Connection"):
        await mail.enqueue("k", using=connection)  # type: ignore[arg-type]
    assert (await mail.stats()).by_kind == {}
    await engine.dispose()


async def test_the_engine_of_the_program_serves_the_queue(async_url: str, name: str) -> None:
    engine = create_async_engine(async_url)
    async with AsyncQueueDB(engine, strategy="optimistic", removal="lock_then_delete") as db:
        queue = db.queue(name)
        await queue.enqueue_many([("k", number) for number in range(2500)])
        jobs = await queue.claim(100)
        assert all(await queue.complete_many(jobs))
        async with engine.begin() as connection:
            await queue.enqueue("k", using=connection)
        assert await queue.purge() == 2401
    async with engine.connect() as connection:
        assert (await connection.execute(select(1))).scalar_one() == 1
    await engine.dispose()


@pytest.mark.parametrize("session", [False, True], ids=["connection", "session"])
async def test_a_connection_that_commits_each_statement_is_refused(
    mail: AsyncQueue, ways: Callable[..., Any], session: bool
) -> None:
    await mail.enqueue("leased")
    (job,) = await mail.claim()
    async with ways() as notes:
        engine = notes.engine.execution_options(isolation_level="AUTOCOMMIT")
        async with AsyncSession(engine) if session else engine.connect() as using:
            for verb in (
                lambda: mail.enqueue("a", using=using),
                lambda: mail.enqueue_many([("a", number) for number in range(1100)], using=using),
                lambda: mail.enqueue_batch([("a", 1)], ("then", 2), using=using),
                lambda: job.complete(using=using),
            ):
                with pytest.raises(ConfigurationError, match=r"AUTOCOMMIT.*with engine\.begin\(\) as connection"):
                    await verb()
    assert (await mail.stats()).available == 0
    assert await job.complete() is Verdict.APPLIED
