"""Events: what happens to the jobs of a worker. Each event is a frozen object that is counted, logged and sent to the hooks."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from enum import StrEnum
from functools import wraps
from typing import TYPE_CHECKING, Any, Literal

from queue_db import arguments
from queue_db.errors import LeaseLostError, StorageError, text_of
from queue_db.leased_job import LeasedJob
from queue_db.model import DeathReason, Verdict
from queue_db.notifications.deaths import Death
from queue_db.outcomes import Cancel, Dead, Retry, Snooze
from queue_db.worker.completer import JobResult, LeaseLost, LostResult, Unknown, is_last, log_open, prove, reason_of
from queue_db.worker.interruptions import Interrupted, interrupt
from queue_db.worker.logs import about

if TYPE_CHECKING:
    from queue_db.worker.run import Run

log = logging.getLogger("queue_db.worker")


class EventType(StrEnum):
    """The type of an event."""

    STARTED = "started"  #: the handler is about to be called
    COMPLETED = "completed"
    FAILED = "failed"  #: the attempt failed, and there will be another one
    SNOOZED = "snoozed"  #: the handler snoozed the job, or its kind has no handler
    CANCELLED = "cancelled"  #: the handler cancelled the job
    RELEASED = "released"  #: the handler or the stop of the worker returned the job to its queue
    DEAD = "dead"  #: the job is dead; ``reason`` has the cause
    LOST = "lost"  #: the lease was lost, or the result could not be reported: another worker gets the job


EventName = Literal["started", "completed", "failed", "snoozed", "cancelled", "released", "dead", "lost"]
"""The value of an :class:`EventType`."""


@dataclass(frozen=True, slots=True)
class JobEvent:
    """An event of a job. Each attempt has at most one event at its start and exactly one at its end."""

    type: EventType
    job: LeasedJob
    #: What the handler returned or raised; None for ``STARTED``.
    outcome: Any = None
    #: Seconds for which the handler ran; None for ``STARTED``, or if the handler was not called.
    seconds: float | None = None
    #: Why the job is dead; None: it is not dead.
    reason: DeathReason | None = None


Hook = Callable[[JobEvent], None]
"""Called with each event, in the worker's threads: it must return soon. What it raises is logged and changes nothing."""

EndHook = Callable[[], Any]
"""Called when a worker starts or stops: a plain function, or an ``async def``, which runs on the event loop of the handlers."""


class EndHooks:
    """What is called at the two ends of each run of a worker."""

    def __init__(self) -> None:
        self.start: list[EndHook] = []
        self.stop: list[EndHook] = []

    @property
    def need_loop(self) -> bool:
        """Whether one of them is an ``async def``."""
        return any(map(arguments.asynchronous, [*self.start, *self.stop]))


def only(types: Sequence[str], hook: Hook) -> Hook:
    """A hook that calls ``hook`` with the events of these types.

    :raises ArgumentError: there is no such type.
    """
    wanted = set()
    for one in types:
        if one not in set(EventType):
            raise arguments.wrong("event", one, f": must be one of {', '.join(EventType)}")
        wanted.add(EventType(one))

    @wraps(hook)
    def filtered(event: JobEvent) -> None:
        return hook(event) if event.type in wanted else None

    return filtered


@dataclass(slots=True)
class Summary:
    """The outcomes of the jobs that a worker has claimed. Each job is counted once."""

    completed: int = 0
    failed: int = 0  #: the attempt failed, and there will be another one
    snoozed: int = 0  #: the handler snoozed the job, or its kind has no handler
    cancelled: int = 0
    #: Jobs that this worker claimed and that went to the dead table. With ``at_most_once`` no job goes there: then these are the
    #: jobs that are lost, because they were neither completed nor cancelled.
    dead: int = 0
    released: int = 0  #: the handler or the stop of the worker returned the job to its queue
    lost: int = 0  #: the lease was lost, or the result could not be reported: another worker gets the job
    signal: int | None = None  #: number of the signal that stopped the worker
    stuck: int = 0  #: slots of handlers that had not returned when ``exit_when_stuck`` stopped the worker
    recycled: bool = False  #: ``max_jobs`` or ``max_memory`` ended the run

    @property
    def counts(self) -> dict[str, int]:
        """The outcomes with the numbers of their jobs."""
        others = ("signal", "stuck", "recycled")
        return {each.name: getattr(self, each.name) for each in fields(self) if each.name not in others}


# The most kinds without handlers that are logged. Each of them is logged once.
_MOST_KINDS = 1000

