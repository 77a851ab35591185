"""Isolation of last attempts: a job whose previous attempt was not settled runs its last one alone in its worker.

When a process dies, an attempt of each of its jobs is counted, since any of them may have killed it. A job that kills its process
would so send others to the dead table that were only claimed together with it. Its last attempt alone tells them apart: no job dies
for want of a verdict before it was the only one in its worker's hands.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from threading import Event

from queue_db.concurrency.pauses import Pause
from queue_db.core import Core
from queue_db.errors import QueueDBError, StorageError
from queue_db.leased_job import LeasedJob
from queue_db.model import Verdict
from queue_db.queue import Queue
from queue_db.store import history
from queue_db.worker.leases import InFlight

log = logging.getLogger("queue_db.worker")

# Seconds between two checks whether another job is still in flight.
_CHECK = 0.02


class PoisonIsolation:
    """Runs suspects one after the other, from the fetcher's thread: nothing is claimed meanwhile.

    :param busy: whether a result is not reported yet.
    :param stopping: set when no more jobs may begin.
    :param meanwhile: called again and again during the wait.
    :param retry: seconds between tries while the database does not answer: first, longest.
    """

    def __init__(
        self,
        core: Core,
        in_flight: InFlight,
        *,
        busy: Callable[[], bool],
        stopping: Event,
        meanwhile: Callable[[], object],
        retry: tuple[float, float],
    ) -> None:
        self._core = core
        self._in_flight = in_flight
        self._busy = busy
        self._stopping = stopping
        self._meanwhile = meanwhile
        self._retry = retry

    def suspects(self, last: Sequence[LeasedJob]) -> list[LeasedJob]:
        """Those of these jobs, of one queue, that must run alone. Their attempts are not counted until they begin.

        :param last: begin their last attempts, which are not their first ones.
        """
        try:
            failed = self._core.read(history.last_failed, [job.id for job in last])
            found = [job for job in last if failed.get(job.id) != job.attempts - 1]
            if not found:
                return []
            _queue_of(found[0]).recount(found, by=-1)
        except StorageError as error:
            log.debug("%d last attempts begin beside others: %s", len(last), error)
            return []
        return found

    def run(self, suspects: Sequence[LeasedJob], begin: Callable[[LeasedJob], None], drop: Callable[[LeasedJob], None]) -> None:
        """Begin each when no other job is in flight and all results are reported; return when the last one has ended.

        :param begin: calls the handler, in another thread.
        :param drop: gets those that do not begin: their leases were lost, or the worker stops.
        """
        waiting = list(suspects)
        for job in suspects:
            log.info("%r: its previous attempt was not settled, so its last one waits until no other job runs", job)
            began = self._wait_for(waiting) and self._counts(job)
            waiting.remove(job)
            (begin if began else drop)(job)
        self._wait_for([])

    def _wait_for(self, suspects: Sequence[LeasedJob]) -> bool:
        """Wait until only these jobs are in flight; False: the worker stops."""
        while not self._stopping.is_set():
            if not self._busy() and all(job in suspects for job in self._in_flight.jobs()):
                return True
            self._meanwhile()
            self._stopping.wait(_CHECK)
        return False

    def _counts(self, job: LeasedJob) -> bool:
        """Count the attempt that begins; False: the lease is lost, or the worker stops."""
        retry = Pause(*self._retry)
        while job in self._in_flight:
            try:
                return _queue_of(job).recount([job], by=1) == [Verdict.APPLIED]
            except QueueDBError as error:
                log.debug("the last attempt of %r cannot be counted yet: %s", job, error)
                if self._stopping.wait(retry.next()):
                    break
        return False


def _queue_of(job: LeasedJob) -> Queue:
    source: Queue = job.source  # type: ignore[assignment]
    return source
