"""The jobs in flight: their leases are extended, lost leases are found, and progress is written.

While a job waits for a free slot or its handler runs, another process may cancel, replace or rescue the job. The heartbeat would
notice this up to a third of a lease later. So :class:`LeaseCheck` compares the claim tokens of the jobs in flight with the database
once a second, in one statement by primary key. A job that a notification names is checked at once.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import groupby
from typing import Any, Protocol

from queue_db.concurrency.pauses import Pause
from queue_db.core import Core
from queue_db.database.transaction import Run
from queue_db.errors import QueueDBError
from queue_db.leased_job import LeasedJob
from queue_db.model import ProgressReport, Verdict
from queue_db.queue import Queue
from queue_db.store import settle
from queue_db.verbs.progress import report_progress
from queue_db.verbs.running import jobs_in_verbs
from queue_db.worker.logs import Activity

log = logging.getLogger("queue_db.worker")


class InFlight:
    """The jobs in flight. Handlers, the heartbeat, timeouts and the stop remove jobs. The first removal decides the outcome.

    One thread adds jobs, and any thread removes them, each with one atomic method of a dict. So there is no lock.
    """

    def __init__(self, queues: Iterable[str]) -> None:
        # The keys are LeasedJob objects, not ids: after a lost lease one worker may have the same job twice, under two leases.
        #: The jobs of each queue, each with the time when it was added (``time.monotonic``).
        self.by_queue: dict[str, dict[LeasedJob, float]] = {queue: {} for queue in queues}
        # Abandoned jobs, each with the time when it was abandoned. Their handlers use slots until they return.
        self._abandoned: dict[LeasedJob, float] = {}
        self._every = (*self.by_queue.values(), self._abandoned)

    def add(self, queue: str, jobs: Sequence[LeasedJob]) -> None:
        """Add claimed jobs."""
        self.by_queue[queue].update(dict.fromkeys(jobs, time.monotonic()))

    def __contains__(self, job: LeasedJob) -> bool:
        return job in self.by_queue.get(job.queue, ())

    def remove(self, job: LeasedJob) -> bool:
        """Remove the job; False: another thread has removed it."""
        return self.by_queue[job.queue].pop(job, None) is not None

    def abandon(self, job: LeasedJob) -> bool:
        """:meth:`remove` a job whose handler still runs. When the handler returns, :meth:`returned` is called."""
        # Added before the removal. Otherwise the job would stay here for ever if its handler returned in between.
        self._abandoned[job] = time.monotonic()
        if self.remove(job):
            return True
        self._abandoned.pop(job, None)
        return False

    def returned(self, job: LeasedJob) -> None:
        """Note that the handler of an abandoned job has returned, or will not be called."""
        self._abandoned.pop(job, None)

    def stuck(self, longer: float) -> int:
        """How many handlers have not returned although their jobs were abandoned more than ``longer`` seconds ago."""
        before = time.monotonic() - longer
        return sum(1 for since in list(self._abandoned.values()) if since <= before)

    def jobs(self) -> list[LeasedJob]:
        """The jobs in flight, queue by queue."""
        return [job for jobs in list(self.by_queue.values()) for job in list(jobs)]

    def slots_in_use(self) -> int:
        """Slots in use, by jobs in flight and by handlers of abandoned jobs."""
        return sum(map(len, self._every))  # called after each job: it must be fast

    def in_use(self, queue: str) -> int:
        """Slots in use by jobs of one queue."""
        return len(self.by_queue[queue]) + sum(1 for job in list(self._abandoned) if job.queue == queue)

    def __len__(self) -> int:
        return sum(map(len, self.by_queue.values()))


class Holder(Protocol):
    """What holds jobs."""

    def jobs(self) -> list[LeasedJob]:
        """The jobs, queue by queue."""


class Reports(Protocol):
    """What hears of failures."""

    def failed(self, what: str, error: BaseException, wait: float) -> Any:
        """Note that ``what`` failed. The next try is in ``wait`` seconds."""

    def worked(self) -> Any:
        """Note that the database has answered."""


class Heartbeat:
    """Extends the leases of all jobs in flight every third of a lease: two beats may fail before a lease expires.

    A beat waits neither for locked rows nor for verbs that handlers call on their jobs. If the leases of one queue cannot be
    extended, the beat still extends those of the other queues, and the next beat comes sooner.

    :param lost: called with a job in flight whose lease was lost; returns at once.
    :param outage: logs failures.
    """

    def __init__(self, in_flight: Holder, lease: float, lost: Callable[[LeasedJob], None], outage: Reports | None = None) -> None:
        self._outage: Reports = outage or Activity()
        self._in_flight = in_flight
        self._lease = lease
        self._lost = lost
        self._retries: dict[Queue, Pause] = {}

    def beat(self) -> float:
        """Extend the leases once; return how many seconds to wait until the next beat."""
        wait = self._lease / 3
        held = self._in_flight.jobs()
        all_well, extended = True, not held  # if nothing is held, nothing fails
        for queue, group in groupby(held, key=queue_of):
            jobs = list(group)
            retry = self._retries.setdefault(queue, Pause(self._lease / 60, self._lease / 6))
            again = retry.next()
            try:
                waiting = self._extend(queue, jobs)
            except Exception as error:  # noqa: BLE001 - the outage logs it, an unexpected error with its traceback
                self._outage.failed(f"extending the leases of {queue.name!r}", error, again)
                waiting, all_well = len(jobs), False
            extended = extended or waiting < len(jobs)
            if waiting:
                wait = min(wait, again)
            else:
                retry.reset()
        if all_well and extended:  # for jobs in verbs the database was not asked
            self._outage.worked()
        return wait

    def _extend(self, queue: Queue, jobs: list[LeasedJob]) -> int:
        """Extend the leases of one queue; return how many to try again soon: their rows are locked, or verbs run on them."""
        # A verb that runs on a job may wait for a lock in the database. So the next beat extends the lease of this job.
        in_verbs = jobs_in_verbs()
        batch = [job for job in jobs if job not in in_verbs]
        verdicts = queue.extend_unlocked(batch, self._lease)
        waiting = len(jobs) - len(batch) + verdicts.count(None)
        lost = [job for job, verdict in zip(batch, verdicts, strict=True) if verdict is Verdict.LOST]
        in_verbs = jobs_in_verbs() if lost else set()
        for job in lost:
            if job in in_verbs:
                waiting += 1  # a verb that began in between has perhaps ended the lease
            elif not job.settled:
                self._lost(job)
        if waiting:
            log.debug("%d leases of %r are not extended yet: their rows are locked", waiting, queue.name)
        return waiting


def queue_of(job: LeasedJob) -> Queue:
    """The queue whose verbs settle a job of a worker."""
    source: Queue = job.source  # type: ignore[assignment]
    return source


#: Seconds between two checks of the jobs in flight.
CHECK_EVERY = 1.0
#: Seconds between a check that failed and the next one.
CHECK_AGAIN = 0.2

#: Seconds for which a claim or a lease check counts. If both are older, a job does not begin: it waits for the next check.
VALID_FOR = 2.0


class LeaseCheck:
    """Checks whether the jobs in flight of one worker still have their leases.

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
        since = self._in_flight.by_queue[job.queue].get(job)
        if since is None:
            return False
        return not self._enabled or time.monotonic() - max(since, self._checked_at) < VALID_FOR

    def wait_until_valid(self, job: LeasedJob) -> bool:
        """Wait until the job is :meth:`valid`; False: the job is no longer in flight."""
        while job in self._in_flight:
            if self.valid(job):
                return True
            with self._checked:
                self._checked.wait(CHECK_EVERY)
        return False

    def _check(self, jobs: Sequence[LeasedJob]) -> None:
        if not jobs:
            return
        tokens = self._core.run(Run("settle.tokens", write=False, attempts=1), settle.tokens, [job.id for job in jobs])
        changed = [job for job in jobs if tokens.get(job.id) != job.token]
        # A verb that runs or has settled the job may have changed the token itself: then the lease is not lost.
        in_verbs = jobs_in_verbs() if changed else set()
        for job in changed:
            if job not in in_verbs and not job.settled:
                self._lost(job)


