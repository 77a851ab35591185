"""The progress that handlers report: kept in memory and written once a second for all jobs together."""

from __future__ import annotations

import logging

from queue_db.core import Core
from queue_db.errors import QueueDBError
from queue_db.leased_job import LeasedJob
from queue_db.model import ProgressReport, Verdict
from queue_db.verbs import progress
from queue_db.worker.in_flight import InFlight

log = logging.getLogger("queue_db.worker")

#: Seconds between two statements.
WRITE_EVERY = 1.0


class Progress:
    """The last progress of each job, until it is written.

    Any thread reports; one, maintenance, writes. Each relies on one atomic method of a dict, so there is no lock.
    """

    def __init__(self, core: Core, in_flight: InFlight) -> None:
        self._core = core
        self._in_flight = in_flight
        self._reports: dict[LeasedJob, ProgressReport] = {}

    def report(self, job: LeasedJob, report: ProgressReport) -> Verdict:
        """Keep the progress of a job, unless it is no longer in flight."""
        if job not in self._in_flight:
            return Verdict.LOST
        self._reports[job] = report
        return Verdict.APPLIED

    def write(self) -> float:
        """A periodic task: write what is new, in one statement. What cannot be written now is tried again the next time."""
        fresh = {job: self._reports.pop(job) for job in list(self._reports)}
        fresh = {job: report for job, report in fresh.items() if job in self._in_flight}
        if fresh:
            try:
                progress.write(self._core, fresh, attempts=1)
                log.debug("wrote the progress of %d jobs", len(fresh))
            except QueueDBError as error:
                log.debug("the progress of %d jobs could not be written yet: %s", len(fresh), error)
                for job, report in fresh.items():
                    self._reports.setdefault(job, report)
        return WRITE_EVERY
