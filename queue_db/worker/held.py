"""The jobs in a worker's hands, and the heartbeat that keeps their leases."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby

from queue_db.errors import QueueDBError
from queue_db.leased import LeasedJob
from queue_db.queue import Queue
from queue_db.worker.pauses import Pause

log = logging.getLogger("queue_db.worker")


class Held:
    """Which jobs are held. Whoever drops a job decides what becomes of it: its handler, the heartbeat, the clock, or the stop.

    One thread adds; any may drop. The methods of a dict are atomic, which is all that is needed.
    """

    def __init__(self, queues: Iterable[str]) -> None:
        # A job whose lease was lost may be held twice by one worker, with two leases: jobs are told apart as objects.
        self._jobs: dict[str, dict[LeasedJob, None]] = {queue: {} for queue in queues}
        # Given up, but their handlers have not come back: they use slots.
        self._abandoned: dict[LeasedJob, None] = {}

    def add(self, queue: str, jobs: Sequence[LeasedJob]) -> None:
        """Hold what was claimed."""
        self._jobs[queue].update(dict.fromkeys(jobs))

    def holds(self, job: LeasedJob) -> bool:
        """Whether nobody has dropped ``job`` yet."""
        return job in self._jobs[job.queue]

    def drop(self, job: LeasedJob) -> bool:
        """Hold ``job`` no longer; False if somebody else dropped it before."""
        return self._jobs[job.queue].pop(job, job) is None

    def give_up(self, job: LeasedJob) -> bool:
        """:meth:`drop` it for a handler that runs on, and :meth:`gone` when that has come back."""
        # Noted first: a handler that comes back in the midst of this must find the note, or nobody would ever take it away.
        self._abandoned[job] = None
        if self.drop(job):
            return True
        self._abandoned.pop(job, None)
        return False

    def gone(self, job: LeasedJob) -> None:
        """The handler of a job that was given up has come back, or will never be called."""
        self._abandoned.pop(job, None)

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

    :param lost: called with a job whose lease was lost and that is no longer held.
    """

    def __init__(self, held: Held, lease: float, lost: Callable[[LeasedJob], None]) -> None:
        self._held = held
        self._lease = lease
        self._lost = lost
        self._trouble = Pause(lease / 60, lease / 6)

    def beat(self) -> float:
        """Extend once; return how many seconds to wait for the next beat."""
        for queue, jobs in groupby(self._held.jobs(), key=_queue_of):
            batch = list(jobs)
            try:
                verdicts = queue.extend_many(batch, self._lease)
            except QueueDBError as error:
                wait = self._trouble.next()
                log.warning("extending %d leases failed, next try in %.1f s: %s", len(batch), wait, error)
                return wait
            except Exception:
                log.exception("extending %d leases failed", len(batch))
                return self._trouble.next()
            for job, verdict in zip(batch, verdicts, strict=True):
                # A job that was settled between the look and the beat is no longer held: nothing was lost.
                if not verdict and self._held.give_up(job):
                    self._lost(job)
        self._trouble.reset()
        return self._lease / 3


def _queue_of(job: LeasedJob) -> Queue:
    source: Queue = job.source  # type: ignore[assignment]
    return source
