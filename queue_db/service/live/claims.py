"""The claims of clients: those that come at the same time share one statement, and those that find nothing wait for a job.

Each client has its own limit, its own jobs and its own tokens. Jobs go to clients in the order in which these came. When a queue
has news, its longest waiting client is claimed for, then the next two, four …, until a claim finds less than they want.
"""

from __future__ import annotations

import asyncio
import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from anyio import CapacityLimiter

from queue_db.database.transaction import Run
from queue_db.db import QueueDB
from queue_db.errors import QueueDBError
from queue_db.leased_job import LeasedJob
from queue_db.limits.claims import claim as claim_within_limits
from queue_db.model import Controls
from queue_db.service.live.incidents import Incidents, IncidentType
from queue_db.service.live.together import Together
from queue_db.service.live.waits import QUEUE, Waits
from queue_db.store import settle

log = logging.getLogger("queue_db.service")

# Most jobs of one statement for several clients.
_TOGETHER = 500

# A claim of so many jobs shares its statement only with those of the same worker name.
_LARGE = 10

# Most claims at once for the waiting clients of one queue, and most clients of each.
_AT_ONCE = 4
_CLIENTS = 64

# Seconds for which the controls of a queue are remembered, and of how many queues.
_OBEY_WITHIN = 1.0
_REMEMBERED = 10_000


# Seconds after which to ask again while groups of a queue are at their limits: shortest, longest.
_SHORTEST_HELD, _LONGEST_HELD = 0.02, 0.25

# It may run again.
_NAME = Run("settle.set_workers", repeatable=True)


class Terms(NamedTuple):
    """What claims that share a statement have in common."""

    queue: str
    lease: float
    #: Of large claims: to name the workers of their jobs takes longer than a claim for each worker.
    worker: str | None = None

    @classmethod
    def of(cls, queue: str, limit: int, lease: float, worker: str | None) -> Terms:
        """The terms of a claim."""
        return cls(queue, lease, worker if limit >= _LARGE else None)


@dataclass(eq=False, slots=True)
class Wanted:
    """A claim of a client that may go away meanwhile.

    :param worker: the name that its jobs show; None: that of the service.
    :param write: makes the answer of the claimed jobs, in the thread that has claimed them.
    """

    terms: Terms
    limit: int
    worker: str | None
    write: Callable[[Sequence[LeasedJob]], bytes]
    answer: bytes = b""
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _abandoned: bool = False
    _jobs: Sequence[LeasedJob] = ()

    def accept(self, jobs: Sequence[LeasedJob]) -> bool:
        """Take jobs, and write the answer; False: the client has gone, and the jobs are free for others.

        :raises Exception: the answer cannot be written.
        """
        if not self._abandoned:
            self.answer = self.write(jobs)
        with self._lock:
            if not self._abandoned:
                self._jobs = jobs
            return not self._abandoned

    @property
    def abandoned(self) -> bool:
        """Whether the client has gone."""
        return self._abandoned

    def abandon(self) -> Sequence[LeasedJob]:
        """The client has gone: it accepts nothing from now on; return what it had accepted."""
        with self._lock:
            self._abandoned = True
            return self._jobs


def give_back(db: QueueDB, jobs: Sequence[LeasedJob], incidents: Incidents) -> None:
    """Release jobs that no client got; this does not count as an attempt."""
    try:
        db.queue(jobs[0].queue).release_many([*jobs])
    except QueueDBError as error:
        incidents.record(IncidentType.CLAIM_NOT_RETURNED, f"{len(jobs)} jobs of queue {jobs[0].queue}: {error}")
    else:
        incidents.record(IncidentType.CLAIM_RETURNED, f"{len(jobs)} jobs of queue {jobs[0].queue}")


@dataclass(eq=False, slots=True)
class _Waiter:
    """One waiting client."""

    wanted: Wanted
    jobs: asyncio.Future[Sequence[LeasedJob]]
    #: Its time is over, or it has gone.
    over: bool = False

    def resolve(self, found: Sequence[LeasedJob] | BaseException) -> None:
        """What it gets, unless it has gone."""
        if self.jobs.done():
            return
        if isinstance(found, BaseException):
            self.jobs.set_exception(found)
            self.jobs.exception()  # a client that has gone does not fetch it
        else:
            self.jobs.set_result(found)


