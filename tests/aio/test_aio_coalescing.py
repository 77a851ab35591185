"""Publishes of tasks go together too, and a task that is cancelled takes no other with it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any

from queue_db.aio import AsyncQueueDB
from queue_db.feeds.aio.feeds import AsyncFeed
from tests.aio.gate import Gate
from tests.patience import PATIENCE


async def tasks_of(feed: AsyncFeed, count: int) -> tuple[Gate, list[asyncio.Task[str | None]]]:
    """A task for each message; the first publishes, the others wait in their order."""
    gate = Gate(feed._sync._publisher._batcher)
    return gate, await gate.tasks(partial(feed.publish, "n"), range(count))


async def payloads(feed: AsyncFeed) -> list[Any]:
    return [message.payload for message in (await feed.read()).messages]


async def new_feed(adb: AsyncQueueDB, name: str) -> AsyncFeed:
    await adb.feeds.set(name, ordering="counter")
    return adb.feed(name)


async def test_tasks_publish_together(adb: AsyncQueueDB, name: str) -> None:
    feed = await new_feed(adb, name)
    gate, tasks = await tasks_of(feed, 10)
    gate.open_all()
    positions = await asyncio.gather(*tasks)
    assert gate.batches == [1, 9]
    assert await payloads(feed) == list(range(10))
    assert positions == [message.position for message in (await feed.read()).messages]


async def test_a_task_that_publishes_for_others_is_cancelled(adb: AsyncQueueDB, name: str) -> None:
    feed = await new_feed(adb, name)
    gate, tasks = await tasks_of(feed, 5)
    gate.open[0].set()
    await gate.began[1].wait()
    tasks[1].cancel()
    (outcome,) = await asyncio.gather(tasks.pop(1), return_exceptions=True)
    assert isinstance(outcome, asyncio.CancelledError)
    assert not any(task.done() for task in tasks[1:])
    gate.open[1].set()
    assert all(await asyncio.gather(*tasks))
    assert gate.batches == [1, 4]
    # Who is cancelled does not know whether it was published. It was.
    assert await payloads(feed) == list(range(5))


async def test_tasks_that_wait_or_come_first_are_cancelled(adb: AsyncQueueDB, name: str) -> None:
    feed = await new_feed(adb, name)
    gate, tasks = await tasks_of(feed, 5)
    for at in (0, 1, 3):
        tasks[at].cancel()
    gate.open_all()
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert [isinstance(outcome, asyncio.CancelledError) for outcome in outcomes] == [True, True, False, True, False]
    # The first had not begun its transaction, the others had not been taken along.
    assert await payloads(feed) == [2, 4]
    assert await feed.publish("n", 5)


async def test_what_a_transaction_of_several_tasks_itself_publishes_does_not_wait_for_it(adb: AsyncQueueDB, name: str) -> None:
    """As a listener on the engine that publishes."""
    feed = await new_feed(adb, name)
    gate, tasks = await tasks_of(feed, 4)
    run = gate.run

    def publishing(parts: list[Any]) -> Sequence[Any]:
        if len(parts) > 1:
            feed._sync.publish("n", "listener")
        return run(parts)

    gate.run = publishing
    gate.open_all()
    await asyncio.wait_for(asyncio.gather(*tasks), PATIENCE)
    assert gate.batches == [1, 3, 1]
    assert await payloads(feed) == [0, "listener", 1, 2, 3]


async def test_all_tasks_are_cancelled_before_the_next_transaction_begins(adb: AsyncQueueDB, name: str) -> None:
    """As at the end of ``asyncio.run``: the next event loop must be able to publish."""
    feed = await new_feed(adb, name)
    gate, tasks = await tasks_of(feed, 5)
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
    gate.open[1].set()
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(outcome, asyncio.CancelledError) for outcome in outcomes)
    assert await feed.publish("n", "later")
    assert await payloads(feed) == ["later"]
