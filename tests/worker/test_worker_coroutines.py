"""Handlers that are coroutines, with transactions of their own: their writes and the job's completion, both or neither."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import Column, MetaData, String, Table, create_engine, delete, insert, select
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.pool import NullPool

from queue_db import ConfigurationError, LeasedJob, LeaseLostError, QueueDB, State
from queue_db.worker import Worker
from tests.aio.loop import for_asyncio
from tests.patience import PATIENCE

NOTES = Table("coroutine_notes", MetaData(), Column("owner", String(100)), Column("text", String(100)))


class Notes:
    """A table of the application's own."""

    def __init__(self, url: str, owner: str) -> None:
        self._engine = create_engine(url)
        self._owner = owner
        NOTES.create(self._engine, checkfirst=True)

    async def write(self, using: Any, text: str) -> None:
        await using.execute(insert(NOTES).values(owner=self._owner, text=text))

    def read(self) -> list[str]:
        with self._engine.connect() as connection:
            return sorted(connection.execute(select(NOTES.c.text).where(NOTES.c.owner == self._owner)).scalars())

    def close(self) -> None:
        with self._engine.begin() as connection:
            connection.execute(delete(NOTES).where(NOTES.c.owner == self._owner))
        self._engine.dispose()


@pytest.fixture
def notes(url: str, name: str) -> Iterator[Notes]:
    made = Notes(url, name)
    yield made
    made.close()


def test_a_coroutine_commits_its_writes_with_the_completion(kind: str, url: str, db: QueueDB, name: str, notes: Notes) -> None:
    worker = Worker(db, [name], schedules=False)
    # SQLite's driver would wait five seconds for the other writers.
    waits = {"timeout": PATIENCE} if kind == "sqlite" else {}
    engine = create_async_engine(for_asyncio(url), poolclass=NullPool, connect_args=waits)

    @worker.handles("session")
    async def in_session(job):
        async with AsyncSession(engine) as session, session.begin():
            await notes.write(session, "session")
            (await job.complete(using=session)).require(job)

    @worker.handles("connection")
    async def in_connection(job):
        async with engine.begin() as connection:
            await notes.write(connection, "connection")
            (await job.complete(using=connection)).require(job)

    @worker.handles("transaction")
    async def in_transaction(job):
        async with job.transaction() as connection:
            await notes.write(connection, "transaction")

    @worker.handles("raises", max_attempts=1)
    async def raises(job):
        async with job.transaction() as connection:
            await notes.write(connection, "never")
            raise ValueError

    @worker.handles("raises late", max_attempts=1)
    async def raises_late(job):
        async with AsyncSession(engine) as session, session.begin():
            await notes.write(session, "never")
            (await job.complete(using=session)).require(job)
            raise ValueError

    for number, which in enumerate(("session", "connection", "transaction", "raises", "raises late")):
        db.queue(name).enqueue(which, number)
    worker.run(until_empty=True)
    assert notes.read() == ["connection", "session", "transaction"]
    assert (worker.summary.completed, worker.summary.dead) == (3, 2)
    assert db.queue(name).stats().running == 0


def test_a_lost_lease_undoes_what_a_coroutine_wrote(db: QueueDB, name: str, notes: Notes) -> None:
    queue = db.queue(name)
    queue.enqueue("k")
    (job,) = queue.claim()
    queue.cancel(job.id)

    async def handle() -> None:
        async with job.transaction() as connection:
            await notes.write(connection, "never")

    for _ in range(2):  # each on a loop of its own
        with pytest.raises(LeaseLostError):
            asyncio.run(handle())
    assert notes.read() == []


@pytest.mark.parametrize("kind", ["postgresql"])
def test_a_pool_of_another_loop_is_refused_with_the_way_out(url: str, db: QueueDB, name: str) -> None:
    queue = db.queue(name)
    queue.enqueue("k")
    (job,) = queue.claim()
    engine = create_async_engine(for_asyncio(url))

    async def opened() -> None:
        async with engine.connect() as connection:
            await connection.execute(select(1))

    async def handle() -> None:
        async with AsyncSession(engine) as session:
            await job.complete(using=session)

    with asyncio.Runner() as applications, asyncio.Runner() as workers:
        applications.run(opened())
        with pytest.raises(ConfigurationError, match="give them an AsyncEngine that only they use"):
            workers.run(handle())
        applications.run(engine.dispose())
    assert queue.get(job.id).state is State.RUNNING


@pytest.mark.parametrize("kind", ["sqlite"])
def test_a_coroutine_without_a_second_engine_is_told_to_bring_one(url: str, name: str) -> None:
    async def handle(job: LeasedJob) -> None:
        async with job.transaction():
            pass

    engine = create_engine(url)
    for target, reason in ((engine, "engine of yours"), ("sqlite://", "in memory")):
        with QueueDB(target) as db:
            if target == "sqlite://":
                db.migrate()
            db.queue(name).enqueue("k")
            (job,) = db.queue(name).claim()
            with pytest.raises(ConfigurationError, match=f"{reason}.*await job.complete"):
                asyncio.run(handle(job))
    engine.dispose()


@pytest.mark.parametrize("kind", ["sqlite"])
def test_synchronous_code_gets_no_coroutine(url: str, db: QueueDB, name: str) -> None:
    db.queue(name).enqueue("k")
    (job,) = db.queue(name).claim()
    engine = create_async_engine(for_asyncio(url))
    with pytest.raises(ConfigurationError, match="is for asyncio"):
        job.complete(using=AsyncSession(engine))


@pytest.mark.parametrize("kind", ["sqlite"])
def test_a_coroutine_commits_its_writes_with_a_message(db: QueueDB, name: str, notes: Notes) -> None:
    db.feed(name).publish_many([("write", "one"), ("undo", None), ("write", "two")])
    worker = Worker(db, feeds={f"{name}:{name}": 1}, schedules=False)

    @worker.handles("write")
    async def write(job):
        async with job.transaction() as connection:
            await notes.write(connection, job.payload)

    @worker.handles("undo", max_attempts=1)
    async def undo(job):
        async with job.transaction() as connection:
            await notes.write(connection, "never")
            raise ValueError

    worker.run(until_empty=True)
    assert notes.read() == ["one", "two"]
    assert (worker.summary.completed, worker.summary.dead) == (2, 1)


@pytest.mark.parametrize("others", [False, True])
def test_coroutines_keep_to_the_concurrency_with_prefetch(db: QueueDB, name: str, others: bool) -> None:
    """Coroutines of jobs that were claimed together would begin one after the other, while the first one waits for the loop."""
    db.queue(name).enqueue_many([("n", None), ("function", None)] * 6 if others else [("n", None)] * 6)
    worker = Worker(db, name, concurrency=1, prefetch=5)
    now: list[object] = []
    most: list[int] = []

    @worker.handles("n")
    async def handler(job: LeasedJob) -> None:
        now.append(job)
        most.append(len(now))
        await asyncio.sleep(0)
        now.remove(job)

    if others:
        worker.handles("function")(lambda job: most.append(len(now) + 1))
    worker.run(until_empty=True)
    assert most == [1] * (12 if others else 6)
