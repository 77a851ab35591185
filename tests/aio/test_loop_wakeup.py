"""A task that waits is woken by a publisher or an enqueuer: through PostgreSQL with asyncpg, within a process everywhere."""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import traceback
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.util import greenlet_spawn

from queue_db import QueueDB
from queue_db.aio import AsyncQueueDB
from queue_db.dialects import dialect_for, listening
from queue_db.dialects.listening import AsyncpgListener
from queue_db.errors import ConfigurationError, TransientStorageError
from queue_db.feeds import waiting
from queue_db.feeds.notifications import notifications_of
from queue_db.notifications.loop import LoopWakeup
from tests.patience import HOURS, PATIENCE, UntilWoken

POSTGRESQL = pytest.mark.parametrize("kind", ["postgresql"], scope="session")


class Waits:
    """Counts the waits of tasks, without those that only begin to listen."""

    def __init__(self) -> None:
        self.count = 0
        self._changed = asyncio.Condition()

    async def begun(self) -> None:
        async with self._changed:
            self.count += 1
            self._changed.notify_all()

    async def until(self, count: int) -> None:
        async with asyncio.timeout(PATIENCE), self._changed:
            await self._changed.wait_for(lambda: self.count >= count)


@pytest.fixture
def waits(kind: str, monkeypatch: pytest.MonkeyPatch) -> Waits:
    """Readers look at a feed again in a few hours, unless they are woken before."""
    monkeypatch.setattr(waiting, "Pause", UntilWoken)
    seen, arrived = Waits(), LoopWakeup.arrived

    async def watched(self: LoopWakeup, seconds: float) -> Any:
        if self.listens or not dialect_for(kind).notifies:
            await seen.begun()
        return await arrived(self, seconds)

    monkeypatch.setattr(LoopWakeup, "arrived", watched)
    return seen


async def follow(db: AsyncQueueDB, name: str, reader: str) -> Any:
    """The payload of the next message."""
    async with await db.feed(name).cursor(reader, lease=3 * HOURS) as cursor:
        messages: AsyncIterator[Any] = cursor.follow(poll=HOURS)
        try:
            return (await anext(messages)).payload
        finally:
            await messages.aclose()  # type: ignore[attr-defined]


async def listeners(db: QueueDB) -> int:
    """How many connections wait for notifications."""
    query = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query ILIKE '%LISTEN%queue_db%'"
    with db.database.begin() as connection:
        return int(connection.execute(text(f"{query} AND pid <> pg_backend_pid()")).scalar_one())


async def ended(adb: AsyncQueueDB) -> None:
    """No task waits any more, so the connection is closed."""
    keeper = adb._db.core.loop_listening._keeper
    assert keeper is not None
    async with asyncio.timeout(PATIENCE):
        await keeper


class Hold:
    """Holds a method of the listening connection until it is released; it begins and ends as ever."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, method: str) -> None:
        self.begun, self.released = asyncio.Event(), asyncio.Event()
        original = getattr(AsyncpgListener, method)

        async def held(*arguments: Any) -> None:
            self.begun.set()
            await self.released.wait()
            await original(*arguments)

        monkeypatch.setattr(AsyncpgListener, method, held)


@contextmanager
def astray(adb: AsyncQueueDB, monkeypatch: pytest.MonkeyPatch, **parameters: Any) -> Iterator[asyncio.Queue[None]]:
    """New connections are opened with these parameters. Yields the tries."""
    driver: Any = adb._db.database.engine.dialect.loaded_dbapi
    connect, tries = driver.connect, asyncio.Queue[None]()

    def lead(*arguments: Any, **named: Any) -> Any:
        tries.put_nowait(None)
        return connect(*arguments, **named | parameters)

    with monkeypatch.context() as patch:
        patch.setattr(driver, "connect", lead)
        yield tries


async def session(adb: AsyncQueueDB) -> int:
    """The server's process for a connection of the pool."""

    def read() -> int:
        with adb._db.database.begin() as connection:
            return int(connection.execute(text("SELECT pg_backend_pid()")).scalar_one())

    return await greenlet_spawn(read)


