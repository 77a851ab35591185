"""Handlers of many jobs: jobs of one kind are collected in lists, and the handler is called once for each list.

A list has its jobs' slots, and uses one of their threads. What becomes of a job is its own: its lease, its result, its events.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import Future, wait
from typing import Any, NamedTuple

from queue_db import arguments
from queue_db.errors import HandlerResultError
from queue_db.leased_job import LeasedJob
from queue_db.outcomes import Cancel, Dead, Retry, Snooze, Suspended, checked
from queue_db.worker.handlers import Handler, HandlerSpec
from queue_db.worker.leases import InFlight, LeaseCheck
from queue_db.worker.logs import current
from queue_db.worker.threads import Assignment

ListHandler = Callable[[Any], Any]
"""A function of a list of jobs. A HandlerSpec has it as a Handler."""


class Calls(NamedTuple):
    """What lists need of the handler calls of their run."""

    in_flight: InFlight
    lease_check: LeaseCheck
    #: Notes that a handler is about to be called with these jobs; returns its function.
    begun: Callable[[Sequence[LeasedJob], HandlerSpec], ListHandler]
    #: Reports the outcome of a job, and for how many seconds the handler ran; None: it was not called.
    ended: Callable[[LeasedJob, HandlerSpec, object, float | None], None]
    #: Frees the slot of a job without a lease.
    returned: Callable[[LeasedJob], None]
    #: Awaits the coroutine of a handler within its timeout.
    awaited: Callable[[HandlerSpec, Handler, LeasedJob], Coroutine[Any, Any, object]]


class ListKey(NamedTuple):
    """What the jobs of a list have in common."""

    spec: HandlerSpec
    #: The handler may be of all kinds: an error about one kind must not fail jobs of another.
    kind: str
    #: How many jobs make the list full.
    most: int


class JobList:
    """The jobs of one call."""

    __slots__ = ("begun", "full", "jobs", "key")

    def __init__(self, key: ListKey) -> None:
        self.jobs: list[LeasedJob] = []
        self.key = key
        #: Done when the list need not wait for more jobs.
        self.full: Future[None] = Future()
        self.begun = False


def most_together(job: LeasedJob, spec: HandlerSpec) -> int:
    """How many jobs the list of this job may have, for a handler of many jobs.

    One bad job may fail all jobs of its list. So each further attempt is in a list of half the length, and the last one is alone:
    the bad job dies, and the others do not.
    """
    most, attempt = spec.many or 1, job.attempts
    if attempt <= 1:
        return most
    return 1 if attempt >= job.max_attempts else max(1, most >> (attempt - 1))


class Lists:
    """The lists of one run.

    The first job of a list stands for it: a thread or the event loop begins this job, waits until the list is full, but at most for
    the handler's ``linger``, and calls the handler.
    """

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._lock = threading.Lock()
        # The lists that are not full and wait.
        self._open: dict[ListKey, JobList] = {}
        # The list of each job, until its call ends.
        self._of: dict[LeasedJob, JobList] = {}

    # --- the fetcher, and the end of the run --------------------------------------------------------------------------

    def join(self, assignments: Iterable[Assignment]) -> list[Assignment]:
        """Put the jobs of handlers of many jobs into lists; return the first jobs of new lists, and the jobs of other handlers."""
        begin: list[Assignment] = []
        with self._lock:
            for job, spec in assignments:
                if spec.many is None:
                    begin.append((job, spec))
                    continue
                key = ListKey(spec, job.kind, most_together(job, spec))
                jobs = self._open.get(key)
                if jobs is None:
                    jobs = self._open[key] = JobList(key)
                    begin.append((job, spec))
                jobs.jobs.append(job)
                self._of[job] = jobs
                if len(jobs.jobs) >= key.most:
                    self._close(jobs)
        return begin

    def unstarted(self) -> list[LeasedJob]:
        """Remove and return the jobs of the lists whose handlers have not been called."""
        with self._lock:
            lists = {id(jobs): jobs for jobs in self._of.values() if not jobs.begun}
            left = [job for jobs in lists.values() for job in jobs.jobs]
            for jobs in lists.values():
                self._close(jobs)
            for job in left:
                del self._of[job]
        return left

    def to_cancel(self, job: LeasedJob) -> LeasedJob | None:
        """The job whose call is to be cancelled when ``job`` is abandoned; None: other jobs of the list still need the call.

        No job joins the list of a call that is to be cancelled.
        """
        with self._lock:
            jobs = self._of.get(job)
            if jobs is None:
                return job
            if any(other in self._calls.in_flight for other in jobs.jobs):
                return None
            self._close(jobs)
            return jobs.jobs[0]

    def _close(self, jobs: JobList) -> None:
        """Let a list take no more jobs, and end its wait. The caller holds the lock."""
        if self._open.get(jobs.key) is jobs:
            del self._open[jobs.key]
        if not jobs.full.done():
            jobs.full.set_result(None)

    # --- the calls ------------------------------------------------------------------------------------------------------

    def call(self, first: LeasedJob, spec: HandlerSpec) -> None:
        """Call the handler of a list, in a thread of the handlers."""
        jobs: list[LeasedJob] = []
        given: list[LeasedJob] = []
        began: float | None = None
        outcome: object
        try:
            if (waiting := self._of.get(first)) is not None:
                wait([waiting.full], spec.linger)
            jobs = self._closed(first)
            jobs = self._ready(spec, jobs, [job for job in jobs if self._calls.lease_check.wait_until_valid(job)])
            if not jobs:
                return
            function = self._calls.begun(jobs, spec)
            given += jobs
            began = time.monotonic()
            outcome = function(given)
        except BaseException as error:  # noqa: BLE001 - whatever a handler raises fails its jobs only
            outcome = error
        self._end(_in_order(jobs, given), spec, outcome, began)

    async def call_on_loop(self, first: LeasedJob, spec: HandlerSpec) -> None:
        """Call the handler of a list, on the event loop."""
        jobs: list[LeasedJob] = []
        given: list[LeasedJob] = []
        began: float | None = None
        outcome: object
        try:
            if (waiting := self._of.get(first)) is not None:
                await asyncio.wait([asyncio.wrap_future(waiting.full)], timeout=spec.linger)
            jobs, check = self._closed(first), self._calls.lease_check
            leased = [job for job in jobs if check.valid(job) or await asyncio.to_thread(check.wait_until_valid, job)]
            jobs = self._ready(spec, jobs, leased)
            if not jobs:
                return
            function = self._calls.begun(jobs, spec)

            async def call(_: LeasedJob) -> object:
                current.set(None)  # a line of the log is about no single job
                return await function(given)

            given += jobs
            began = time.monotonic()
            outcome = await self._calls.awaited(spec, call, first)
        except BaseException as error:  # noqa: BLE001 - also CancelledError, after all jobs were abandoned
            outcome = error
        self._end(_in_order(jobs or self._closed(first), given), spec, outcome, began)

    def unbegun(self, first: LeasedJob, spec: HandlerSpec, outcome: object) -> None:
        """Report an outcome of the jobs of a list whose call will not begin."""
        self._end(self._closed(first), spec, outcome, None)

    def _closed(self, first: LeasedJob) -> list[LeasedJob]:
        """Let the list of this job take no more jobs; return its jobs."""
        with self._lock:
            jobs = self._of.get(first)
            if jobs is None:
                return []  # taken away by the end of the run
            self._close(jobs)
            jobs.begun = True
            return [*jobs.jobs]

    def _ready(self, spec: HandlerSpec, jobs: Sequence[LeasedJob], leased: Sequence[LeasedJob]) -> list[LeasedJob]:
        """Free the slots of the jobs without a lease, end the jobs that cannot be read, and return the others."""
        ready = []
        taken = set(leased)
        for job in jobs:
            if job not in taken:
                self._forget([job])
                self._calls.returned(job)
                continue
            try:
                spec.read(job)
                _ = job.payload
            except Exception as error:  # noqa: BLE001 - of a schema or a codec: it fails this job only
                self._forget([job])
                self._calls.ended(job, spec, error, None)
            else:
                ready.append(job)
        return ready

    def _end(self, jobs: Sequence[LeasedJob], spec: HandlerSpec, outcome: object, began: float | None) -> None:
        seconds = None if began is None else time.monotonic() - began
        self._forget(jobs)
        if isinstance(outcome, Suspended) and any(job.settled and job.id == outcome.job_id for job in jobs):
            # A verb of one job has ended the call, so the others have not had their turns: their attempts do not count.
            outcome = [outcome if job.settled else Snooze(0.0) for job in jobs]
        for job, one in zip(jobs, outcomes_of(jobs, outcome), strict=True):
            self._calls.ended(job, spec, one, seconds)

    def _forget(self, jobs: Iterable[LeasedJob]) -> None:
        with self._lock:
            for job in jobs:
                self._of.pop(job, None)


def _in_order(jobs: list[LeasedJob], given: list[LeasedJob]) -> list[LeasedJob]:
    """The jobs in the order of the list that the handler got, which it may have sorted. If it has taken jobs away, all of them."""
    return given if len(given) == len(jobs) and set(given) == set(jobs) else jobs


def outcomes_of(jobs: Sequence[LeasedJob], returned: object) -> list[object]:
    """The outcome of each job, from what the handler of the list returned or raised.

    A wrong return value is an error of all jobs. An exception in a list or mapping fails its job.
    """
    problem = None
    match returned:
        case None | Snooze() | Retry() | Cancel() | Dead() | BaseException():
            return [returned] * len(jobs)
        case Mapping():
            known = set(jobs)
            if strange := [key for key in returned if key not in known]:
                problem = f"a mapping with {arguments.shown(strange[0])}: its keys must be jobs of the list"
            each = [returned.get(job) for job in jobs]
        case [*each]:
            if len(each) != len(jobs):
                problem = f"{len(each)} outcomes for {len(jobs)} jobs: return one for each"
        case _:
            problem = (
                f"{arguments.shown(returned)} for {len(jobs)} jobs: return nothing, one of Snooze, Retry, Cancel and Dead for "
            )
            problem += "all of them, a list with an outcome for each, or a mapping from jobs to outcomes"
    if problem is not None:
        return [HandlerResultError(f"the handler returned {problem}")] * len(jobs)
    return [outcome_of(one) for one in each]


def outcome_of(outcome: object) -> object:
    """The outcome of one job, from what its handler returned or raised; a wrong return value is an error."""
    if isinstance(outcome, BaseException):
        return outcome
    try:
        return checked(outcome)
    except HandlerResultError as error:
        return error


def of_one(spec: HandlerSpec, function: ListHandler) -> Handler:
    """A function of one job that calls ``function``, the handler of a list, with a list of this job."""

    def outcome(job: LeasedJob, returned: object) -> object:
        (one,) = outcomes_of([job], returned)
        if isinstance(one, BaseException):
            raise one
        return one

    def call(job: LeasedJob) -> object:
        return outcome(job, function([job]))

    async def call_on_loop(job: LeasedJob) -> object:
        return outcome(job, await function([job]))

    return call_on_loop if spec.asynchronous else call
