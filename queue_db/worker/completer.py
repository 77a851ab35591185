"""The completer: one thread settles the jobs whose handlers have ended, many in one statement.

What a handler returned or raised decides the verb. The worker does not use :meth:`Queue.complete_and_claim`. Its separate
completions cost no more, since each completes the jobs of several claims, and no claim waits for a completion; benchmarks/log
has the figures.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy.exc import DataError, IntegrityError

from queue_db import arguments
from queue_db.codecs import described, plain
from queue_db.concurrency.pauses import Pause
from queue_db.errors import StorageError, UnknownKindError, text_of
from queue_db.job_transaction import confirm
from queue_db.leased_job import LeasedJob
from queue_db.model import DeathReason, StoredResult, Verdict
from queue_db.outcomes import Cancel, Dead, Retry, Snooze
from queue_db.queue import Queue
from queue_db.store import settle as settle_sql
from queue_db.store.settle import Change, Sight
from queue_db.verbs.running import LOOK
from queue_db.worker.handlers import HandlerSpec
from queue_db.worker.interruptions import Interrupted, interrupt
from queue_db.worker.leases import queue_of
from queue_db.worker.logs import Activity, about
from queue_db.worker.options import Options

if TYPE_CHECKING:
    from queue_db.worker.events import Results

log = logging.getLogger("queue_db.worker")

#: Seconds for which the completer collects results before it reports them. If the worker dies within this time, the jobs of these
#: results run once more.
WITHIN = 0.002

#: The most results in one statement.
AT_MOST = 1000

#: Seconds for which the completer tries to report a result while the database does not answer.
SETTLE_FOR = 600.0

#: Seconds until the completer looks again whether the transaction of a handler that has returned is still open.
LOOK_AGAIN = 0.1

# Seconds for which a lease is extended when it turns out that the handler's transaction was rolled back.
_PROVED_FOR = 60.0


def is_last(job: LeasedJob, spec: HandlerSpec | None = None, outcome: object = None) -> bool:
    """Whether this attempt is the last one. Callers do not log its failure, because the death of the job is logged.

    :param spec: the handler; it may give up after ``outcome``.
    """
    return job.attempts >= job.max_attempts or (spec is not None and spec.gives_up(outcome))


class Unknown(NamedTuple):
    """The outcome of a job whose kind has no handler: the job waits for a worker with a handler."""

    error: UnknownKindError
    #: The job is dead if it has found no handler for this many seconds.
    grace: float


def parked(job: LeasedJob, outcome: object, options: Options) -> tuple[object, DeathReason | None]:
    """What becomes of a job that no handler of this worker can do: it is dead, or of an unknown kind waits as the options say.

    :param outcome: what the handler returned or raised, or the error of a job that has none.
    :return: the outcome, of other jobs unchanged; and why the job is dead, if it is parked for good.
    """
    if outcome is not None and outcome is job.misfit:
        return Dead(f"parked: {outcome}"), DeathReason.PAYLOAD
    if not isinstance(outcome, UnknownKindError) or outcome.kind != job.kind or job.settled:
        return outcome, None
    if options.unknown == "dead" or options.at_most_once:
        return Dead(f"parked: {outcome}"), DeathReason.UNKNOWN_KIND
    return Unknown(outcome, options.unknown_grace), None


class LeaseLost(NamedTuple):
    """The outcome of a job in flight whose lease was lost: there is nothing to settle."""


class LostResult(NamedTuple):
    """The outcome of a handler whose return value cannot be sent from its process."""

    problem: str


PendingJob = object
"""A token for a job from its removal from the jobs in flight until its result is reported."""


class JobResult(NamedTuple):
    """A job whose handler has ended."""

    job: LeasedJob
    spec: HandlerSpec | None
    #: What the handler returned or raised.
    outcome: object
    #: Seconds for which the handler ran; None: the handler was not called.
    seconds: float | None = None
    #: Seconds for which the job is kept if it is completed; None or 0: it is not kept.
    result_ttl: float | None = None
    #: The reason if the worker itself moves the job to the dead table; otherwise None.
    reason: DeathReason | None = None
    #: The encoded return value of the handler, if it is kept.
    result: str | None = None
    #: The token in :attr:`Completer.pending`, which is removed when the result is reported.
    pending: PendingJob | None = None
    #: When to give up, by ``time.monotonic``, if the handler's transaction was open at the first look; otherwise None.
    give_up_at: float | None = None


Verb = Callable[[Sequence[JobResult]], Sequence[Verdict | None]]
"""A function that settles jobs. The verdict None: the job's handler has settled it in a transaction that is still open."""


