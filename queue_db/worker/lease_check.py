"""Finds jobs in flight whose leases were lost before their heartbeat does: cancelled, replaced, or returned by others.

Without this check a job that waits for a free slot would begin, and a handler that runs would learn of the loss at the next
heartbeat, a third of a lease later. So the claim tokens of the jobs in flight are compared with the database once a second, in one
statement by primary key, and at once when a notification names a job.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Sequence

from queue_db.core import Core
from queue_db.database.database import Run
from queue_db.errors import QueueDBError
from queue_db.leased_job import LeasedJob
from queue_db.store import settle
from queue_db.worker.in_flight import InFlight

log = logging.getLogger("queue_db.worker")

#: Seconds between two checks of the jobs in flight, and after a check that failed.
CHECK_EVERY = 1.0
CHECK_AGAIN = 0.2

#: A job whose lease was last checked longer ago than this, seconds, does not begin: it waits for a check.
VALID_FOR = 2.0


class LeaseCheck:
    """The lease checks of one worker.

    :param lost: called with a job in flight whose lease is lost; returns at once.
    :param enabled: False for jobs that are deleted when they are claimed: no other worker can have them.
    """

    def __init__(self, core: Core, in_flight: InFlight, lost: Callable[[LeasedJob], None], *, enabled: bool) -> None:
        self._enabled = enabled
        self._core = core
        self._in_flight = in_flight
        self._lost = lost
        self._checked_at = 0.0
        self._checked = threading.Condition()

    def check(self) -> float:
        """Check all jobs in flight; return how many seconds to wait until the next check."""
        began = time.monotonic()
        try:
            self._check(self._in_flight.jobs())
        except QueueDBError as error:
            log.debug("could not check the leases of the jobs in flight: %s", error)
            return CHECK_AGAIN
        with self._checked:
            self._checked_at = began
            self._checked.notify_all()
        return CHECK_EVERY

    def check_cancelled(self, ids: Collection[int]) -> None:
        """Check the jobs that a notification has named."""
        if not self._enabled:
            return
        jobs = [job for job in self._in_flight.jobs() if job.id in ids]
        try:
            self._check(jobs)
        except QueueDBError as error:
            log.debug("could not check the leases of cancelled jobs, the next check finds them: %s", error)

    def valid(self, job: LeasedJob) -> bool:
        """Whether the job is in flight and was claimed or checked within :data:`VALID_FOR`."""
        since = self._in_flight.since(job)
        if since is None:
            return False
        return not self._enabled or time.monotonic() - max(since, self._checked_at) < VALID_FOR

    def wait_until_valid(self, job: LeasedJob) -> bool:
        """Wait until the job is :meth:`valid`; False: it is no longer in flight."""
        while job in self._in_flight:
            if self.valid(job):
                return True
            with self._checked:
                self._checked.wait(CHECK_EVERY)
        return False

    def _check(self, jobs: Sequence[LeasedJob]) -> None:
        if not jobs:
            return
        tokens = self._core.run(Run(write=False, attempts=1), settle.tokens, [job.id for job in jobs])
        for job in jobs:
            # A verb that runs on the job decides its end itself; one that has returned has ended the lease.
            if tokens.get(job.id) != job.token and not job.verbs and not job.settled:
                self._lost(job)
