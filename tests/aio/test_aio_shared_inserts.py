"""Enqueues of tasks share an insert too, and a task that is cancelled takes no other with it."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest

from queue_db.aio import AsyncQueue, AsyncQueueDB
from tests.aio.gate import Gate
from tests.patience import PATIENCE


async def tasks_of(queue: AsyncQueue, count: int) -> tuple[Gate, list[asyncio.Task[int | None]]]:
    """A task for each job; the first inserts, the others wait in their order."""
    gate = Gate(queue._sync._enqueue._batcher)
    return gate, await gate.tasks(partial(queue.enqueue, "mail"), range(count))


async def payloads(queue: AsyncQueue) -> list[Any]:
    return sorted(job.payload for job in await queue.peek(limit=100))


async def test_tasks_enqueue_together_and_each_gets_the_id_of_its_own_job(adb: AsyncQueueDB, name: str) -> None:
    queue = adb.queue(name)
    gate, tasks = await tasks_of(queue, 10)
    gate.open_all()
    ids = await asyncio.gather(*tasks)
    assert gate.batches == [1, 9]
    assert {job.id: job.payload for job in await queue.peek(limit=100)} == {job_id: at for at, job_id in enumerate(ids)}


async def test_a_task_that_inserts_for_others_is_cancelled(adb: AsyncQueueDB, name: str) -> None:
    queue = adb.queue(name)
    gate, tasks = await tasks_of(queue, 5)
    gate.open[0].set()
    await gate.began[1].wait()
    tasks[1].cancel()
    (outcome,) = await asyncio.gather(tasks.pop(1), return_exceptions=True)
    assert isinstance(outcome, asyncio.CancelledError)
    assert not any(task.done() for task in tasks[1:])
    gate.open[1].set()
    assert all(await asyncio.gather(*tasks))
    assert gate.batches == [1, 4]
    # Who is cancelled does not know whether it was enqueued. It was.
    assert await payloads(queue) == [0, 1, 2, 3, 4]


async def test_tasks_that_wait_or_come_first_are_cancelled(adb: AsyncQueueDB, name: str) -> None:
    queue = adb.queue(name)
    gate, tasks = await tasks_of(queue, 5)
    for at in (0, 1, 3):
        tasks[at].cancel()
    gate.open_all()
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert [isinstance(outcome, asyncio.CancelledError) for outcome in outcomes] == [True, True, False, True, False]
    # The first had not begun its transaction, the others had not been taken along.
    assert await payloads(queue) == [2, 4]
    assert await asyncio.wait_for(queue.enqueue("mail", 5), PATIENCE)


@pytest.mark.parametrize("kind", ["sqlite"], scope="session")
async def test_all_tasks_are_cancelled_before_the_next_insert_begins(adb: AsyncQueueDB, name: str) -> None:
    """As at the end of ``asyncio.run``."""
    queue = adb.queue(name)
    gate, tasks = await tasks_of(queue, 5)
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
    gate.open_all()
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(outcome, asyncio.CancelledError) for outcome in outcomes)
    assert await asyncio.wait_for(queue.enqueue("mail", "later"), PATIENCE)
    assert await payloads(queue) == ["later"]