async def emptied(adb: AsyncQueueDB) -> None:
    """The pool has no connection left."""
    await greenlet_spawn(adb._db.database.engine.dispose)


@POSTGRESQL
@pytest.mark.parametrize("ordering", ["counter", "ranked"])
async def test_tasks_are_woken_by_another_process(adb: AsyncQueueDB, db: QueueDB, name: str, waits: Waits, ordering: str) -> None:
    """All tasks of a loop share one connection, which is closed when none waits any more."""
    names = [f"{name}-a", f"{name}-a", f"{name}-b"]
    for one in names:
        db.feeds.set(one, ordering=ordering)
    async with asyncio.TaskGroup() as tasks:
        found = [tasks.create_task(follow(adb, one, f"reader-{at}")) for at, one in enumerate(names)]
        await waits.until(3)
        assert await listeners(db) == 1
        db.feed(names[2]).publish("n", "for b")
        assert await found[2] == "for b"
        assert not found[0].done()
        assert await listeners(db) == 1
        with db.database.begin() as connection:
            db.feed(names[0]).publish("n", "for a", using=connection)
    assert [one.result() for one in found] == ["for a", "for a", "for b"]
    await ended(adb)
    assert await listeners(db) == 0


async def test_tasks_are_woken_within_their_process(
    adb: AsyncQueueDB, name: str, waits: Waits, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(adb._db.store.dialect), "notifies", False)
    reader = asyncio.create_task(follow(adb, name, "reader"))
    await waits.until(1)
    await adb.feed(name).publish("n", "here")
    async with asyncio.timeout(PATIENCE):
        assert await reader == "here"


