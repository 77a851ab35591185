"""The jobs in a worker's hands, and the heartbeat that keeps their leases."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby

from queue_db.leased_job import LeasedJob
from queue_db.model import Verdict
from queue_db.queue import Queue
from queue_db.worker.outages import Activity
from queue_db.worker.pauses import Pause

log = logging.getLogger("queue_db.worker")


class Held:
    """Which jobs are held. Whoever drops a job decides what becomes of it: its handler, the heartbeat, the clock, or the stop.

    One thread adds; any may drop. The methods of a dict are atomic, which is all that is needed.
    """

    def __init__(self, queues: Iterable[str]) -> None:
        # A job whose lease was lost may be held twice by one worker, with two leases: jobs are told apart as objects.
        self._jobs: dict[str, dict[LeasedJob, float]] = {queue: {} for queue in queues}
        # Given up, but their handlers have not come back: they use slots.
        self._abandoned: dict[LeasedJob, float] = {}

    def add(self, queue: str, jobs: Sequence[LeasedJob]) -> None:
        """Hold what was claimed."""
        self._jobs[queue].update(dict.fromkeys(jobs, time.monotonic()))

    def holds(self, job: LeasedJob) -> bool:
        """Whether nobody has dropped ``job`` yet."""
        return job in self._jobs.get(job.queue, ())

    def since(self, job: LeasedJob) -> float | None:
        """Since when it is held, by ``time.monotonic``; None: somebody has dropped it."""
        return self._jobs[job.queue].get(job)

    def drop(self, job: LeasedJob) -> bool:
        """Hold ``job`` no longer; False if somebody else dropped it before."""
        return self._jobs[job.queue].pop(job, None) is not None

    def give_up(self, job: LeasedJob) -> bool:
        """:meth:`drop` it for a handler that runs on, and :meth:`gone` when that has come back."""
        # Noted first: a handler that comes back in the midst of this must find the note, or nobody would ever take it away.
        self._abandoned[job] = time.monotonic()
        if self.drop(job):
            return True
        self._abandoned.pop(job, None)
        return False

    def gone(self, job: LeasedJob) -> None:
        """The handler of a job that was given up has come back, or will never be called."""
        self._abandoned.pop(job, None)

    def stuck(self, longer: float) -> int:
        """How many handlers have not come back although their jobs were given up more than so many seconds ago."""
        before = time.monotonic() - longer
        return sum(1 for since in list(self._abandoned.values()) if since <= before)

    def jobs(self) -> list[LeasedJob]:
        """The jobs that are held now, queue by queue."""
        return [job for jobs in list(self._jobs.values()) for job in list(jobs)]

    def in_use(self, queue: str | None) -> int:
        """Slots in use, of one queue or of all: those of jobs that are held, and of handlers that have not come back."""
        if queue is None:
            return len(self) + len(self._abandoned)
        return len(self._jobs[queue]) + sum(1 for job in list(self._abandoned) if job.queue == queue)

    def __len__(self) -> int:
        return sum(map(len, self._jobs.values()))


class Heartbeat:
    """Extends the leases of all held jobs every third of a lease, so that two beats may fail before one runs out.

    It waits for nothing but the database: not for locked rows, and not for verbs that handlers run on their jobs. A queue that
    fails is tried again soon; the others are extended all the same.

    :param lost: called with a held job whose lease was lost; returns at once.
    :param outage: logs that the database does not answer.
    """

    def __init__(self, held: Held, lease: float, lost: Callable[[LeasedJob], None], outage: Activity | None = None) -> None:
        self._outage = outage or Activity()
        self._held = held
        self._lease = lease
        self._lost = lost
        self._trouble: dict[Queue, Pause] = {}

    def beat(self) -> float:
        """Extend once; return how many seconds to wait for the next beat."""
        wait = self._lease / 3
        all_well = True
        for queue, jobs in groupby(self._held.jobs(), key=_queue_of):
            trouble = self._trouble.setdefault(queue, Pause(self._lease / 60, self._lease / 6))
            again = trouble.next()
            try:
                done = self._extend(queue, list(jobs))
            except Exception as error:  # noqa: BLE001 - logged there, with the traceback of what is not foreseen
                self._outage.failed(f"extending the leases of {queue.name!r}", error, again)
                done = all_well = False
            if done:
                trouble.reset()
            else:
                wait = min(wait, again)
        if all_well:
            self._outage.worked()
        return wait

    def _extend(self, queue: Queue, jobs: list[LeasedJob]) -> bool:
        """Extend the leases of one queue; False: some rows are locked, try again soon."""
        # A verb that runs on a job may wait for a lock in the database. It ends the lease, or fails.
        batch = [job for job in jobs if job.lock.acquire(blocking=False)]
        try:
            verdicts = queue.extend_unlocked(batch, self._lease)
        finally:
            for job in batch:
                job.lock.release()
        for job, verdict in zip(batch, verdicts, strict=True):
            # A job that was settled between the look and the beat is no longer held, or its handler has settled it: nothing was
            # lost.
            if verdict is Verdict.LOST and not job.settled:
                self._lost(job)
        waiting = len(jobs) - len(batch) + verdicts.count(None)
        if waiting:
            log.debug("%d leases of %r are not extended yet: their rows are locked", waiting, queue.name)
        return not waiting


def _queue_of(job: LeasedJob) -> Queue:
    source: Queue = job.source  # type: ignore[assignment]
    return source
