"""The jobs in a worker's hands, and the heartbeat that keeps their leases."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence

from queue_db.errors import QueueDBError
from queue_db.leased import LeasedJob
from queue_db.queue import Queue
from queue_db.worker.pauses import Pause

log = logging.getLogger("queue_db.worker")


class Held:
    """Which jobs are held. Whoever drops a job decides what becomes of it: its thread, the heartbeat, or the stop."""

    def __init__(self) -> None:
        # A job whose lease was lost may be held twice by one worker, with two leases: jobs are told apart as objects.
        self._jobs: set[LeasedJob] = set()
        self._claims = 0
        self._closed = False
        self._changed = threading.Condition()

    def claiming(self) -> bool:
        """Announce a claim, to be followed by :meth:`claimed`; False when nothing may be claimed any more."""
        with self._changed:
            if not self._closed:
                self._claims += 1
            return not self._closed

    def claimed(self, jobs: Sequence[LeasedJob]) -> None:
        """Hold what the claim got."""
        with self._changed:
            self._claims -= 1
            self._jobs.update(jobs)
            self._changed.notify_all()

    def holds(self, job: LeasedJob) -> bool:
        """Whether nobody has dropped ``job`` yet."""
        with self._changed:
            return job in self._jobs

    def drop(self, job: LeasedJob) -> bool:
        """Hold ``job`` no longer; False if somebody else dropped it before."""
        with self._changed:
            if job not in self._jobs:
                return False
            self._jobs.remove(job)
            return True

    def jobs(self) -> list[LeasedJob]:
        """The jobs that are held now."""
        with self._changed:
            return list(self._jobs)

    def close(self, seconds: float) -> list[LeasedJob]:
        """Let no new claim begin, wait up to ``seconds`` for those under way, and drop all jobs."""
        with self._changed:
            self._closed = True
            self._changed.wait_for(lambda: self._claims == 0, seconds)
            jobs, self._jobs = list(self._jobs), set()
            return jobs


class Heartbeat:
    """Extends the leases of all held jobs every third of a lease, so that two beats may fail before one runs out."""

    def __init__(self, queue: Queue, held: Held, lease: float, lost: Callable[[], None]) -> None:
        self._queue = queue
        self._held = held
        self._lease = lease
        self._lost = lost
        self._trouble = Pause(lease / 60, lease / 6)

    def run(self, ended: threading.Event) -> None:
        """Beat until ``ended``."""
        wait = self._lease / 3
        while not ended.wait(wait):
            wait = self.beat()

    def beat(self) -> float:
        """Extend once; return how many seconds to wait for the next beat."""
        jobs = self._held.jobs()
        if jobs:
            try:
                verdicts = self._queue.extend_many(jobs, self._lease)
            except QueueDBError as error:
                wait = self._trouble.next()
                log.warning("extending %d leases failed, next try in %.1f s: %s", len(jobs), wait, error)
                return wait
            except Exception:
                log.exception("extending %d leases failed", len(jobs))
                return self._trouble.next()
            for job, verdict in zip(jobs, verdicts, strict=True):
                # A job that was settled between the look and the beat is no longer held: nothing was lost.
                if not verdict and self._held.drop(job):
                    self._lost()
                    log.warning("lost the lease of %r: its handler still runs, but the result will not count", job)
        self._trouble.reset()
        return self._lease / 3