class Completer:
    """Settles the jobs whose handlers have ended.

    :param reports: gets each result when it is settled.
    :param retry: the first and the longest pause between tries while the database does not answer, seconds.
    :param outage: logs failures.
    :param lease: seconds for which the worker leases its jobs.
    """

    def __init__(self, reports: Results, retry: tuple[float, float], outage: Activity, lease: float) -> None:
        self._outage = outage
        self._lease = lease
        # Results of jobs that their handlers have settled in transactions that are still open.
        self._open: list[JobResult] = []
        # When the completer looks at these jobs again, by ``time.monotonic``.
        self._look_at = 0.0
        self._reports = reports
        self._retry = retry
        self._results: SimpleQueue[JobResult | None] = SimpleQueue()
        #: Tokens of the jobs whose results are not reported yet. A thread adds a token before it removes the job from the jobs in
        #: flight. So each job without a reported result is in flight or pending. If another thread has already removed the job
        #: from the jobs in flight, the first thread removes its token again.
        self.pending: dict[PendingJob | None, None] = {}
        #: Puts a result into the queue of this completer, which reports it soon.
        self.put: Callable[[JobResult], None] = self._results.put
        self._closing = threading.Event()

    def __len__(self) -> int:
        """How many results are not reported yet."""
        return len(self.pending)

    def run(self) -> None:
        """Report results until :meth:`close` is called."""
        closed = False
        while not closed:
            batch, closed = self._collected()
            if self._open and (closed or time.monotonic() >= self._look_at):
                batch, self._open = [*batch, *self._open], []
            for verb, results in verbs_for(batch):
                self._settle_each(verb, results)

    def _collected(self) -> tuple[list[JobResult], bool]:
        """Wait for results; return them, and whether they are the last ones."""
        batch: list[JobResult] = []
        try:
            done = self._results.get(timeout=max(0.0, self._look_at - time.monotonic()) if self._open else None)
            if done is not None and self._results.qsize() < AT_MOST:
                # Sleep instead of waiting for the next result: a wake-up for each result would cost more than its report.
                time.sleep(WITHIN)
            while done is not None:
                batch.append(done)
                if len(batch) == AT_MOST:
                    return batch, False
                done = self._results.get_nowait()
        except Empty:
            return batch, False
        return batch, True

    def close(self) -> None:
        """Tell :meth:`run` to report the remaining results without retries, and to end."""
        self._closing.set()
        self._results.put(None)

    def _postpone(self, done: JobResult, verdict: Verdict | None) -> None:
        """Look at the job again later, at most for the length of a lease: then another worker may get the job after a rollback.

        :param verdict: what to report if there is no time for another look.
        """
        now = time.monotonic()
        until = now + self._lease if done.give_up_at is None else done.give_up_at
        if self._closing.is_set() or now >= until:
            if verdict is None:
                log_open(done.job, done.seconds)
            self._report(done, verdict)
            return
        if done.give_up_at is None and verdict is None:
            message = "%r: the transaction in which the handler has completed it is still open"
            log.warning(message, done.job, extra=about(done.job, seconds=done.seconds))
        if not self._open:  # a later job must not move the look at earlier ones
            self._look_at = now + LOOK_AGAIN
        self._open.append(done._replace(give_up_at=until))

    def _settle_each(self, verb: Verb, results: Sequence[JobResult]) -> None:
        """Settle these jobs together; if that raises, settle them one by one."""
        try:
            self._settle(verb, results)
        except Exception:
            rest = [done for done in results if done.pending in self.pending]
            if len(results) > 1:
                for done in rest:
                    self._settle_each(verb, [done])
                return
            # An unexpected error: the job comes back when its lease expires, and the worker goes on.
            log.exception("%s could not be settled and comes back when its lease expires", _text(results), extra=_about(results))
            for done in rest:
                self._report(done, None)

    def _settle(self, verb: Verb, results: Sequence[JobResult]) -> None:
        """Settle these jobs, with retries while the database does not answer. The fence rejects results whose leases were lost.

        :raises StorageError: the database refuses a row, and there are several jobs: the caller settles them one by one.
        """
        retry: Pause | None = None
        until = time.monotonic() + SETTLE_FOR
        while True:
            try:
                verdicts = verb(results)
            except StorageError as error:
                refused = isinstance(error.__cause__, IntegrityError | DataError)
                if refused and len(results) > 1:
                    raise
                retry = retry or Pause(*self._retry)
                wait = retry.next()
                # A refused row is not tried again: the database would refuse it again, and other results would wait.
                if refused or time.monotonic() + wait > until or self._closing.wait(wait):
                    message = "%s could not be settled and comes back when its lease expires: %s"
                    log.error(message, _text(results), error, extra=_about(results))  # noqa: TRY400 - the message has the error
                    self._outage.gave_up()
                    for done in results:
                        self._report(done, None)
                    return
                self._outage.failed(f"settling {_text(results)}", error, wait, _about(results))
            else:
                self._outage.worked()
                self._report_all(verb, results, verdicts)
                return

    def _report_all(self, verb: Verb, results: Sequence[JobResult], verdicts: Sequence[Verdict | None]) -> None:
        if verb is complete_plain and verdicts.count(Verdict.APPLIED) == len(results):
            try:
                self._reports.completed(results)
            finally:
                for done in results:
                    self.pending.pop(done.pending, None)
            return
        for done, verdict in zip(results, verdicts, strict=True):
            if verdict is None or (verdict is Verdict.LOST and done.job.unconfirmed is not None):
                self._postpone(done, verdict)  # its handler has settled it in the meantime
            else:
                self._report(done, verdict)

    def _report(self, done: JobResult, verdict: Verdict | None) -> None:
        try:
            self._reports.settled(done, verdict)
        finally:
            self.pending.pop(done.pending, None)


