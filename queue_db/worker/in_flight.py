"""The jobs in flight: claimed by this worker and not ended yet."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

from queue_db.leased_job import LeasedJob


class InFlight:
    """The jobs in flight. The thread that removes a job decides its outcome: its handler, the heartbeat, the timeout, or the stop.

    One thread adds, any thread removes. Each relies on one atomic method of a dict, so there is no lock.
    """

    def __init__(self, queues: Iterable[str]) -> None:
        # Keyed by object: after a lost lease one worker may have the same job twice, under two leases.
        self._jobs: dict[str, dict[LeasedJob, float]] = {queue: {} for queue in queues}
        # Jobs that were taken from running handlers, which use their slots until they return.
        self._abandoned: dict[LeasedJob, float] = {}
        self._every = (*self._jobs.values(), self._abandoned)

    def add(self, queue: str, jobs: Sequence[LeasedJob]) -> None:
        """Add claimed jobs."""
        self._jobs[queue].update(dict.fromkeys(jobs, time.monotonic()))

    def __contains__(self, job: LeasedJob) -> bool:
        return job in self._jobs.get(job.queue, ())

    def since(self, job: LeasedJob) -> float | None:
        """When the job was added, by ``time.monotonic``; None: it has been removed."""
        return self._jobs[job.queue].get(job)

    def remove(self, job: LeasedJob) -> bool:
        """Remove the job; False: another thread has removed it."""
        return self._jobs[job.queue].pop(job, None) is not None

    def abandon(self, job: LeasedJob) -> bool:
        """:meth:`remove` a job whose handler still runs; :meth:`returned` follows when the handler returns."""
        # Noted before the removal: a handler that returns in between must find the note and take it away.
        self._abandoned[job] = time.monotonic()
        if self.remove(job):
            return True
        self._abandoned.pop(job, None)
        return False

    def returned(self, job: LeasedJob) -> None:
        """The handler of an abandoned job has returned, or will not be called."""
        self._abandoned.pop(job, None)

    def stuck(self, longer: float) -> int:
        """How many handlers have not returned although their jobs were abandoned more than ``longer`` seconds ago."""
        before = time.monotonic() - longer
        return sum(1 for since in list(self._abandoned.values()) if since <= before)

    def jobs(self) -> list[LeasedJob]:
        """The jobs in flight, queue by queue."""
        return [job for jobs in list(self._jobs.values()) for job in list(jobs)]

    def in_use(self, queue: str | None) -> int:
        """Slots in use, of one queue or of all: by jobs in flight, and by handlers of abandoned jobs."""
        if queue is None:
            return sum(map(len, self._every))  # asked after each job
        return len(self._jobs[queue]) + sum(1 for job in list(self._abandoned) if job.queue == queue)

    def __len__(self) -> int:
        return sum(map(len, self._jobs.values()))