# With at_most_once: the outcome of a claimed job that did not run before the worker stopped.
_NOT_RUN = Dead("the worker stopped before the job ran, and at most once it does not come back")

_BY_VERB = {
    "complete": EventType.COMPLETED,
    "fail": EventType.FAILED,
    "bury": EventType.DEAD,
    "snooze": EventType.SNOOZED,
    "defer": EventType.SNOOZED,
    "release": EventType.RELEASED,
    "interrupt": EventType.RELEASED,
    "cancel": EventType.CANCELLED,
}


class Results:
    """Counts and logs the results of one run, and calls the hooks, in the thread that reports the result."""

    def __init__(self, run: Run) -> None:
        self._worker = run.worker
        self._lock = run.lock
        # The ``claimant`` of the jobs that this run has claimed.
        self._claimant = run
        # The results of jobs that are not settled yet. If such a job dies, the hooks get its result.
        self._ended: dict[LeasedJob, JobResult] = {}
        self._most_interruptions = run.worker.options.max_interruptions
        # The kinds without handlers that are logged.
        self._unknown: set[str] = set()

    def started(self, job: LeasedJob) -> None:
        """Tell the hooks that the handler of a job is about to be called."""
        if self._worker.hooks:
            self._send(JobEvent(EventType.STARTED, job))

    def ended(self, done: JobResult) -> None:
        """Keep the result of a job until the job is settled."""
        self._ended[done.job] = done

    def settled(self, done: JobResult, verdict: Verdict | None) -> None:
        """Count and log the result of a job, and tell the hooks.

        :param verdict: None: the result could not be reported; the job comes back when its lease expires.
        """
        job = done.job
        self._ended.pop(job, None)
        if job.dead:
            return  # counted by died()
        event = _event_of(done, verdict)
        if isinstance(done.outcome, BaseException) and job.settled_by in {None, "fail"}:
            # The failure of a last attempt is logged with the job's death, but this job has not died. An error of a lost lease is
            # no failure if the lease is lost; it may be of another job.
            late = (
                event is not EventType.LOST if isinstance(done.outcome, LeaseLostError) else is_last(job, done.spec, done.outcome)
            )
            if late:
                log_failure(job, done.outcome, None, done.seconds)
        if event is EventType.LOST and verdict is not None:
            message = "%r: the lease was lost before the handler ended; the result does not count"
            if isinstance(done.outcome, LeaseLost):  # perhaps no handler was called
                message = "%r: the lease is lost; this attempt does not count"
            log.warning(message, job, extra=about(job, event, done.seconds))
        elif event is not EventType.LOST and log.isEnabledFor(logging.DEBUG):
            log.debug("%s: %r", event, job, extra=about(job, event, done.seconds))
        if event is EventType.SNOOZED and isinstance(done.outcome, Unknown):
            self._log_unknown(job, done.outcome)
        self._count(event)
        if self._worker.hooks:
            self._send(JobEvent(event, job, _shown(done), done.seconds))

    def completed(self, done: Sequence[JobResult]) -> None:
        """Count these completed jobs, all at once unless there are hooks or debug logs."""
        if self._worker.hooks or log.isEnabledFor(logging.DEBUG):
            for result in done:
                self.settled(result, Verdict.APPLIED)
        elif done:
            self._count(EventType.COMPLETED, len(done))

    def died(self, death: Death) -> None:
        """A listener of ``db.deaths``: count a job of this run that has died, and tell the hooks."""
        job = death.job
        if not isinstance(job, LeasedJob) or job.claimant is not self._claimant:
            return
        self._count(EventType.DEAD)
        if self._worker.hooks:
            done = self._ended.get(job)
            outcome, seconds = (Dead(death.error), None) if done is None else (_shown(done), done.seconds)
            self._send(JobEvent(EventType.DEAD, job, outcome, seconds, death.reason))

    def ended_at_most_once(self, done: JobResult) -> None:
        """Report a result with ``at_most_once``: the job left the queue when it was claimed, so there is nothing to settle."""
        self.ended(done)
        error = _failure(done.outcome)
        if error is not None:
            reason = done.reason or (DeathReason.REJECTED if isinstance(done.outcome, Dead) else DeathReason.FAILED)
            done.job.dead = True
            self._worker.db.deaths.record([Death(done.job, reason, error, reason_of(done.outcome))], kept=False)
        self.settled(done, Verdict.APPLIED)

    def release(self, jobs: list[LeasedJob], *, interrupted: bool = False) -> None:
        """Return unfinished jobs to their queues. With ``at_most_once`` these jobs are lost.

        :param interrupted: their handlers have begun: such an attempt does not count, up to a number for each job.
        """
        if self._worker.options.at_most_once:
            for job in jobs:
                self.ended_at_most_once(JobResult(job, None, _NOT_RUN, reason=DeathReason.EXHAUSTED))
            return
        released = 0
        for queue in {job.queue for job in jobs}:
            mine = [job for job in jobs if job.queue == queue]
            source = self._worker.db.queue(queue)
            verdicts: dict[LeasedJob, Verdict] = {}
            try:
                with suppress(StorageError):  # told below
                    prove(source, mine)
                leased = [job for job in mine if not job.settled]
                done = interrupt(source, leased, self._most_interruptions) if interrupted else source.release_many(leased)
                verdicts = dict(zip(leased, done, strict=True))
                with suppress(StorageError):
                    prove(source, [job for job in leased if not verdicts[job]])  # settled while the release waited for its lock
            except StorageError as error:
                log.warning("%d jobs could not be released and come back when their leases expire: %s", len(mine), error)
            for job in mine:
                self._released(job, verdicts.get(job))
            released += sum(map(bool, verdicts.values()))
        log.info("released %d unfinished jobs", released)

    def _released(self, job: LeasedJob, verdict: Verdict | None) -> None:
        if job.settled and not verdict:
            # The job's handler, which still runs, has settled it.
            if job.unconfirmed is not None:
                log_open(job, None)
            self.settled(JobResult(job, None, None), Verdict.APPLIED if job.unconfirmed is None else None)
            return
        event = EventType.RELEASED if verdict else EventType.LOST
        self._count(event)
        if verdict is Verdict.LOST:
            log.warning("%r: the lease was lost before the job could be released", job, extra=about(job, event))
        if self._worker.hooks:
            self._send(JobEvent(event, job))

    def _log_unknown(self, job: LeasedJob, unknown: Unknown) -> None:
        with self._lock:
            if job.kind in self._unknown or len(self._unknown) >= _MOST_KINDS:
                return
            self._unknown.add(job.kind)
        message = "%s; its jobs wait for a worker that has one, and are dead after %g s"
        log.warning(message, unknown.error, unknown.grace, extra=about(job))

    def _count(self, event: EventType, number: int = 1) -> None:
        name = event.value
        with self._lock:
            summary = self._worker.summary
            setattr(summary, name, getattr(summary, name) + number)

    def _send(self, event: JobEvent) -> None:
        for hook in self._worker.hooks:
            try:
                arguments.done("the hook", hook(event))
            except BaseException:  # the thread goes on even after SystemExit
                log.exception("the hook %r failed at %s of %r", hook, event.type, event.job, extra=about(event.job, event.type))


