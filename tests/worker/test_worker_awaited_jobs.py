"""Handlers that ask for an AsyncLeasedJob, and workers that get an AsyncQueueDB."""

from __future__ import annotations

import asyncio
import dataclasses
import signal
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import Column, MetaData, String, Table, create_engine, delete, insert, make_url, select, text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine

from queue_db import (
    ArgumentError,
    ConfigurationError,
    LeasedJob,
    LeaseLostError,
    PayloadError,
    Queue,
    QueueDB,
    Snooze,
    State,
    Verdict,
    aio,
)
from queue_db.aio import AsyncLeasedJob, AsyncQueueDB
from queue_db.database.urls import url_for_threads
from queue_db.testing import drain
from queue_db.worker import Worker
from queue_db.worker.handlers import takes_awaited_job
from tests.aio.harness import OpenAsync
from tests.aio.loop import for_asyncio, on_the_loop
from tests.patience import HOURS, PATIENCE, wait_for

if TYPE_CHECKING:
    from queue_db.aio import AsyncLeasedJob as OnlyForTypeCheckers

on_sqlite = pytest.mark.parametrize("kind", ["sqlite"])

NOTES = Table("awaited_notes", MetaData(), Column("owner", String(100)), Column("text", String(100)))


class Notes:
    """A table of the application's own, and its pool of connections on the event loop of the tests."""

    def __init__(self, kind: str, url: str, owner: str) -> None:
        self.engine: AsyncEngine = create_async_engine(
            for_asyncio(url), connect_args={"timeout": PATIENCE} if kind == "sqlite" else {}
        )
        self._threads = create_engine(url)
        self._owner = owner
        NOTES.create(self._threads, checkfirst=True)

    async def write(self, using: Any, text: str) -> None:
        await using.execute(insert(NOTES).values(owner=self._owner, text=text))

    def read(self) -> list[str]:
        with self._threads.connect() as connection:
            return sorted(connection.execute(select(NOTES.c.text).where(NOTES.c.owner == self._owner)).scalars())

    def close(self) -> None:
        on_the_loop(self.engine.dispose())
        with self._threads.begin() as connection:
            connection.execute(delete(NOTES).where(NOTES.c.owner == self._owner))
        self._threads.dispose()


@pytest.fixture
def notes(kind: str, url: str, name: str, db: QueueDB) -> Iterator[Notes]:
    made = Notes(kind, url, name)
    yield made
    made.close()


@dataclasses.dataclass
class Payment:
    order: int


async def test_the_verbs_of_a_job_are_awaited_on_the_loop_of_the_application(queue: Queue, notes: Notes) -> None:
    """Its pool belongs to this loop: on another one the drivers of servers would refuse it."""
    worker = Worker(queue.db, queue.name, schedules=False)
    async with notes.engine.connect() as connection:  # the pool has a connection of this loop
        await connection.execute(select(1))

    @worker.handles("session", schema=Payment)
    async def in_session(job: AsyncLeasedJob[Payment]) -> None:
        async with AsyncSession(notes.engine) as session, session.begin():
            await notes.write(session, f"session {job.payload.order}")
            (await job.complete(using=session)).require(job)

    @worker.handles("undone", max_attempts=1)
    async def undone(job: AsyncLeasedJob) -> None:
        async with AsyncSession(notes.engine) as session, session.begin():
            await notes.write(session, "never")
            (await job.complete(using=session)).require(job)
            raise ZeroDivisionError

    @worker.handles("transaction")
    async def in_transaction(job: AsyncLeasedJob) -> None:
        async with job.transaction() as connection:
            await notes.write(connection, "transaction")

    @worker.handles("verbs")
    async def verbs(job: AsyncLeasedJob) -> object:
        if job.payload == "outcome":
            return Snooze(HOURS)
        assert await job.extend(HOURS)
        assert await job.progress(0.5, "half")
        calls = {
            "complete": job.complete,
            "fail": partial(job.fail, "not yet", HOURS),
            "snooze": partial(job.snooze, HOURS),
            "cancel": job.cancel,
            "bury": partial(job.bury, "no way"),
            "settle": partial(job.settle, Snooze(HOURS)),
        }
        assert await calls[job.payload]()
        assert not await job.complete()  # it is settled
        return None

    queue.enqueue("session", {"order": 7})
    queue.enqueue_many([("undone", None), ("transaction", None)])
    queue.enqueue_many([("verbs", verb) for verb in ("complete", "fail", "snooze", "cancel", "bury", "settle", "outcome")])
    async with worker:
        await asyncio.to_thread(wait_for, lambda: not (queue.stats().running + queue.stats().available))
    assert notes.read() == ["session 7", "transaction"]
    assert asyncio.get_running_loop() not in queue.db.core.on_loops._loops  # its connections are closed
    summary = worker.summary
    assert (summary.completed, summary.failed, summary.snoozed, summary.cancelled, summary.dead) == (3, 1, 3, 1, 2)


