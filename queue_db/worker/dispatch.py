"""What happens to claimed jobs: each gets its handler and begins, runs alone, or is settled without a call."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from queue_db.errors import StorageError, UnknownKindError
from queue_db.leased_job import LeasedJob
from queue_db.model import DeathReason
from queue_db.outcomes import Dead
from queue_db.worker.alone import Alone
from queue_db.worker.execution import Execution
from queue_db.worker.executors import Assignment
from queue_db.worker.in_flight import InFlight
from queue_db.worker.logs import about
from queue_db.worker.progress import Progress
from queue_db.worker.results import Results
from queue_db.worker.settling import Unknown

if TYPE_CHECKING:
    from queue_db.worker.worker import Worker

log = logging.getLogger("queue_db.worker")

# The most kinds without handlers that are logged by name.
_MOST_KINDS = 1000


class Dispatch:
    """Takes the jobs that one run claims, in the claimer's thread.

    :param left: set when the run ends without waiting for the claimer.
    """

    def __init__(
        self,
        worker: Worker,
        in_flight: InFlight,
        results: Results,
        execution: Execution,
        progress: Progress,
        alone: Alone,
        left: threading.Event,
    ) -> None:
        self._worker = worker
        self._options = worker.options
        self._in_flight = in_flight
        self._results = results
        self._execution = execution
        self._progress = progress
        self._alone = alone
        self._left = left
        self._unknown: set[str] = set()

    def take(self, queue: str, jobs: Sequence[LeasedJob]) -> None:
        """Begin these jobs of a queue."""
        self._in_flight.add(queue, jobs)
        if self._left.is_set():
            # The claim took longer than the stop waited for it.
            self._results.release([job for job in jobs if self._in_flight.remove(job)])
            return
        assignments = [one for job in jobs if (one := self._assignment(job)) is not None]
        suspects = [] if self._options.at_most_once else self._alone.suspects([job for job, _ in assignments])
        self._execution.begin([one for one in assignments if one[0] not in suspects])
        if suspects:
            handlings = dict(assignments)
            self._alone.run(suspects, lambda job: self._execution.begin([(job, handlings[job])]), self._drop_suspect)

    def _assignment(self, job: LeasedJob) -> Assignment | None:
        """The job and its handler; None: it is settled without a call."""
        if not self._options.at_most_once:
            job.report_progress_to(self._progress.report)
        try:
            handling = self._worker.handlers.of(job)
        except UnknownKindError as error:
            self._settle_unknown(job, error)
            return None
        if handling.exhausted(job):
            reason = f"no verdict after {handling.max_attempts} attempts: each worker vanished or overran its lease"
            reason += f"; last error: {job.last_error}" if job.last_error else ""
            self._execution.finish(job, handling, Dead(reason), reason=DeathReason.EXHAUSTED)
            return None
        return job, handling

    def _settle_unknown(self, job: LeasedJob, error: UnknownKindError) -> None:
        options = self._options
        if options.at_most_once or options.unknown == "dead":
            self._execution.finish(job, None, Dead(f"parked: {error}"), reason=DeathReason.UNKNOWN_KIND)
            return
        if job.kind not in self._unknown and len(self._unknown) < _MOST_KINDS:
            self._unknown.add(job.kind)
            message = "%s; its jobs wait for a worker that has one, and are dead after %g s"
            log.warning(message, error, options.unknown_grace, extra=about(job))
        self._execution.finish(job, None, Unknown(error, options.unknown_grace))

    def _drop_suspect(self, job: LeasedJob) -> None:
        """Release a job that waited to run alone and does not begin: its lease is lost, or the worker stops."""
        if not self._in_flight.remove(job):
            self._execution.returned(job)
            return
        # The release takes an attempt off, and this one has not been counted.
        with suppress(StorageError):
            self._worker.db.queue(job.queue).recount([job], by=1)
        self._results.release([job])