#: Seconds between two writes of the progress.
WRITE_EVERY = 1.0


class Progress:
    """The last progress of each job, until it is written.

    Any thread reports progress, and maintenance writes it, each with one atomic method of a dict. So there is no lock.
    """

    def __init__(self, core: Core, in_flight: InFlight) -> None:
        self._core = core
        self._in_flight = in_flight
        self._reports: dict[LeasedJob, ProgressReport] = {}

    def report(self, job: LeasedJob, report: ProgressReport) -> Verdict:
        """Keep the progress of a job until it is written; ``LOST``: the job is no longer in flight."""
        if job not in self._in_flight:
            return Verdict.LOST
        self._reports[job] = report
        return Verdict.APPLIED

    def write(self) -> float:
        """A periodic task: write new progress in one statement. If the statement fails, the next run tries again."""
        fresh = {job: self._reports.pop(job) for job in list(self._reports)}
        fresh = {job: report for job, report in fresh.items() if job in self._in_flight}
        if fresh:
            try:
                report_progress(self._core, fresh, attempts=1)
                log.debug("wrote the progress of %d jobs", len(fresh))
            except QueueDBError as error:
                log.debug("the progress of %d jobs could not be written yet: %s", len(fresh), error)
                for job, report in fresh.items():
                    self._reports.setdefault(job, report)
        return WRITE_EVERY
