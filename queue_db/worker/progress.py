"""What the handlers of a worker say about how far they are: kept here, and written now and then for all of them at once."""

from __future__ import annotations

import logging

from queue_db.db import QueueDB
from queue_db.errors import QueueDBError
from queue_db.leased_job import LeasedJob
from queue_db.model import ProgressReport, Verdict
from queue_db.verbs import progress
from queue_db.worker.in_flight import InFlight

log = logging.getLogger("queue_db.worker")

#: Seconds between two statements.
TELL_EVERY = 1.0


class Progress:
    """What was said last of each job, until it is written.

    Any thread says; one, the maintenance thread, tells. The methods of a dict are atomic, which is all that is needed.
    """

    def __init__(self, db: QueueDB, in_flight: InFlight) -> None:
        self._db = db
        self._in_flight = in_flight
        self._said: dict[LeasedJob, ProgressReport] = {}

    def say(self, job: LeasedJob, said: ProgressReport) -> Verdict:
        """Keep it, unless the job is not this worker's any more."""
        if job not in self._in_flight:
            return Verdict.LOST
        self._said[job] = said
        return Verdict.APPLIED

    def tell(self) -> float:
        """A periodic task: write what is new, in one statement. What the database does not take now is written the next time."""
        fresh = {job: self._said.pop(job) for job in list(self._said)}
        fresh = {job: said for job, said in fresh.items() if job in self._in_flight}
        if fresh:
            try:
                progress.write(self._db.core, fresh, attempts=1)
                log.debug("told the progress of %d jobs", len(fresh))
            except QueueDBError as error:
                log.debug("the progress of %d jobs could not be told yet: %s", len(fresh), error)
                for job, said in fresh.items():
                    self._said.setdefault(job, said)
        return TELL_EVERY