async def test_the_loop_goes_on_while_a_verb_waits_for_the_database(queue: Queue) -> None:
    """The handler holds the lock for which the verb waits: a verb that blocks the loop would wait for itself."""
    worker = Worker(queue.db, queue.name, schedules=False)
    verdicts = []

    @worker.handles("n")
    async def handler(job: AsyncLeasedJob) -> None:
        with queue.transaction() as connection:
            connection.execute(text("UPDATE jobs SET priority = priority WHERE id = :id"), {"id": job.id})
            completing = asyncio.create_task(job.complete())
            await asyncio.sleep(0)
        verdicts.append(await completing)

    queue.enqueue("n")
    async with worker:
        await asyncio.to_thread(wait_for, lambda: worker.summary.completed or worker.summary.failed)
    assert verdicts == [Verdict.APPLIED]


async def test_a_lost_lease_undoes_the_writes_of_a_session(queue: Queue, notes: Notes) -> None:
    raised: list[BaseException] = []
    worker = Worker(queue.db, queue.name, schedules=False)

    @worker.handles("n")
    async def handler(job: AsyncLeasedJob) -> None:
        await asyncio.to_thread(queue.cancel, job.id)
        try:
            async with AsyncSession(notes.engine) as session, session.begin():
                await notes.write(session, "never")
                (await job.complete(using=session)).require(job)
        except LeaseLostError as error:
            raised.append(error)
            raise

    queue.enqueue("n")
    async with worker:
        await asyncio.to_thread(wait_for, lambda: worker.summary.lost)
    assert notes.read() == []
    assert raised or worker.summary.lost  # or the coroutine was cancelled first


async def test_a_worker_of_an_async_queue_db(async_url: str, open_async: OpenAsync, notes: Notes, name: str) -> None:
    """Its transactions use the pool of the AsyncQueueDB, and a job that is enqueued there wakes the worker."""
    db = await open_async()
    worker = Worker(db, name, schedules=False)
    pools, woken, done = [], [], asyncio.Event()

    @worker.handles("n", schema=Payment)
    async def handler(job: AsyncLeasedJob[Payment]) -> None:
        async with job.transaction() as connection:
            pools.append(connection.sync_connection.engine.pool)
            await notes.write(connection, f"order {job.payload.order}")
            if job.payload.order:
                await job.source.enqueue("n", {"order": 0}, using=connection)
        if not job.payload.order:
            done.set()

    with pytest.raises(PayloadError):
        await db.queue(name).enqueue("n", {"ordr": 7})
    async with worker:
        worker.db.notifications.add(woken.append)  # as its fetcher does
        await db.queue(name).enqueue("n", {"order": 7})
        assert woken == [name]
        await done.wait()
    assert set(pools) == {db._db.database.engine.pool}
    assert notes.read() == ["order 0", "order 7"]
    assert worker._db is None  # closed
    assert not db.notifications._listeners


@on_sqlite
async def test_an_async_queue_db_may_be_opened_after_the_worker_was_made(async_url: str, db: QueueDB, name: str) -> None:
    later = AsyncQueueDB(async_url, max_payload=1000)
    worker = Worker(later, name, schedules=False)
    worker.handles("n", schema=Payment)(lambda job: None)
    async with later, worker.changed(grace=0) as running:
        assert worker.db.core.max_payload == 1000  # the settings are the same
        with pytest.raises(PayloadError):
            await later.queue(name).enqueue("n", {"ordr": 7})
        job_id = await later.queue(name).enqueue("n", {"order": 7})
        await asyncio.to_thread(wait_for, lambda: running.summary.completed)
        assert await later.state(job_id) in {State.COMPLETED, State.UNKNOWN}
    worker._close_own()


