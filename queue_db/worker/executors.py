"""Where handlers run: functions on threads, coroutines on an event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from functools import partial
from heapq import heappop, heappush
from itertools import count
from queue import Empty, SimpleQueue
from typing import Any

from queue_db.leased_job import LeasedJob
from queue_db.worker.handlers import Handling

Assignment = tuple[LeasedJob, Handling]

Urgency = Callable[[LeasedJob], tuple[int, int]]
"""A key: the job with the lowest begins first."""


class Threads:
    """Calls functions, each on one of ``number`` threads.

    The threads are daemons: a handler that does not return must not keep the process from ending.

    :param urgency: the order in which waiting jobs begin; equal ones begin in the order in which they came.
    """

    def __init__(self, number: int, work: Callable[[LeasedJob, Handling], None], name: str, urgency: Urgency) -> None:
        self._work = work
        self._urgency = urgency
        # One entry for each job in the heap, and None for each thread that must end.
        self._waiting: SimpleQueue[bool | None] = SimpleQueue()
        self._heap: list[tuple[tuple[int, int], int, Assignment]] = []
        self._numbers = count()
        self._lock = threading.Lock()
        self._threads = [
            threading.Thread(target=self._run, name=f"queue_db handler {index + 1} of {name}", daemon=True)
            for index in range(number)
        ]
        for thread in self._threads:
            thread.start()

    def begin(self, assignments: Sequence[Assignment]) -> None:
        """Call these as soon as threads are free."""
        with self._lock:
            for assignment in assignments:
                heappush(self._heap, (self._urgency(assignment[0]), next(self._numbers), assignment))
        put = self._waiting.put
        for _ in assignments:
            put(True)

    def cancel(self, job: LeasedJob) -> None:
        """Nothing: a thread cannot be stopped from outside. Its handler may read ``job.lost``."""

    def unstarted(self) -> list[LeasedJob]:
        """Take back the jobs that no thread has begun."""
        found = []
        with suppress(Empty):
            while True:
                if self._waiting.get_nowait():
                    found.append(self._next()[0])
        return found

    def close(self) -> None:
        """Let the threads end when they are free."""
        for _ in self._threads:
            self._waiting.put(None)

    def _run(self) -> None:
        work, get = self._work, self._waiting.get
        while get():
            work(*self._next())

    def _next(self) -> Assignment:
        with self._lock:
            return heappop(self._heap)[2]


class Loop:
    """Calls coroutines, all on one event loop in a thread of its own.

    :param work: ends the job, also when it is cancelled; raises nothing.
    :param cancelled_early: ends a job whose coroutine was cancelled before its first step, so that ``work`` did not run.
    """

    def __init__(
        self,
        work: Callable[[LeasedJob, Handling], Coroutine[Any, Any, None]],
        cancelled_early: Callable[[LeasedJob], None],
        name: str,
    ) -> None:
        self._work = work
        self._cancelled_early = cancelled_early
        self._tasks: dict[LeasedJob, asyncio.Task[Any]] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=f"queue_db event loop of {name}", daemon=True)
        self._thread.start()

    def begin(self, assignments: Sequence[Assignment]) -> None:
        """Call these at once."""
        self._loop.call_soon_threadsafe(self._begin, list(assignments))

    def cancel(self, job: LeasedJob) -> None:
        """Cancel the coroutine of this job."""
        self._loop.call_soon_threadsafe(self._cancel, job)

    def call(self, job: LeasedJob, coroutine: Coroutine[Any, Any, object]) -> object:
        """Run a coroutine and wait for it, in another thread than the loop's; :meth:`cancel` cancels it."""
        return asyncio.run_coroutine_threadsafe(self._noted(job, coroutine), self._loop).result()

    async def _noted(self, job: LeasedJob, coroutine: Coroutine[Any, Any, object]) -> object:
        task = self._loop.create_task(coroutine)
        self._tasks[job] = task
        try:
            return await task
        finally:
            del self._tasks[job]

    def unstarted(self) -> list[LeasedJob]:
        """None: no job waits here."""
        return []

    def close(self) -> None:
        """Cancel the running coroutines and end the loop."""
        with suppress(RuntimeError):  # closed before
            self._loop.call_soon_threadsafe(self._end)

    def _begin(self, assignments: list[Assignment]) -> None:
        for job, handling in assignments:
            task = self._loop.create_task(self._work(job, handling))
            self._tasks[job] = task
            task.add_done_callback(partial(self._ended, job))

    def _ended(self, job: LeasedJob, task: asyncio.Task[None]) -> None:
        self._tasks.pop(job, None)
        if task.cancelled():
            self._cancelled_early(job)

    def _cancel(self, job: LeasedJob) -> None:
        task = self._tasks.get(job)
        if task is not None:
            task.cancel()

    def _end(self) -> None:
        for task in list(self._tasks.values()):
            task.cancel()
        self._loop.call_soon(self._loop.stop)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        finally:
            self._loop.close()
