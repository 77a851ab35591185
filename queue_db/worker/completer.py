"""The completer: one thread settles the jobs whose handlers have ended, many in one statement.

What a handler returned or raised chooses the verb. The completer works beside the fetcher, which does not complete jobs with its
claims (:meth:`Queue.exchange`): one completion for the jobs of several claims costs as little as one in each claim, and the
claims need not wait for it. benchmarks/README.md has the figures.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple

from sqlalchemy.exc import DataError, IntegrityError

from queue_db import arguments
from queue_db.codecs import described, plain
from queue_db.concurrency.pauses import Pause
from queue_db.errors import StorageError, UnknownKindError, text_of
from queue_db.leased_job import LeasedJob
from queue_db.model import DeathReason, RetainedResult, Verdict
from queue_db.outcomes import Cancel, Dead, Retry, Snooze
from queue_db.queue import Queue
from queue_db.worker.handlers import HandlerSpec
from queue_db.worker.logs import Activity, about
from queue_db.worker.process_main import LostResult

log = logging.getLogger("queue_db.worker")

#: Seconds for which results are collected before they are reported, and the most in one statement. A worker that dies within this
#: time leaves finished jobs that run once more.
WITHIN = 0.002
AT_MOST = 1000

#: For how long a result is tried to be reported while the database does not answer, seconds.
SETTLE_FOR = 600.0


def is_last(job: LeasedJob) -> bool:
    """Whether the job is dead if this attempt fails: its death is logged then, in place of the failure."""
    return job.attempts >= job.max_attempts


class Unknown(NamedTuple):
    """The outcome of a job of a kind without a handler: it waits for a worker that has one."""

    error: UnknownKindError
    #: For this many seconds; then it is dead.
    grace: float


class LeaseLost(NamedTuple):
    """The outcome of a job in flight whose lease was lost: there is nothing to settle."""


PendingJob = object
"""Stands for a job from before it leaves the jobs in flight until its result is reported."""


class JobResult(NamedTuple):
    """A job whose handler has ended."""

    job: LeasedJob
    spec: HandlerSpec | None
    #: What the handler returned or raised.
    outcome: object
    pending: PendingJob
    #: How long it ran, seconds; None: it was not called.
    seconds: float | None = None
    #: For how long the job is kept if it is completed, seconds; None or 0: not at all.
    keep: float | None = None
    #: Why it goes to the dead table, unless its handler decided that.
    reason: DeathReason | None = None
    #: What the handler returned, encoded, if it is kept.
    result: str | None = None


Verb = Callable[[Sequence[JobResult]], list[Verdict]]

Settled = Callable[[JobResult, Verdict | None], None]
"""Called with each result and its verdict; None: it could not be reported, and the job comes back when its lease expires."""


class Completer:
    """Settles the jobs whose handlers have ended.

    :param retry: seconds between tries while the database does not answer: first, longest.
    :param outage: logs failures.
    :param completed: gets those of :func:`complete_plain` together, if all jobs are completed; default: ``settled`` gets
        each.
    """

    def __init__(
        self,
        settled: Settled,
        retry: tuple[float, float],
        outage: Activity | None = None,
        *,
        completed: Callable[[Sequence[JobResult]], None] | None = None,
    ) -> None:
        self._outage = outage or Activity()
        self._settled = settled
        self._completed = completed
        self._retry = retry
        self._results: SimpleQueue[JobResult | None] = SimpleQueue()
        #: Jobs whose results are announced or not reported yet. Who takes a job out of those in flight adds it here before, so that
        #: it is never in neither; and removes it again if another thread was first.
        self.pending: dict[PendingJob, None] = {}
        #: Report this result soon.
        self.put: Callable[[JobResult], None] = self._results.put
        self._closing = threading.Event()

    def __len__(self) -> int:
        """How many results are announced or not reported yet."""
        return len(self.pending)

    def run(self) -> None:
        """Report until :meth:`close`."""
        closed = False
        while not closed:
            first = self._results.get()
            if first is None:
                return
            if self._results.qsize() < AT_MOST:
                # Not a wait for the next result: to wake up for each costs more than to report it.
                time.sleep(WITHIN)
            batch = [first]
            while len(batch) < AT_MOST and not closed:
                try:
                    one = self._results.get_nowait()
                except Empty:
                    break
                if one is None:
                    closed = True
                else:
                    batch.append(one)
            for verb, ones in verbs_for(batch):
                self._settle_each(verb, ones)

    def close(self) -> None:
        """Report the results that were put, without retries, and end :meth:`run`."""
        self._closing.set()
        self._results.put(None)

    def _settle_each(self, verb: Verb, ones: Sequence[JobResult]) -> None:
        """Settle these jobs together, and one by one if that raises."""
        try:
            self._settle(verb, ones)
        except Exception:
            rest = [one for one in ones if one.pending in self.pending]
            if len(ones) > 1:
                for one in rest:
                    self._settle_each(verb, [one])
                return
            # An unexpected error: the job comes back when its lease expires, and the worker goes on.
            log.exception("%s could not be settled and comes back when its lease expires", _text(ones), extra=_about(ones))
            for one in rest:
                self._report(one, None)

    def _settle(self, verb: Verb, ones: Sequence[JobResult]) -> None:
        """Settle these jobs, with retries while the database does not answer. The fence decides whether the result still counts.

        :raises StorageError: the database refuses what one of several jobs leaves, for example a row that a removal inserts.
        """
        retry: Pause | None = None
        until = time.monotonic() + SETTLE_FOR
        while True:
            try:
                verdicts = verb(ones)
            except StorageError as error:
                refused = isinstance(error.__cause__, IntegrityError | DataError)
                if refused and len(ones) > 1:
                    raise
                retry = retry or Pause(*self._retry)
                wait = retry.next()
                # What is refused now is refused later too, and the results behind it must not wait for that.
                if refused or time.monotonic() + wait > until or self._closing.wait(wait):
                    message = "%s could not be settled and comes back when its lease expires: %s"
                    log.error(message, _text(ones), error, extra=_about(ones))  # noqa: TRY400 - each try was a warning
                    self._outage.ended()
                    for one in ones:
                        self._report(one, None)
                    return
                self._outage.failed(f"settling {_text(ones)}", error, wait, _about(ones))
            else:
                self._outage.worked()
                self._report_all(verb, ones, verdicts)
                return

    def _report_all(self, verb: Verb, ones: Sequence[JobResult], verdicts: Sequence[Verdict]) -> None:
        if verb is complete_plain and self._completed is not None and verdicts.count(Verdict.APPLIED) == len(ones):
            try:
                self._completed(ones)
            finally:
                for one in ones:
                    self.pending.pop(one.pending, None)
            return
        for one, verdict in zip(ones, verdicts, strict=True):
            self._report(one, verdict)

    def _report(self, one: JobResult, verdict: Verdict | None) -> None:
        try:
            self._settled(one, verdict)
        finally:
            self.pending.pop(one.pending, None)


def _text(ones: Sequence[JobResult]) -> str:
    return repr(ones[0].job) if len(ones) == 1 else f"{len(ones)} jobs"


def _about(ones: Sequence[JobResult]) -> dict[str, Any] | None:
    return about(ones[0].job, seconds=ones[0].seconds) if len(ones) == 1 else None


# --- which verb settles a job -----------------------------------------------------------------------------------------


def settle(done: JobResult) -> Verdict:
    """Settle one job at once."""
    ((verb, ones),) = verbs_for([done])
    return verb(ones)[0]


def verbs_for(batch: Sequence[JobResult]) -> list[tuple[Verb, Sequence[JobResult]]]:
    """The verbs that settle these jobs, each with its jobs. Raises nothing: an invalid outcome fails its job."""
    plain_ones: dict[object, list[JobResult]] = {}
    groups: dict[tuple[Queue, str, Any], list[JobResult]] = {}
    for one in batch:
        job = one.job
        if one.outcome is None and not one.keep and not job.settled:  # nearly all
            plain_ones.setdefault(job.source, []).append(one)
        else:
            done, name, detail = _with_result(*name_of_verb(one))
            groups.setdefault((_queue_of(job), name, detail), []).append(done)
    return [
        *((complete_plain, ones) for ones in plain_ones.values()),
        *((_verb(queue, name, detail), ones) for (queue, name, detail), ones in groups.items()),
    ]


def complete_plain(ones: Sequence[JobResult]) -> list[Verdict]:
    """Complete jobs of one queue whose handlers returned nothing and of which nothing is kept."""
    return _queue_of(ones[0].job).complete_many([one.job for one in ones])


def name_of_verb(one: JobResult) -> tuple[JobResult, str, Any]:
    """The result as it is reported, the name of the verb, and its argument: seconds of a snooze, the reason of a death."""
    outcome = one.outcome
    detail: Any = None
    match outcome:
        case LeaseLost():
            name = "lost"
        case Unknown():
            name, detail = "defer", (f"parked: {outcome.error}", outcome.grace)
        case Snooze() | Retry() if (wrong := _wrong_seconds(outcome)) is not None:
            if not is_last(one.job):
                log.warning("%r failed: %s", one.job, wrong, extra=about(one.job, "failed", one.seconds))
            one, name = one._replace(outcome=wrong), "fail"
        case Snooze():
            name, detail = "snooze", float(outcome.seconds)
        case BaseException() | Retry():
            name = "fail"
        case _ if one.job.settled:
            name = "settled"
        case Dead():
            name, detail = "bury", one.reason or DeathReason.REJECTED
        case _:
            name = "cancel" if isinstance(outcome, Cancel) else "complete"
    return one, name, detail


def _with_result(one: JobResult, name: str, detail: Any) -> tuple[JobResult, str, Any]:
    """The same, with the result encoded if it is kept; if that is impossible, the job is dead."""
    if name == "complete" and one.keep:
        try:
            one = one._replace(result=_encoded(one))
        except Exception as error:  # noqa: BLE001 - the codec is the application's
            # Not a failed attempt: the work is done, and another attempt would have the same result.
            text = f"the work is done, but its result cannot be kept: {described(error)}; return texts, numbers, lists and objects"
            return one._replace(outcome=Dead(text)), "bury", DeathReason.PAYLOAD
    return one, name, detail


def _encoded(one: JobResult) -> str:
    if isinstance(one.outcome, LostResult):
        raise TypeError(f"it cannot be sent from the process of the handler: {one.outcome.problem}")
    codec = _queue_of(one.job).db.codec
    try:
        text: str = codec.encode(one.outcome)
    except Exception:  # noqa: BLE001 - as payloads first; a result has no handler that expects its types
        text = codec.encode(plain(one.outcome))
    return text


def _wrong_seconds(outcome: Snooze | Retry) -> Exception | None:
    try:
        arguments.seconds(f"{type(outcome).__name__}.seconds", 0 if outcome.seconds is None else outcome.seconds)
    except Exception as error:  # noqa: BLE001 - whatever a handler returns fails its own job only
        return error.with_traceback(None)  # ours: no help to the author of the handler
    return None


def _verb(queue: Queue, name: str, detail: Any) -> Verb:
    return {
        "complete": lambda ones: queue.complete_many(_jobs(ones), retained=_retained(ones)),
        "settled": lambda ones: [Verdict.APPLIED for _ in ones],
        "lost": lambda ones: [Verdict.LOST for _ in ones],
        "snooze": lambda ones: queue.snooze_many(_jobs(ones), detail),
        "defer": lambda ones: queue.defer_unknown_many(_jobs(ones), detail[0], grace=detail[1]),
        "cancel": lambda ones: queue.cancel_many(_jobs(ones)),
        "bury": lambda ones: queue.bury_many(_jobs(ones), [reason_of(one.outcome) for one in ones], reason=detail),
        "fail": lambda ones: queue.fail_many(
            _jobs(ones), [reason_of(one.outcome) for one in ones], retry_in=[retry_in(one) for one in ones]
        ),
    }[name]


def _queue_of(job: LeasedJob) -> Queue:
    source: Queue = job.source  # type: ignore[assignment]
    return source


def _jobs(ones: Sequence[JobResult]) -> list[LeasedJob]:
    return [one.job for one in ones]


def _retained(ones: Sequence[JobResult]) -> list[RetainedResult | None] | None:
    """The results to keep; None: no job is kept."""
    if not any(one.keep for one in ones):
        return None
    return [RetainedResult(one.result, arguments.seconds("keep", one.keep)) if one.keep else None for one in ones]


def retry_in(one: JobResult) -> float | None:
    """Seconds until the next attempt; None: by the default backoff."""
    if isinstance(one.outcome, Retry) and one.outcome.seconds is not None:
        return one.outcome.seconds
    if one.spec is None or one.spec.backoff is None:
        return None
    try:
        seconds = one.spec.backoff(one.job.attempts)
        arguments.seconds("backoff", seconds)
    except Exception:
        message = "the backoff of %r failed for attempt %d: the default is used"
        log.exception(message, one.job, one.job.attempts, extra=about(one.job, "failed", one.seconds))
        return None
    return seconds


def reason_of(outcome: object) -> BaseException | str:
    """Why a job is not completed: what its handler raised, or the reason that it gave."""
    reason: object = outcome.reason if isinstance(outcome, Retry | Dead) else outcome
    return reason if isinstance(reason, BaseException | str) else text_of(reason)
