"""Claims that wait for a job: any number of idle clients, without a thread or a statement for each.

All of them wait on the event loop. One task reads in one statement when the next job of each of their queues is due, and one
thread receives the notifications of this process and of the database. When a queue has news, its longest waiting client is claimed
for, then the next, until a claim finds nothing.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from anyio import CapacityLimiter, to_thread
from starlette.concurrency import run_in_threadpool

from queue_db.db import QueueDB
from queue_db.errors import QueueDBError
from queue_db.leased_job import LeasedJob
from queue_db.model import Controls
from queue_db.notifications.wakeup import Wakeup
from queue_db.service.live.incidents import Incidents, IncidentType

# Seconds between two reads of when the next jobs are due, while clients wait: shortest, longest.
_POLL = (0.02, 0.5)

# Most claims at once for the waiting clients of one queue.
_AT_ONCE = 4

# Seconds for which the controls of a queue are remembered, and of how many queues.
_OBEY_WITHIN = 1.0
_REMEMBERED = 10_000

# Seconds without a waiting client after which the thread that receives notifications ends.
_LINGER = 5.0

# Longest wait for a notification, seconds.
_LONGEST_WAIT = 60.0

# Seconds between two tries to listen to the database: first, longest.
_RETRY = (0.1, 10.0)


@dataclass(eq=False, slots=True)
class Wanted:
    """A claim of a client that may go away meanwhile.

    :param write: makes the answer of the claimed jobs, in the thread that has claimed them.
    """

    queue: str
    limit: int
    lease: float
    worker: str | None
    write: Callable[[Sequence[LeasedJob]], bytes]
    answer: bytes = b""
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _abandoned: bool = False
    _jobs: list[LeasedJob] = field(default_factory=list)

    def claim(self, db: QueueDB, incidents: Incidents) -> list[LeasedJob]:
        """Claim, and write the answer. If the client has gone meanwhile, the jobs are given back at once."""
        queue = db.queue(self.queue)
        jobs = queue.claim(self.limit, self.lease, worker=self.worker)
        if jobs:
            try:
                self.answer = self.write(jobs)
            except BaseException:
                give_back(db, jobs, incidents)
                raise
        with self._lock:
            self._jobs = jobs
            abandoned = self._abandoned
        if jobs and abandoned:
            give_back(db, jobs, incidents)
            return []
        return jobs

    def abandon(self) -> list[LeasedJob]:
        """The client has gone: what is claimed from now on is given back; return what was claimed before."""
        with self._lock:
            self._abandoned = True
            return self._jobs


def give_back(db: QueueDB, jobs: Sequence[LeasedJob], incidents: Incidents) -> None:
    """Release jobs that no client got; this does not count as an attempt."""
    try:
        db.queue(jobs[0].queue).release_many(jobs)
    except QueueDBError as error:
        incidents.record(IncidentType.CLAIM_NOT_RETURNED, f"{len(jobs)} jobs of queue {jobs[0].queue}: {error}")
    else:
        incidents.record(IncidentType.CLAIM_RETURNED, f"{len(jobs)} jobs of queue {jobs[0].queue}")


@dataclass(eq=False, slots=True)
class _Waiter:
    """One waiting client."""

    wanted: Wanted
    jobs: asyncio.Future[list[LeasedJob]]
    #: Its time is over, or it has gone.
    over: bool = False


class Waiting:
    """The claims that wait, of one application. All methods run on its event loop.

    :param ending: set when the server ends; then no claim waits any more.
    :param threads: those that claim.
    """

    def __init__(self, db: QueueDB, ending: threading.Event, incidents: Incidents, threads: CapacityLimiter) -> None:
        self._db = db
        self._threads = threads
        self._ending = ending
        self._incidents = incidents
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiters: dict[str, deque[_Waiter]] = {}
        # How often each queue had news, and how many claims run for its clients.
        self._news: dict[str, int] = {}
        self._serving: dict[str, int] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._poller: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        self._receiver: _Receiver | None = None
        self._controls: dict[str, tuple[float, Controls]] = {}

    async def claim(self, wanted: Wanted, seconds: float, disconnected: asyncio.Future[None]) -> list[LeasedJob]:
        """Claim for a client; if nothing is due wait for ``seconds``, or until it has disconnected.

        :raises QueueDBError: as a claim does.
        """
        try:
            if seconds <= 0 or not self._waiters.get(wanted.queue):
                jobs = await to_thread.run_sync(self._claim, wanted, limiter=self._threads)
                if jobs or seconds <= 0:
                    return jobs
            return await self._wait(wanted, seconds, disconnected)
        except asyncio.CancelledError:
            self.return_to_queue(wanted.abandon())
            raise

    def return_to_queue(self, jobs: Sequence[LeasedJob]) -> None:
        """Give jobs back, in a thread."""
        if jobs:
            asyncio.get_running_loop().run_in_executor(None, give_back, self._db, jobs, self._incidents)

    # --- one client ---------------------------------------------------------------------------------------------------

    async def _wait(self, wanted: Wanted, seconds: float, disconnected: asyncio.Future[None]) -> list[LeasedJob]:
        self._start()
        waiter = _Waiter(wanted, asyncio.get_running_loop().create_future())
        waiters = self._waiters.setdefault(wanted.queue, deque())
        waiters.append(waiter)
        if len(waiters) == 1:
            # A job may have come between the claim and now.
            self._look(wanted.queue)
            self._changed.set()
        try:
            if not self._ending.is_set():
                either: set[asyncio.Future[Any]] = {waiter.jobs, disconnected}
                await asyncio.wait(either, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiter.over = True
            claiming = not self._withdraw(waiter)
        if waiter.jobs.done() or claiming:
            return await waiter.jobs
        return []

    def _withdraw(self, waiter: _Waiter) -> bool:
        """Let a client wait no more; False: a claim for it runs, or it has its jobs."""
        waiters = self._waiters.get(waiter.wanted.queue)
        if waiters is None or waiter not in waiters:
            return False
        waiters.remove(waiter)
        self._tidy(waiter.wanted.queue)
        return True

    def _tidy(self, queue: str) -> None:
        if not self._waiters.get(queue) and not self._serving.get(queue):
            self._waiters.pop(queue, None)
            self._news.pop(queue, None)
            self._serving.pop(queue, None)

    # --- claims for those who wait --------------------------------------------------------------------------------------

    def _look(self, queue: str) -> None:
        """The queue may have a due job."""
        if queue not in self._waiters:
            return
        self._news[queue] = self._news.get(queue, 0) + 1
        if not self._serving.get(queue):
            self._serve_more(queue)

    def _serve_more(self, queue: str) -> None:
        self._serving[queue] = self._serving.get(queue, 0) + 1
        task = asyncio.get_running_loop().create_task(self._serve(queue))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, queue: str) -> None:
        try:
            waiters = self._waiters[queue]
            while waiters and not self._ending.is_set():
                waiter, news = waiters.popleft(), self._news.get(queue, 0)
                found = await self._claim_for(waiter)
                if found and waiters and self._serving[queue] < _AT_ONCE:
                    self._serve_more(queue)
                if found:
                    continue
                if waiter.jobs.done():
                    return  # an error; the others are tried again soon
                if waiter.over or self._ending.is_set():
                    waiter.jobs.set_result([])
                else:
                    waiters.appendleft(waiter)
                if news == self._news.get(queue, 0):
                    return
        finally:
            self._serving[queue] -= 1
            self._tidy(queue)

    async def _claim_for(self, waiter: _Waiter) -> bool:
        """Claim for one client; whether that got jobs."""
        try:
            jobs = await to_thread.run_sync(self._claim, waiter.wanted, limiter=self._threads)
        except Exception as error:  # noqa: BLE001 - the client gets it as an answer
            if not waiter.jobs.done():
                waiter.jobs.set_exception(error)
                waiter.jobs.exception()  # a client that has gone does not fetch it
            return False
        if jobs and not waiter.jobs.done():
            waiter.jobs.set_result(jobs)
        return bool(jobs)

    def _claim(self, wanted: Wanted) -> list[LeasedJob]:
        """In a thread."""
        return [] if self._paused(wanted.queue) else wanted.claim(self._db, self._incidents)

    def _paused(self, queue: str) -> bool:
        read_at, controls = self._controls.get(queue, (0.0, None))
        if controls is None or time.monotonic() - read_at > _OBEY_WITHIN:
            if len(self._controls) >= _REMEMBERED:
                self._controls.clear()
            controls = self._db.queue(queue).controls()
            self._controls[queue] = time.monotonic(), controls
        return controls.paused

    # --- news -----------------------------------------------------------------------------------------------------------

    def _start(self) -> None:
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._loop, self._changed, self._poller = loop, asyncio.Event(), None
        if self._poller is None or self._poller.done():
            self._receiver = _Receiver(self._db, self._received)
            self._receiver.start()
            self._poller = loop.create_task(self._poll())

    async def _poll(self) -> None:
        """Read when the next jobs are due, while clients wait."""
        idle_since: float | None = None
        receiver = self._receiver
        try:
            while not self._ending.is_set():
                wait = _POLL[1]
                if self._waiters:
                    idle_since = None
                    wait = await self._due()
                elif idle_since is None:
                    idle_since = time.monotonic()
                elif time.monotonic() - idle_since > _LINGER:
                    break
                self._changed.clear()
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._changed.wait(), wait)
        finally:
            if receiver is not None:
                receiver.stop()
            self._end()

    async def _due(self) -> float:
        """Look at the queues with due jobs; return the seconds until the next read."""
        try:
            waits = await run_in_threadpool(self._db.next_due, list(self._waiters))
        except QueueDBError as error:
            self._fail(error)
            return _POLL[1]
        for queue, wait in waits.items():
            if wait is not None and wait <= 0:
                self._look(queue)
        return _next(waits.values())

    def _received(self, names: Iterable[str]) -> None:
        """Notifications have come. In a thread."""
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop is closed, and no client waits
                self._loop.call_soon_threadsafe(self._look_at, list(names))

    def _look_at(self, queues: list[str]) -> None:
        for queue in queues:
            self._look(queue)

    def _fail(self, error: QueueDBError) -> None:
        """The database does not answer: all clients learn it now, and come again."""
        for waiters in list(self._waiters.values()):
            while waiters:
                waiter = waiters.popleft()
                if not waiter.jobs.done():
                    waiter.jobs.set_exception(error)
                    waiter.jobs.exception()

    def _end(self) -> None:
        for waiters in list(self._waiters.values()):
            while waiters:
                waiter = waiters.popleft()
                if not waiter.jobs.done():
                    waiter.jobs.set_result([])


def _next(waits: Iterable[float | None]) -> float:
    """Seconds until the next read."""
    later = [wait for wait in waits if wait is not None and wait > 0]
    return max(_POLL[0], min([*later, _POLL[1]]))


class _Receiver(threading.Thread):
    """Receives the notifications of this process and of the database.

    :param receive: called with the names that came, in this thread.
    """

    def __init__(self, db: QueueDB, receive: Callable[[Iterable[str]], None]) -> None:
        super().__init__(name="queue_db-service-notifications", daemon=True)
        self._notifications = db.notifications
        self._receive = receive
        self._stopped = False
        self._wakeup = Wakeup(lambda: db.database.listen(db.notifications.channel), _RETRY)
        self._notifications.add(self._wakeup.set)

    def run(self) -> None:
        """Until :meth:`stop`."""
        try:
            while not self._stopped:
                if names := self._wakeup.wait(_LONGEST_WAIT):
                    self._receive(names)
        finally:
            self._wakeup.close()

    def stop(self) -> None:
        """End the thread soon."""
        self._stopped = True
        self._notifications.remove(self._wakeup.set)
        self._wakeup.set()