def log_open(job: LeasedJob, seconds: float | None) -> None:
    """Log that the worker no longer waits for the end of a handler's transaction."""
    message = (
        "%r: the transaction in which its handler has completed it is open; after a rollback the job comes back when its lease ends"
    )
    log.error(message, job, extra=about(job, "lost", seconds))


def _text(results: Sequence[JobResult]) -> str:
    return repr(results[0].job) if len(results) == 1 else f"{len(results)} jobs"


def _about(results: Sequence[JobResult]) -> dict[str, Any] | None:
    return about(results[0].job, seconds=results[0].seconds) if len(results) == 1 else None


# --- which verb settles a job -----------------------------------------------------------------------------------------


def settle(done: JobResult) -> Verdict | None:
    """Settle one job at once; None: its handler has settled it in a transaction that is still open."""
    ((verb, results),) = verbs_for([done])
    return verb(results)[0]


def verbs_for(batch: Sequence[JobResult]) -> list[tuple[Verb, Sequence[JobResult]]]:
    """The verbs that settle these jobs, each with its jobs. Raises nothing: an invalid outcome fails its job."""
    plain_results: dict[object, list[JobResult]] = {}
    settled: dict[object, list[JobResult]] = {}
    groups: dict[tuple[Queue, str, Any], list[JobResult]] = {}
    for done in batch:
        job = done.job
        if job.settled:
            settled.setdefault(job.source, []).append(done)
        elif done.outcome is None and not done.result_ttl:  # nearly all results
            plain_results.setdefault(job.source, []).append(done)
        else:
            result, name, detail = _with_result(*name_of_verb(done))
            groups.setdefault((queue_of(job), name, detail), []).append(result)
    return [
        # First: these jobs may have come back and be completed in this batch.
        *((_settled, results) for results in settled.values()),
        *((complete_plain, results) for results in plain_results.values()),
        *((_verb(queue, name, detail), results) for (queue, name, detail), results in groups.items()),
    ]