@POSTGRESQL
async def test_without_the_notification_a_task_waits(
    adb: AsyncQueueDB, db: QueueDB, name: str, waits: Waits, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The negative control: a publisher that does not notify, and then the notification alone."""
    reader = asyncio.create_task(follow(adb, name, "reader"))
    await waits.until(1)
    with monkeypatch.context() as patch:
        patch.setattr(type(db.store.dialect), "notifies", False)
        db.feed(name).publish("n", "unheard")
    channel = notifications_of(db.store).channel_of(name)
    with db.database.begin() as connection:
        connection.execute(text("SELECT pg_notify(:channel, 'another feed')"), {"channel": channel})
    await waits.until(2)
    assert not reader.done()
    with db.database.begin() as connection:
        connection.execute(text("SELECT pg_notify(:channel, :name)"), {"channel": channel, "name": name})
    async with asyncio.timeout(PATIENCE):
        assert await reader == "unheard"


@POSTGRESQL
async def test_a_task_looks_and_listens_again_when_the_connection_breaks(
    adb: AsyncQueueDB, db: QueueDB, name: str, waits: Waits
) -> None:
    reader = asyncio.create_task(follow(adb, name, "reader"))
    await waits.until(1)
    kill = (
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE datname = current_database() AND query ILIKE '%LISTEN%queue_db%' AND pid <> pg_backend_pid()"
    )
    with db.database.begin() as connection:
        assert connection.execute(text(kill)).all() == [(True,)]
    await waits.until(2)
    db.feed(name).publish("n", "here")
    async with asyncio.timeout(PATIENCE):
        assert await reader == "here"
    await ended(adb)
    assert await listeners(db) == 0


@POSTGRESQL
async def test_a_cancelled_task_leaves_no_connection(adb: AsyncQueueDB, db: QueueDB, name: str, waits: Waits) -> None:
    readers = [asyncio.create_task(follow(adb, name, f"reader-{at}")) for at in range(2)]
    await waits.until(2)
    readers[0].cancel()
    await asyncio.wait([readers[0]])
    assert readers[0].cancelled()
    assert await listeners(db) == 1
    db.feed(name).publish("n", "here")
    async with asyncio.timeout(PATIENCE):
        assert await readers[1] == "here"
    await ended(adb)
    assert await listeners(db) == 0
    assert notifications_of(adb._db.store)._listeners == ()


@POSTGRESQL
@pytest.mark.parametrize("within", [False, True])
async def test_a_task_waits_for_jobs(adb: AsyncQueueDB, db: QueueDB, name: str, within: bool) -> None:
    """The parts of which a service makes a claim that waits."""
    notifications = adb._db.core.notifications
    wakeup = LoopWakeup(adb._db.core.loop_listening, notifications.channel)
    if within:
        notifications.add(wakeup.set)
    try:
        assert await wakeup.arrived(HOURS) == set(), "it has begun to listen"
        waiter = asyncio.create_task(wakeup.arrived(HOURS))
        if within:
            await adb.queue(name).enqueue("k")
        else:
            db.queue(name).enqueue("k")
        async with asyncio.timeout(PATIENCE):
            assert name in await waiter
    finally:
        notifications.remove(wakeup.set)
        wakeup.close()
    (job,) = await adb.queue(name).claim()
    await job.complete()


async def test_a_thread_wakes_a_task(adb: AsyncQueueDB) -> None:
    wakeup = LoopWakeup(adb._db.core.loop_listening, "channel")
    wakeup._listening._off = True
    waiter = asyncio.create_task(wakeup.arrived(HOURS))
    await asyncio.to_thread(wakeup.set, "name")
    async with asyncio.timeout(PATIENCE):
        assert await waiter == {"name"}
    assert await wakeup.arrived(0) == set()
    wakeup.close()
    assert wakeup._listening._waiting == {}


@POSTGRESQL
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
async def test_a_fork_leaves_the_connections_to_its_parent(adb: AsyncQueueDB, db: QueueDB, name: str) -> None:
    shared, channels = adb._db.core.loop_listening, [notifications_of(adb._db.store).channel_of(f"{name}-{at}") for at in range(3)]
    wakeup = LoopWakeup(shared, channels[0])
    await wakeup.arrived(HOURS)
    pooled = await session(adb)

    async def in_the_child() -> None:
        async with asyncio.timeout(PATIENCE):
            own = LoopWakeup(shared, channels[1])
            await own.arrived(HOURS)
            assert own.listens
            assert await session(adb) != pooled
            await adb.close()
        gc.collect()

    child = os.fork()
    if not child:
        status = 1
        try:
            asyncio.run(in_the_child())
            status = 0
        finally:
            if status:
                traceback.print_exc()
            os._exit(status)
    assert await asyncio.to_thread(os.waitpid, child, 0) == (child, 0)
    async with asyncio.timeout(PATIENCE):
        other = LoopWakeup(shared, channels[2])
        await other.arrived(HOURS)
        assert (wakeup.listens, other.listens) == (True, True)
        with db.database.begin() as connection:
            connection.execute(text("SELECT pg_notify(:channel, 'here')"), {"channel": channels[0]})
        assert await wakeup.arrived(HOURS) == {"here"}
        assert await session(adb) == pooled
    assert await listeners(db) == 1
    wakeup.close()
    other.close()


@POSTGRESQL
async def test_tasks_that_are_cancelled_during_a_statement_leave_no_connection(
    adb: AsyncQueueDB, db: QueueDB, name: str, waits: Waits, monkeypatch: pytest.MonkeyPatch
) -> None:
    readers = [asyncio.create_task(follow(adb, f"{name}-{at}", "reader")) for at in range(2)]
    await waits.until(2)
    unlisten = Hold(monkeypatch, "remove")
    readers[0].cancel()
    await unlisten.begun.wait()
    readers[1].cancel()
    async with asyncio.timeout(PATIENCE):
        await asyncio.wait(readers)
    unlisten.released.set()
    await ended(adb)
    assert await listeners(db) == 0


@POSTGRESQL
async def test_a_task_that_is_cancelled_during_a_statement_breaks_no_connection(
    adb: AsyncQueueDB, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, third = (LoopWakeup(adb._db.core.loop_listening, f"queue_db.{at}") for at in range(3))
    await first.arrived(HOURS)
    listen = Hold(monkeypatch, "add")
    waiter = asyncio.create_task(second.arrived(HOURS))
    await listen.begun.wait()
    waiter.cancel()
    await asyncio.wait([waiter])
    listen.released.set()
    await third.arrived(HOURS)
    assert (first.listens, third.listens) == (True, True)
    assert not first._woken.is_set(), "the connection did not break"
    for wakeup in (first, second, third):
        wakeup.close()


@POSTGRESQL
@pytest.mark.parametrize("during", ["a wait", "a statement"])
async def test_the_database_closes_the_connection(
    adb: AsyncQueueDB, db: QueueDB, name: str, waits: Waits, monkeypatch: pytest.MonkeyPatch, during: str
) -> None:
    readers = [asyncio.create_task(follow(adb, f"{name}-0", "reader"))]
    await waits.until(1)
    if during == "a statement":
        listen = Hold(monkeypatch, "add")
        readers.append(asyncio.create_task(follow(adb, f"{name}-1", "reader")))
        await listen.begun.wait()
    assert await listeners(db) == 1
    async with asyncio.timeout(PATIENCE):
        await adb.close()
        assert await listeners(db) == 0
        with pytest.raises(ConfigurationError, match="closed"):
            await readers[0]
    for reader in readers:
        reader.cancel()
    await asyncio.wait(readers)


@POSTGRESQL
@pytest.mark.parametrize("refused", ["no server", "no database"])
async def test_a_task_polls_until_the_server_accepts_connections(
    adb: AsyncQueueDB, monkeypatch: pytest.MonkeyPatch, refused: str
) -> None:
    wakeup = LoopWakeup(adb._db.core.loop_listening, "queue_db.channel")
    await emptied(adb)
    with socket.socket() as taken:  # nobody listens there
        taken.bind(("127.0.0.1", 0))
        there = {"host": "127.0.0.1", "port": taken.getsockname()[1]} if refused == "no server" else {"database": "not there"}
        with astray(adb, monkeypatch, **there) as tries:
            async with asyncio.timeout(PATIENCE):
                for _ in range(2):
                    assert await wakeup.arrived(0.0) == set()
                    await tries.get()
    assert not wakeup.listens
    async with asyncio.timeout(PATIENCE):
        await wakeup.arrived(HOURS)
    assert wakeup.listens
    wakeup.close()


@POSTGRESQL
async def test_a_task_polls_while_the_connection_is_opened(adb: AsyncQueueDB, monkeypatch: pytest.MonkeyPatch) -> None:
    wakeups = [LoopWakeup(adb._db.core.loop_listening, "queue_db.channel") for _ in range(2)]
    await emptied(adb)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        there = {"host": "127.0.0.1", "port": silent.getsockname()[1]}
        with astray(adb, monkeypatch, **there) as tries:
            async with asyncio.timeout(PATIENCE):
                for wakeup in wakeups:
                    assert await wakeup.arrived(0.0) == set()
                await tries.get()
                assert await wakeups[0].arrived(0.0) == set()
                await adb.close()


@POSTGRESQL
async def test_a_statement_without_an_answer_ends(adb: AsyncQueueDB, monkeypatch: pytest.MonkeyPatch) -> None:
    database = adb._db.database
    listener = await greenlet_spawn(database.listen_on_loop, lambda: None)
    assert isinstance(listener, AsyncpgListener)
    with monkeypatch.context() as patch:
        patch.setattr(listening, "_ANSWER", 0.0)
        patch.setattr(listener, "_raw", Mute())
        with pytest.raises(TransientStorageError, match="listen"):
            await listener.add("queue_db.channel", lambda _: None)
    await listener.close()
    assert listener.is_broken()


class Mute:
    """A connection whose server does not answer."""

    async def add_listener(self, *_: Any) -> None:
        await asyncio.Event().wait()
