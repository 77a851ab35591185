"""Enqueues of tasks share an insert too, and a task that is cancelled takes no other with it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from sqlalchemy.util import await_

from queue_db import PermanentStorageError
from queue_db.aio import AsyncQueue, AsyncQueueDB
from queue_db.model import NewJob
from tests.patience import PATIENCE


class Gate:
    """Holds the first two inserts of a queue up, and lists how many jobs each has."""

    def __init__(self, queue: AsyncQueue) -> None:
        self._queue = queue
        self._batcher = queue._queue._enqueue._batcher
        self._batcher._at_once = 1
        self._run = self._batcher._run
        self.batches: list[int] = []
        self.began = [asyncio.Event(), asyncio.Event()]
        self.open = [asyncio.Event(), asyncio.Event()]
        self._batcher._run = self._gated

    def _gated(self, jobs: list[NewJob]) -> Sequence[Any]:
        at = len(self.batches)
        self.batches.append(len(jobs))
        if at < len(self.began):
            self.began[at].set()
            await_(self.open[at].wait())
        if any(job.payload == '"bad"' for job in jobs):
            raise PermanentStorageError("a trigger refuses it")
        return self._run(jobs)

    async def tasks(self, *payloads: Any) -> list[asyncio.Task[int | None]]:
        """A task for each job; the first inserts, the others wait in their order."""
        tasks = [asyncio.create_task(self._queue.enqueue("mail", payloads[0]))]
        await self.began[0].wait()
        for number, payload in enumerate(payloads[1:], 1):
            tasks.append(asyncio.create_task(self._queue.enqueue("mail", payload)))
            for _ in range(10_000):
                await asyncio.sleep(0)
                if len(self._batcher._queue) == number:
                    break
        return tasks

    def open_all(self) -> None:
        for one in self.open:
            one.set()


async def payloads(queue: AsyncQueue) -> list[Any]:
    return sorted(job.payload for job in await queue.peek(limit=100))


async def test_tasks_enqueue_together_and_each_gets_the_id_of_its_own_job(adb: AsyncQueueDB, name: str) -> None:
    queue = adb.queue(name)
    gate = Gate(queue)
    tasks = await gate.tasks(*range(10))
    gate.open_all()
    ids = await asyncio.gather(*tasks)
    assert gate.batches == [1, 9]
    assert {job.id: job.payload for job in await queue.peek(limit=100)} == {job_id: at for at, job_id in enumerate(ids)}


async def test_a_task_that_inserts_for_others_is_cancelled(adb: AsyncQueueDB, name: str) -> None:
    queue = adb.queue(name)
    gate = Gate(queue)
    tasks = await gate.tasks(*range(5))
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
    gate = Gate(queue)
    tasks = await gate.tasks(*range(5))
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
    gate = Gate(queue)
    tasks = await gate.tasks(*range(5))
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
    gate.open_all()
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(outcome, asyncio.CancelledError) for outcome in outcomes)
    assert await asyncio.wait_for(queue.enqueue("mail", "later"), PATIENCE)
    assert await payloads(queue) == ["later"]