def log_failure(job: LeasedJob, error: BaseException, verb: str | None, seconds: float | None) -> None:
    """Log what a handler has raised.

    :param verb: the verb that the handler had called on its job before it raised; None: no verb.
    """
    what = "failed" if verb is None else f"raised after {verb}(), which counts if it was committed"
    extra = about(job, EventType.FAILED if verb is None else None, seconds)
    log.warning("%r %s: %s: %s", job, what, type(error).__name__, text_of(error), exc_info=error, extra=extra)


def _event_of(done: JobResult, verdict: Verdict | None) -> EventType:
    """The event of a job that has not died: the event of the verb that settled the job, called by the worker or the handler."""
    if verdict is None:
        return EventType.LOST
    if done.job.settled_by is not None:
        return _BY_VERB[done.job.settled_by]
    # With at_most_once no verb settles the job.
    if verdict is Verdict.LOST:
        return EventType.LOST
    return EventType.CANCELLED if isinstance(done.outcome, Cancel) else EventType.COMPLETED


def _shown(done: JobResult) -> object:
    """The outcome as events show it."""
    match done.outcome:
        case Unknown(error):
            return error
        case Interrupted(cause):
            return cause
        case LeaseLost() | LostResult():
            return None
    return done.outcome


def _failure(outcome: object) -> str | None:
    """With ``at_most_once``: why a job is lost; None: the job was completed or cancelled."""
    match outcome:
        case BaseException():
            return f"{type(outcome).__name__}: {text_of(outcome)}"
        case Retry(reason) | Dead(reason):
            return text_of(reason)
        case Snooze():
            return "its handler returned Snooze, which at most once cannot be granted"
    return None
