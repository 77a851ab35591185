"""A task that waits is woken by a publisher or an enqueuer: through PostgreSQL with asyncpg, within a process everywhere."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from sqlalchemy import text

from queue_db import QueueDB
from queue_db.aio import AsyncQueueDB
from queue_db.feeds import waiting
from queue_db.notifications.loop import LoopWakeup
from queue_db.pauses import Pause
from tests.patience import PATIENCE

POSTGRESQL = pytest.mark.parametrize("kind", ["postgresql"], scope="session")

#: Seconds between two looks at a feed: no test waits for one.
HOURS = 10_000.0


class Hours(Pause):
    """Hours, until the reader is woken. From then on short ones: the publisher may be numbering the message."""

    woken = False

    def reset(self) -> None:
        self.woken = True
        super().reset()

    def next(self) -> float:
        return super().next() if self.woken else HOURS


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
    monkeypatch.setattr(waiting, "Pause", Hours)
    seen, arrived, notifies = Waits(), LoopWakeup.arrived, kind == "postgresql"

    async def watched(self: LoopWakeup, seconds: float) -> Any:
        if self.listens or not notifies:
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
    channel = db.core.feed_notifications.channel_of(name)
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
    assert await listeners(db) == 0
    assert adb._db.core.feed_notifications._listeners == ()


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
        await wakeup.leave()
    (job,) = await adb.queue(name).claim()
    await job.complete()


async def test_a_thread_wakes_a_task(adb: AsyncQueueDB) -> None:
    wakeup = LoopWakeup(adb._db.core.loop_listening, "channel")
    wakeup._listening._unsupported = True
    waiter = asyncio.create_task(wakeup.arrived(HOURS))
    await asyncio.to_thread(wakeup.set, "name")
    async with asyncio.timeout(PATIENCE):
        assert await waiter == {"name"}
    assert await wakeup.arrived(0) == set()
    await wakeup.leave()
    assert wakeup._listening._waiting == {}
