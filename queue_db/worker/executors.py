"""Where handlers run: functions on threads, coroutines on an event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from functools import partial
from heapq import heappop, heappush
from itertools import count
from operator import itemgetter
from queue import SimpleQueue
from typing import Any

from queue_db.leased_job import LeasedJob
from queue_db.worker.handlers import Handling

Assignment = tuple[LeasedJob, Handling]

Urgency = Callable[[LeasedJob], tuple[int, int]]
"""A key: the job with the lowest begins first."""


class Threads:
    """Calls functions, each on one of ``number`` threads.

    A thread that begins a job wakes the next one if more jobs wait. So functions that return at once run one after the other on one
    thread, without a handover for each, and those that wait for something run beside each other.

    The threads are daemons: a handler that does not return must not keep the process from ending.

    :param urgency: the order in which waiting jobs begin; equal ones begin in the order in which they came.
    """

    def __init__(self, number: int, work: Callable[[LeasedJob, Handling], None], name: str, urgency: Urgency) -> None:
        self._work = work
        self._urgency = urgency
        self._heap: list[tuple[tuple[int, int], int, Assignment]] = []
        self._numbers = count()
        # True wakes a thread that has no job, None ends it.
        self._wakes: SimpleQueue[bool | None] = SimpleQueue()
        # Whether there is a True in it, or a thread that has just taken it: one at a time is enough.
        self._waking = False
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
            self._wake()

    def cancel(self, job: LeasedJob) -> None:
        """Nothing: a thread cannot be stopped from outside. Its handler may read ``job.lost``."""

    def unstarted(self) -> list[LeasedJob]:
        """Take back the jobs that no thread has begun."""
        with self._lock:
            jobs = [assignment[0] for _, _, assignment in sorted(self._heap, key=itemgetter(0, 1))]
            self._heap.clear()
        return jobs

    def close(self) -> None:
        """Let the threads end when they are free."""
        for _ in self._threads:
            self._wakes.put(None)

    def _run(self) -> None:
        while self._wakes.get():
            woken = True
            while (assignment := self._next(woken=woken)) is not None:
                woken = False
                self._work(*assignment)

    def _next(self, *, woken: bool) -> Assignment | None:
        """The job that begins now; None: no job waits. ``woken``: this thread has just been woken for it."""
        with self._lock:
            if woken:
                self._waking = False
            if not self._heap:
                return None
            assignment = heappop(self._heap)[2]
            self._wake()
            return assignment

    def _wake(self) -> None:
        """Wake a thread if a job waits, unless one has been woken that has not yet looked. With the lock."""
        if self._heap and not self._waking:
            self._waking = True
            self._wakes.put(True)


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
