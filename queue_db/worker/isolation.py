"""Isolation of last attempts: if the previous attempt of a job was not settled, its last attempt runs alone in its worker.

When a process dies, an attempt is counted for each of its jobs, since any of them may have killed the process. So a job that kills
its process would move other jobs of that process to the dead table. The isolation prevents that: a job whose attempts were not
settled is dead only after it was the only job of its worker.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from queue_db.concurrency.pauses import Pause
from queue_db.errors import QueueDBError, StorageError
from queue_db.leased_job import LeasedJob
from queue_db.model import Verdict
from queue_db.store import history
from queue_db.worker.leases import queue_of

if TYPE_CHECKING:
    from queue_db.worker.run import Run

log = logging.getLogger("queue_db.worker")

# Seconds between two checks whether another job is still in flight.
_CHECK = 0.02


class PoisonIsolation:
    """Runs suspects one after the other, in the fetcher's thread, so that nothing is claimed at the same time."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._stopping = run.stopping

    def suspects(self, last: Sequence[LeasedJob]) -> list[LeasedJob]:
        """The jobs that must run alone. Their attempts are not counted until they begin.

        :param last: jobs of one queue whose last attempts begin; these are not their first attempts.
        """
        try:
            failed = self._run.worker.db.core.read("history.last_failed", history.last_failed, [job.id for job in last])
            suspects = [job for job in last if failed.get(job.id) != job.attempts - 1]
            if suspects:
                queue_of(suspects[0]).adjust_attempts(suspects, by=-1)
        except StorageError as error:
            log.debug("%d last attempts begin beside others: %s", len(last), error)
            return []
        return suspects

    def run(self, suspects: Sequence[LeasedJob], begin: Callable[[LeasedJob], None], drop: Callable[[LeasedJob], None]) -> None:
        """Begin each suspect when no other job is in flight and all results are reported. Return when the last one has ended.

        :param begin: calls the handler, in another thread.
        :param drop: called with each job that does not begin, because its lease was lost or the worker stops.
        """
        waiting = list(suspects)
        for job in suspects:
            log.info("%r: its previous attempt was not settled, so its last one waits until no other job runs", job)
            begins = self._wait_for(waiting) and self._counts(job)
            waiting.remove(job)
            (begin if begins else drop)(job)
        self._wait_for([])

    def _wait_for(self, suspects: Sequence[LeasedJob]) -> bool:
        """Wait until only these jobs are in flight; False: the worker stops."""
        run = self._run
        while not self._stopping.is_set():
            if not run.completer and all(job in suspects for job in run.in_flight.jobs()):
                return True
            run.fetcher.keep_shares()
            self._stopping.wait(_CHECK)
        return False

    def _counts(self, job: LeasedJob) -> bool:
        """Count the attempt that begins; False: the lease is lost, or the worker stops."""
        retry = Pause(*self._run.retry)
        while job in self._run.in_flight:
            try:
                return queue_of(job).adjust_attempts([job], by=1) == [Verdict.APPLIED]
            except QueueDBError as error:
                log.debug("the last attempt of %r cannot be counted yet: %s", job, error)
                if self._stopping.wait(retry.next()):
                    break
        return False