def _settled(results: Sequence[JobResult]) -> list[Verdict | None]:
    """The verdicts of jobs of one queue that their handlers have settled. A job whose settlement was rolled back is settled now."""
    prove(queue_of(results[0].job), [done.job for done in results])
    verdicts: list[Verdict | None] = []
    for done in results:
        if done.job.unconfirmed is not None:
            verdicts.append(None)
        else:
            verdicts.append(Verdict.APPLIED if done.job.settled else settle(done))
    return verdicts


def prove(queue: Queue, jobs: Sequence[LeasedJob]) -> None:
    """Find out what became of the transactions in which handlers have settled these jobs, without waiting for their locks.

    After a commit the job stays settled. After a rollback it is leased as before. While the transaction is open, the job stays
    unconfirmed. Only verbs that complete jobs take a handler's transaction. A missing row counts as the handler's commit: while the
    transaction was open, nobody else could take the job.
    """
    leases = {job.id: job for job in jobs if job.unconfirmed is not None}
    if not leases:
        return
    sights = queue.core.run(LOOK, settle_sql.look, [(job.id, job.version, job.token) for job in leases.values()], Change.GONE)
    undone = []
    for job_id, sight in sights.items():
        if sight in {Sight.CHANGED, Sight.VANISHED}:
            confirm(leases[job_id])
        elif sight is Sight.OTHER:  # another worker has the job
            undone.append(leases[job_id])
    unchanged = [leases[job_id] for job_id, sight in sights.items() if sight is Sight.UNCHANGED]
    if unchanged:
        verdicts = queue.extend_unlocked(unchanged, _PROVED_FOR)
        undone += [job for job, verdict in zip(unchanged, verdicts, strict=True) if verdict is Verdict.APPLIED]
    for job in undone:
        if job.unconfirmed is not None:  # the handler may have seen its commit meanwhile
            job.rolled_back()


def complete_plain(results: Sequence[JobResult]) -> list[Verdict]:
    """Complete jobs of one queue whose handlers returned nothing, and whose results are not kept."""
    return queue_of(results[0].job).complete_many([done.job for done in results])


def name_of_verb(done: JobResult) -> tuple[JobResult, str, Any]:
    """The result to report, the name of the verb, and the verb's argument, such as the seconds of a snooze."""
    outcome = done.outcome
    detail: Any = None
    match outcome:
        case LeaseLost():
            name = "lost"
        case Interrupted():
            name, detail = "interrupt", outcome.most
        case Unknown():
            name, detail = "defer", (f"parked: {outcome.error}", outcome.grace)
        case Snooze() | Retry() if (wrong := _wrong_seconds(outcome)) is not None:
            if not is_last(done.job):
                log.warning("%r failed: %s", done.job, wrong, extra=about(done.job, "failed", done.seconds))
            done, name = done._replace(outcome=wrong), "fail"
        case Snooze():
            name, detail = "snooze", float(outcome.seconds)
        case BaseException() | Retry():
            name = "fail"
        case Dead():
            name, detail = "bury", done.reason or DeathReason.REJECTED
        case _:
            name = "cancel" if isinstance(outcome, Cancel) else "complete"
    return done, name, detail