class Claims:
    """The claims of one application. All methods run on its event loop.

    :param threads: those that claim.
    """

    def __init__(self, db: QueueDB, waits: Waits, incidents: Incidents, threads: CapacityLimiter) -> None:
        self._db = db
        self._waits = waits
        self._incidents = incidents
        self._together: Together[Terms, Wanted, Sequence[LeasedJob]] = Together(
            self._claim, threads, lambda one: one.limit, _TOGETHER
        )
        self._lines: dict[str, _Line] = {}
        self._controls: dict[str, tuple[float, Controls]] = {}
        # The seconds after which the limits of a queue may allow jobs that the last claim did not get.
        self._refused: dict[str, float] = {}

    def waiting(self, queue: str) -> int:
        """How many clients wait for jobs of a queue."""
        line = self._lines.get(queue)
        return 0 if line is None else len(line.waiters)

    async def claim(self, wanted: Wanted, seconds: float, disconnected: asyncio.Future[None]) -> Sequence[LeasedJob]:
        """Claim for a client; if nothing is due wait for ``seconds``, or until it has disconnected.

        :raises QueueDBError: as a claim does.
        """
        try:
            # Who comes to a line knows that nothing is due.
            if seconds <= 0 or wanted.terms.queue not in self._lines:
                jobs = await self._attempt(wanted, disconnected)
                if jobs or seconds <= 0 or disconnected.done():
                    return jobs
            return await self._wait(wanted, seconds, disconnected)
        except BaseException:
            # Also after an error: it may have come after the client's jobs were claimed.
            self.return_to_queue(wanted.abandon())
            raise

    def submit(self, wanted: Wanted) -> asyncio.Future[Sequence[LeasedJob]]:
        """Claim, in one statement with others that come now."""
        return self._together.call(wanted.terms, wanted)

    async def _attempt(self, wanted: Wanted, disconnected: asyncio.Future[None]) -> Sequence[LeasedJob]:
        """Claim at once; if the client goes meanwhile, its jobs are for others."""

        def leave(_: object) -> None:
            wanted.abandon()

        disconnected.add_done_callback(leave)
        try:
            return await self.submit(wanted)
        finally:
            disconnected.remove_done_callback(leave)

    def return_to_queue(self, jobs: Sequence[LeasedJob]) -> None:
        """Give jobs back, in a thread."""
        if jobs:
            asyncio.get_running_loop().run_in_executor(None, give_back, self._db, jobs, self._incidents)

    async def _wait(self, wanted: Wanted, seconds: float, disconnected: asyncio.Future[None]) -> Sequence[LeasedJob]:
        if self._waits.ending:
            return []
        queue = wanted.terms.queue
        line = self._lines.get(queue)
        if line is None:
            line = self._lines[queue] = _Line(self, queue, self._waits)
        waiter = _Waiter(wanted, asyncio.get_running_loop().create_future())
        line.add(waiter)
        try:
            either: set[asyncio.Future[Any]] = {waiter.jobs, disconnected}
            await asyncio.wait(either, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiter.over = True
            served = line.withdraw(waiter)
        if not served:
            return []
        if disconnected.done():
            wanted.abandon()
        return await waiter.jobs

    def forget(self, queue: str) -> None:
        """A line has ended."""
        self._lines.pop(queue, None)

    # --- in a thread ------------------------------------------------------------------------------------------------

    def _claim(self, terms: Terms, clients: list[Wanted]) -> list[Sequence[LeasedJob] | BaseException]:
        """Claim for several clients in one statement: the jobs of each, in their order, or its error."""
        controls = None if all(one.abandoned for one in clients) else self._controls_of(terms.queue)
        if controls is None or controls.paused:
            return [[] for _ in clients]
        # Only now: clients may have gone while the controls were read.
        here = [one for one in clients if not one.abandoned]
        if not here:
            return [[] for _ in clients]
        limit, workers = sum(one.limit for one in here), {one.worker for one in here}
        queue, worker = self._db.queue(terms.queue), here[0].worker if len(workers) == 1 else None
        if controls.concurrency is None and controls.rate is None:
            jobs: Sequence[LeasedJob] = queue.claim(limit, terms.lease, worker=worker)
            held = self._db.core.policies.wait(terms.queue) if len(jobs) < limit else math.inf
            if held < math.inf:  # groups are at their limits
                self._refused[terms.queue] = min(max(held, _SHORTEST_HELD), _LONGEST_HELD)
        else:
            jobs, self._refused[terms.queue] = claim_within_limits(
                queue, limit, terms.lease, worker, lambda jobs: give_back(self._db, jobs, self._incidents)
            )
        found: list[Sequence[LeasedJob] | BaseException] = []
        at = 0
        try:
            for one in clients:
                share = jobs[at : at + one.limit]
                for job in share:
                    job.worker = one.worker
                try:
                    accepted = bool(share) and one.accept(share)
                except Exception as error:  # noqa: BLE001 - of this client; the others have their jobs
                    give_back(self._db, share, self._incidents)
                    found.append(error)
                    at += len(share)
                    continue
                found.append(share if accepted else [])
                at += len(share) if accepted else 0
        finally:
            if at < len(jobs):
                give_back(self._db, jobs[at:], self._incidents)
        if len(workers) > 1:
            self._name([job for some in found if not isinstance(some, BaseException) for job in some])
        return found

    def _name(self, jobs: Sequence[LeasedJob]) -> None:
        """Let each job show the worker of its client, where several of them share a claim."""
        by_claim: dict[str, dict[int, str]] = {}
        for job in jobs:
            if job.worker is not None:
                by_claim.setdefault(job.token, {})[job.id] = job.worker
        for token, workers in by_claim.items():
            try:
                self._db.core.run(_NAME, settle.set_workers, token, workers)
            except Exception as error:  # noqa: BLE001 - only people read them, and the clients have their jobs
                log.debug("%d jobs of queue %r show the worker %r: %s", len(workers), jobs[0].queue, self._db.worker, error)

    def refused(self, queue: str) -> float:
        """Seconds after which the limits of a queue may allow more jobs; 0: they refused none."""
        return self._refused.pop(queue, 0.0)

    def _controls_of(self, queue: str) -> Controls:
        read_at, controls = self._controls.get(queue, (0.0, None))
        if controls is None or time.monotonic() - read_at > _OBEY_WITHIN:
            if len(self._controls) >= _REMEMBERED:
                self._controls.clear()
            controls = self._db.queue(queue).controls()
            self._controls[queue] = time.monotonic(), controls
        return controls


class _Line:
    """The clients that wait for jobs of one queue, the longest waiting one first."""

    def __init__(self, claims: Claims, queue: str, waits: Waits) -> None:
        self.waiters: deque[_Waiter] = deque()
        self._claims = claims
        self._queue = queue
        self._waits = waits
        # How often there were news, and how many claims run for those who wait.
        self._news = 0
        self._serving = 0
        self._tasks: set[asyncio.Task[None]] = set()
        # A client has come, perhaps after the end of a job, while the limits of the queue allowed no job.
        self._came = asyncio.Event()

    def add(self, waiter: _Waiter) -> None:
        """Let a client wait."""
        self.waiters.append(waiter)
        self._came.set()
        if len(self.waiters) == 1:
            # A job may have come between the claim and now.
            self._waits.join((QUEUE, self._queue), self)
            self.news()

    def withdraw(self, waiter: _Waiter) -> bool:
        """Let a client wait no more; True: a claim for it runs, or it has its jobs."""
        if waiter not in self.waiters:
            return True
        self.waiters.remove(waiter)
        self._tidy()
        return False

    def news(self, found: object = None) -> None:
        """The queue may have a due job."""
        self._news += 1
        if not self._serving and self.waiters:
            self._serve_more()

    def fail(self, error: QueueDBError) -> None:
        """All clients learn it now, and come again."""
        while self.waiters:
            self.waiters.popleft().resolve(error)
        self._tidy()

    def end(self) -> None:
        """Nobody waits any more."""
        while self.waiters:
            self.waiters.popleft().resolve([])
        self._tidy()

    def _tidy(self) -> None:
        if not self.waiters and not self._serving:
            self._waits.leave((QUEUE, self._queue))
            self._claims.forget(self._queue)

    def _serve_more(self) -> None:
        self._serving += 1
        task = asyncio.get_running_loop().create_task(self._serve())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self) -> None:
        """Claim for those who wait, as long as each of them gets jobs."""
        number = 1
        try:
            while self.waiters and not self._waits.ending:
                some, news = [self.waiters.popleft() for _ in range(min(number, len(self.waiters)))], self._news
                if await self._claim_for(some):
                    number = min(2 * number, _CLIENTS)
                    if self.waiters and self._serving < _AT_ONCE:
                        self._serve_more()
                elif (wait := self._claims.refused(self._queue)) > 0:
                    self._came.clear()
                    with suppress(TimeoutError):
                        async with asyncio.timeout(wait):
                            await self._came.wait()
                elif news == self._news:
                    return
        finally:
            self._serving -= 1
            self._tidy()

    async def _claim_for(self, some: Sequence[_Waiter]) -> bool:
        """Claim for some clients; whether each of them got jobs."""
        calls = [self._claims.submit(one.wanted) for one in some]
        await asyncio.wait(calls)
        rest: list[_Waiter] = []
        for waiter, call in zip(some, calls, strict=True):
            if (error := call.exception()) is not None:
                waiter.resolve(error)
            elif (jobs := call.result()) or waiter.over or self._waits.ending:
                waiter.resolve(jobs)
            else:
                rest.append(waiter)
        self.waiters.extendleft(reversed(rest))
        return all(call.exception() is None and call.result() for call in calls)