@on_sqlite
def test_run_opens_the_async_queue_db_for_its_coroutines(async_url: str, queue: Queue) -> None:
    """As in `queue-db work`, where no application runs a loop."""
    db = AsyncQueueDB(async_url)
    worker = Worker(db, queue.name, schedules=False)
    seen: list[object] = []

    @worker.handles("n")
    async def handler(job: AsyncLeasedJob) -> None:
        async with job.transaction() as connection:
            if job.payload:
                await db.queue(queue.name).enqueue("n", job.payload - 1, using=connection)
        seen.append(threading.current_thread())

    for _ in range(2):
        seen.clear()
        queue.enqueue("n", 2)
        assert worker.run(until_empty=True, started=lambda: seen.append("started")).completed == 3
        assert seen == ["started", *[threading.main_thread()] * 3]
    queue.enqueue("n", 0)
    drain(worker)
    with pytest.raises(ZeroDivisionError):
        worker.run(started=lambda: 1 // 0)
    assert db.opened_on == (None, None)


@on_sqlite
def test_a_signal_stops_it(async_url: str, queue: Queue) -> None:
    worker = Worker(AsyncQueueDB(async_url), queue.name, schedules=False)

    @worker.handles("n")
    async def handler(job: AsyncLeasedJob) -> None:
        signal.raise_signal(signal.SIGTERM)

    queue.enqueue("n")
    assert worker.run().signal == signal.SIGTERM
    assert worker.summary.completed == 1


@on_sqlite
async def test_a_database_that_threads_cannot_open_is_refused_with_the_way_out(
    async_url: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = create_async_engine(async_url)
    for db, reason in (
        (AsyncQueueDB(engine), r"engine of yours.*Worker\(QueueDB\(url\)"),
        (AsyncQueueDB("sqlite://"), "in memory"),
    ):
        worker = Worker(db, name)
        worker.handles("n")(print)
        with pytest.raises(ConfigurationError, match=reason):
            await worker.__aenter__()
    monkeypatch.setitem(__import__("sys").modules, "psycopg2", None)
    worker = Worker(AsyncQueueDB("postgresql+asyncpg://u@h/d"), name)
    worker.handles("n")(print)
    with pytest.raises(ConfigurationError, match=r'driver that is not for asyncio.*pip install "queue-db\[postgresql\]"'):
        await worker.__aenter__()
    with pytest.raises(ArgumentError, match="must be a QueueDB or an AsyncQueueDB"):
        Worker(engine, name)
    await engine.dispose()


def test_the_url_for_threads_has_the_options_of_the_other_driver() -> None:
    for given, made in (
        ("postgresql+asyncpg://u:p@h/d?ssl=require", "postgresql+psycopg2://u:p@h/d?sslmode=require"),
        ("postgresql://u:p@h/d", "postgresql+psycopg2://u:p@h/d"),
        ("mysql+aiomysql://u:p@h:7/d?charset=utf8mb4", "mysql+pymysql://u:p@h:7/d?charset=utf8mb4"),
        ("sqlite+aiosqlite:///a.db", "sqlite:///a.db"),
    ):
        assert url_for_threads(given) == make_url(made)


async def plain(job):
    pass


async def leased(job: LeasedJob) -> None:
    pass


async def awaited(job: AsyncLeasedJob) -> None:
    pass


async def with_payload(job: AsyncLeasedJob[Payment]) -> None:
    pass


async def dotted(job: aio.AsyncLeasedJob[Payment]) -> None:
    pass


async def unresolved(job: OnlyForTypeCheckers) -> None:
    pass


async def text_of_another_module(job: not_here.AsyncLeasedJob[Payment]) -> None:  # type: ignore[name-defined]  # noqa: F821
    pass


async def with_more(other: int, job: AsyncLeasedJob) -> None:
    pass


class Called:
    async def __call__(self, job: AsyncLeasedJob) -> None:
        pass


CASES: list[tuple[Callable[..., Any], bool]] = [
    (plain, False),
    (leased, False),
    (print, False),
    (awaited, True),
    (with_payload, True),
    (dotted, True),
    (unresolved, False),  # neither its name nor its value says what it is
    (text_of_another_module, True),
    (with_more, False),
    (partial(with_more, 7), True),
    (Called(), True),
]


@pytest.mark.parametrize(
    ("function", "asks"),
    CASES,
    ids=lambda case: str(case) if isinstance(case, bool) else getattr(case, "__name__", type(case).__name__),
)
def test_the_annotation_of_the_first_parameter_asks_for_it(function: Callable[..., Any], asks: bool) -> None:
    assert takes_awaited_job(function) is asks


@on_sqlite
def test_a_plain_function_cannot_ask_for_it(queue: Queue) -> None:
    def handler(job: AsyncLeasedJob) -> None:
        pass

    with pytest.raises(ArgumentError, match="takes an AsyncLeasedJob, whose methods are awaited: make it async def"):
        Worker(queue.db, queue.name).handles("n")(handler)


@on_sqlite
async def test_wrappers_get_the_job_of_the_worker(queue: Queue) -> None:
    seen: list[object] = []
    worker = Worker(queue.db, queue.name, schedules=False)

    @worker.around
    async def wrapper(job: LeasedJob, call: Callable[[LeasedJob], Any]) -> object:
        seen.append(type(job))
        return await call(job)

    @worker.handles("n")
    async def handler(job: AsyncLeasedJob) -> None:
        seen.append(isinstance(job, AsyncLeasedJob))

    queue.enqueue("n")
    async with worker:
        await asyncio.to_thread(wait_for, lambda: worker.summary.completed)
    assert seen == [LeasedJob, True]
