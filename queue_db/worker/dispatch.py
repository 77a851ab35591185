"""Begins claimed jobs, in the fetcher's thread. Jobs without handlers are settled at once, and some last attempts run alone.

When a process dies, an attempt is counted for each of its jobs, since any of them may have killed the process. So a job that kills
its process would move other jobs of that process to the dead table. The isolation of last attempts prevents that: if the previous
attempt of a job was not settled, the job's last attempt runs as the only job of its worker.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from queue_db.concurrency.pauses import Pause
from queue_db.errors import QueueDBError, StorageError, UnknownKindError
from queue_db.leased_job import LeasedJob, hand_to_worker, row_of
from queue_db.model import DeathReason, Verdict
from queue_db.outcomes import Dead
from queue_db.store import history
from queue_db.worker.leases import queue_of
from queue_db.worker.threads import Assignment

if TYPE_CHECKING:
    from queue_db.worker.handlers import HandlerSpec
    from queue_db.worker.run import Run

log = logging.getLogger("queue_db.worker")

# Seconds between two checks whether another job is still in flight.
_CHECK = 0.02


class Dispatch:
    """Begins the jobs that a run has claimed, or settles them if they cannot begin."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._options = run.worker.options
        self._at_most_once = self._options.at_most_once
        self._lease = round(self._options.lease * 1_000_000)
        self._specs = run.worker.handlers.by_kind
        self._in_flight = run.in_flight
        self._execution = run.execution
        # With at_most_once a claimed job has no row any more, so its progress cannot be written.
        self._report = None if self._at_most_once else run.progress.report

    def take(self, queue: str, jobs: Sequence[LeasedJob]) -> None:
        """Begin these claimed jobs of a queue, or settle those that cannot begin."""
        hand_to_worker(jobs, self._lease, self._report)
        self._in_flight.add(queue, jobs)
        if self._run.left.is_set():
            self._run.results.release([job for job in jobs if self._in_flight.remove(job)])
            return
        assignments: list[Assignment] = []
        last: list[LeasedJob] = []
        for job in jobs:
            row = row_of(job)
            spec = self._specs.get(row.kind) or self._specs.get(None)
            if spec is None:
                self._execution.finish(job, None, UnknownKindError(row.kind, self._run.worker.handlers.kinds()))
                continue
            if spec.max_attempts is not None:
                job.limit_attempts(spec.max_attempts)
                if row.attempts > spec.max_attempts:
                    self._bury(job, spec)
                    continue
            assignments.append((job, spec))
            if 1 < row.attempts >= (spec.max_attempts or row.max_attempts):
                last.append(job)
        if last and not self._at_most_once:
            self._begin_last(assignments, last)
        elif assignments:
            self._execution.begin(assignments)

    def _bury(self, job: LeasedJob, spec: HandlerSpec) -> None:
        """Bury a job whose attempts exceed the ``max_attempts`` of its handler."""
        reason = f"no verdict after {spec.max_attempts} attempts: each worker vanished or overran its lease"
        reason += f"; last error: {job.last_error}" if job.last_error else ""
        self._execution.finish(job, spec, Dead(reason), reason=DeathReason.EXHAUSTED)

    # --- last attempts ----------------------------------------------------------------------------------------------

    def _begin_last(self, assignments: Sequence[Assignment], last: Sequence[LeasedJob]) -> None:
        """Begin the jobs of ``assignments``.

        Jobs of ``last`` whose previous attempt was not settled may have killed their process. They begin after the others, each
        alone.

        :param last: jobs of one queue that begin their last attempt, and not their first.
        """
        suspects = self._suspects(last)
        self._execution.begin([assignment for assignment in assignments if assignment[0] not in suspects])
        waiting = dict(assignment for assignment in assignments if assignment[0] in suspects)
        for job in suspects:
            log.info("%r: its previous attempt was not settled, so its last one waits until no other job runs", job)
            begins = self._wait_until_alone(waiting) and self._count(job)
            spec = waiting.pop(job)
            if begins:
                self._execution.begin([(job, spec)])
            else:
                self._drop(job)
        if suspects:
            self._wait_until_alone(waiting)  # claim nothing until the last suspect has ended

    def _suspects(self, last: Sequence[LeasedJob]) -> list[LeasedJob]:
        """Find the jobs that must run alone, because their previous attempts were not settled.

        The current attempts of these jobs are subtracted here, and counted again when the jobs begin.
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

    def _wait_until_alone(self, waiting: Collection[LeasedJob]) -> bool:
        """Wait until only these jobs are in flight and all results are reported; False: the worker stops."""
        run = self._run
        while not run.stopping.is_set():
            if not run.completer and all(job in waiting for job in self._in_flight.jobs()):
                return True
            run.fetcher.keep_shares()
            run.stopping.wait(_CHECK)
        return False

    def _count(self, job: LeasedJob) -> bool:
        """Count the attempt that begins; False: the lease is lost, or the worker stops."""
        retry = Pause(*self._run.retry)
        while job in self._in_flight:
            try:
                return queue_of(job).adjust_attempts([job], by=1) == [Verdict.APPLIED]
            except QueueDBError as error:
                log.debug("the last attempt of %r cannot be counted yet: %s", job, error)
                if self._run.stopping.wait(retry.next()):
                    break
        return False

    def _drop(self, job: LeasedJob) -> None:
        """Release a job that waited to run alone and does not begin: its lease is lost, or the worker stops."""
        if not self._in_flight.remove(job):
            self._execution.returned(job)
            return
        # The release subtracts an attempt, but this attempt has not been counted yet: count it first.
        with suppress(StorageError):
            queue_of(job).adjust_attempts([job], by=1)
        self._run.results.release([job])
