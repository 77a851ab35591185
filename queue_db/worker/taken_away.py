"""Finds out early which jobs in hand are no longer this worker's: cancelled, replaced, or given back by others.

Without this a job that waits here for a free slot would begin, and a handler that runs would hear of it at the next heartbeat, a
third of a lease later. So the claim tokens of the jobs in hand are compared with the database once a second, in one statement by
primary key, and at once where a notification names a job.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Sequence
from functools import partial

from queue_db.db import QueueDB
from queue_db.errors import QueueDBError
from queue_db.leased_job import LeasedJob
from queue_db.store import settle
from queue_db.worker.in_flight import InFlight

log = logging.getLogger("queue_db.worker")

#: Seconds between two looks at the jobs in hand, and after one that failed.
LOOK_EVERY = 1.0
LOOK_AGAIN = 0.2

#: A job does not begin if it was last known to be this worker's longer ago than this, seconds: it waits for a look.
KNOWN_FOR = 2.0


class TakenAway:
    """The looks of one worker.

    :param lost: called with a held job that is not this worker's any more; returns at once.
    :param looks: whether there is anything to see: jobs that are deleted when they are claimed belong to nobody else.
    """

    def __init__(self, db: QueueDB, in_flight: InFlight, lost: Callable[[LeasedJob], None], *, looks: bool) -> None:
        self._looks = looks
        self._db = db
        self._in_flight = in_flight
        self._lost = lost
        self._looked_at = 0.0
        self._looked = threading.Condition()

    def look(self) -> float:
        """Look at all jobs in hand; return how many seconds to wait for the next look."""
        began = time.monotonic()
        try:
            self._check(self._in_flight.jobs())
        except QueueDBError as error:
            log.debug("could not look whether the jobs in hand are still there: %s", error)
            return LOOK_AGAIN
        with self._looked:
            self._looked_at = began
            self._looked.notify_all()
        return LOOK_EVERY

    def heard(self, ids: Collection[int]) -> None:
        """Look at these jobs, which were cancelled somewhere."""
        if not self._looks:
            return
        jobs = [job for job in self._in_flight.jobs() if job.id in ids]
        try:
            self._check(jobs)
        except QueueDBError as error:
            log.debug("could not look at cancelled jobs, the next look finds them: %s", error)

    def known(self, job: LeasedJob) -> bool:
        """Whether a job that is held was known to be this worker's a moment ago."""
        since = self._in_flight.since(job)
        if since is None:
            return False
        return not self._looks or time.monotonic() - max(since, self._looked_at) < KNOWN_FOR

    def wait_for(self, job: LeasedJob) -> bool:
        """Wait until the job is :meth:`known` to be this worker's; False: it is not held any more."""
        while job in self._in_flight:
            if self.known(job):
                return True
            with self._looked:
                self._looked.wait(LOOK_EVERY)
        return False

    def _check(self, jobs: Sequence[LeasedJob]) -> None:
        if not jobs:
            return
        work = partial(settle.tokens, store=self._db.store, ids=[job.id for job in jobs])
        tokens = self._db.database.run(work, name="tokens", write=False, attempts=1)
        for job in jobs:
            # While a verb runs on the job it says itself how it ends; one that has run has ended the lease.
            if tokens.get(job.id) == job.token or not job.lock.acquire(blocking=False):
                continue
            try:
                if not job.settled:
                    self._lost(job)
            finally:
                job.lock.release()