def _with_result(done: JobResult, name: str, detail: Any) -> tuple[JobResult, str, Any]:
    """Encode the return value if it is to be retained. If this fails, the verb becomes ``bury``."""
    # A graph keeps the results of its nodes, for those that wait for them.
    if name == "complete" and (done.result_ttl or (done.job.has_dependents and done.job.graph_id is not None)):
        try:
            done = done._replace(result=_encoded(done))
        except Exception as error:  # noqa: BLE001 - the codec is the application's
            # Not a failed attempt: the work is done, and another attempt would have the same result.
            text = f"the work is done, but its result cannot be kept: {described(error)}; return texts, numbers, lists and objects"
            return done._replace(outcome=Dead(text)), "bury", DeathReason.PAYLOAD
    return done, name, detail


def _encoded(done: JobResult) -> str:
    if isinstance(done.outcome, LostResult):
        raise TypeError(f"it cannot be sent from the process of the handler: {done.outcome.problem}")
    codec = queue_of(done.job).db.codec
    try:
        text: str = codec.encode(done.outcome)
    except Exception:  # noqa: BLE001 - plain types are enough: no handler expects the types of a result
        text = codec.encode(plain(done.outcome))
    return text


def _wrong_seconds(outcome: Snooze | Retry) -> Exception | None:
    try:
        arguments.seconds(f"{type(outcome).__name__}.seconds", 0 if outcome.seconds is None else outcome.seconds)
    except Exception as error:  # noqa: BLE001 - a wrong value of any type must fail only this job
        return error.with_traceback(None)  # the traceback would show this package only
    return None


def _verb(queue: Queue, name: str, detail: Any) -> Verb:
    return {
        "complete": lambda results: queue.complete_many(_jobs(results), results=_stored_results(results)),
        "lost": lambda results: [Verdict.LOST for _ in results],
        "snooze": lambda results: queue.snooze_many(_jobs(results), detail),
        "defer": lambda results: queue.retry_unknown_kinds(_jobs(results), detail[0], grace=detail[1]),
        "interrupt": lambda results: interrupt(queue, _jobs(results), detail),
        "cancel": lambda results: queue.cancel_many(_jobs(results)),
        "bury": lambda results: queue.bury_many(_jobs(results), [reason_of(done.outcome) for done in results], reason=detail),
        "fail": lambda results: _fail(queue, results),
    }[name]


def _fail(queue: Queue, results: Sequence[JobResult]) -> list[Verdict]:
    waits = [retry_in(done) for done in results]
    last: list[bool] | None = None
    if math.inf in waits:  # a handler gives up
        last = [wait == math.inf or is_last(done.job) for done, wait in zip(results, waits, strict=True)]
        waits = [None if wait == math.inf else wait for wait in waits]
    return queue.fail_many(_jobs(results), [reason_of(done.outcome) for done in results], retry_in=waits, last=last)


def _jobs(results: Sequence[JobResult]) -> list[LeasedJob]:
    return [done.job for done in results]


def _stored_results(results: Sequence[JobResult]) -> list[StoredResult | None] | None:
    """The results to keep; None: no job is kept."""
    if not any(done.result_ttl or done.result for done in results):
        return None
    return [
        StoredResult(done.result, arguments.seconds("result_ttl", done.result_ttl or 0)) if done.result_ttl or done.result else None
        for done in results
    ]


def retry_in(done: JobResult) -> float | None:
    """Seconds until the next attempt; None: the default backoff decides; infinite: there is none, since the handler gives up."""
    if isinstance(done.outcome, Retry) and done.outcome.seconds is not None:
        return done.outcome.seconds
    backoff = None if done.spec is None else done.spec.backoff_after(done.outcome)
    if backoff is None:
        return None
    try:
        seconds = backoff(done.job.attempts)
        if seconds != math.inf:
            arguments.seconds("backoff", seconds)
    except Exception:
        message = "the backoff of %r failed for attempt %d: the default is used"
        log.exception(message, done.job, done.job.attempts, extra=about(done.job, "failed", done.seconds))
        return None
    return seconds


def reason_of(outcome: object) -> BaseException | str:
    """Why a job is not completed: what its handler raised, or the reason in its Retry or Dead."""
    reason: object = outcome.reason if isinstance(outcome, Retry | Dead) else outcome
    return reason if isinstance(reason, BaseException | str) else text_of(reason)
