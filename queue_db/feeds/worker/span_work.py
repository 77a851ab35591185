"""A claimed span in a slot: the handlers of its messages are called in their order, and their results are settled together."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from queue_db.concurrency.pauses import Pause
from queue_db.errors import LeaseLostError, StorageError, UnknownKindError
from queue_db.feeds.shared import Failure
from queue_db.feeds.worker.messages import MessageSource
from queue_db.leased_job import LeasedJob
from queue_db.model import DeathReason, Verdict
from queue_db.outcomes import Dead
from queue_db.worker.completer import JobResult, LeaseLost, is_last, parked, reason_of
from queue_db.worker.events import log_failure
from queue_db.worker.handlers import HandlerSpec, timeout_error
from queue_db.worker.logs import Activity

if TYPE_CHECKING:
    from queue_db.feeds.worker.slots import FeedSlots

log = logging.getLogger("queue_db.worker")

#: Seconds between two reports of what is done of a span. If the worker dies, the messages since the last report are repeated, and
#: the message whose handler ran.
REPORT_EVERY = 1.0

#: Seconds for which a report is tried while the database does not answer.
REPORT_FOR = 600.0

# A call of a handler: the job, the handler, and when the call began, by ``time.monotonic``.
_Call = tuple[LeasedJob, HandlerSpec, float]


class Released(NamedTuple):
    """The outcome of a message whose handler runs when the run ends: it is released with the rest of its span."""


class SpanWork:
    """The work on one span. The slot's thread calls the handlers; the heartbeat, the timeouts or the end of the run may end it.

    Each message gets one result: the thread that puts it into :attr:`results` first, by one atomic method of a dict, decides it. So
    the slot's thread needs no lock between two messages. The lock is held while the span is settled or extended.

    :param valid_until: the end of the lease, by ``time.monotonic``.
    """

    def __init__(self, slots: FeedSlots, source: MessageSource, outage: Activity, valid_until: float) -> None:
        self._slots = slots
        self._source = source
        self._outage = outage
        self._lock = threading.Lock()
        self._call: _Call | None = None
        self._reported = 0
        #: The results by number of the message, in the order of the messages.
        self.results: dict[int, JobResult] = {}
        #: Whether the work has ended: nothing more is called, settled or extended.
        self.over = False
        self.valid_until = valid_until
        #: When the message of a handler that still runs was abandoned; None: no message was.
        self.abandoned_since: float | None = None

    @property
    def calling(self) -> bool:
        """Whether a handler runs whose result will count."""
        return self._call is not None and self.abandoned_since is None

    # --- the slot's thread ------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Call the handlers of the messages, in their order, and settle the span."""
        stopping, report_at = self._slots.stopping, time.monotonic() + REPORT_EVERY
        for message in self._source.span.messages:
            now = time.monotonic()
            if now >= report_at:
                self._call = None
                self._settle(last=False)
                now = time.monotonic()
                report_at = now + REPORT_EVERY
            # The process was suspended, or the database did not answer.
            if now >= self.valid_until and not self.extend(wait=True):
                break
            if self.over or stopping.is_set() or not self._handle(self._source.job(message), now):
                break
        self._call = None
        self._settle(last=True)

    def _handle(self, job: LeasedJob, now: float) -> bool:
        """Call the handler of a message; False: another thread has ended the work on the span."""
        handling = self._spec(job)
        if not isinstance(handling, HandlerSpec):
            self.results.setdefault(job.id, handling)
            return True
        self._call = job, handling, now
        if self.over:
            return False  # another thread has just ended the work, with or without this call
        self._slots.run.results.started(job)
        outcome, reason = parked(job, self._slots.run.execution.call(job, handling), self._slots.run.worker.options)
        done = JobResult(job, handling, outcome, time.monotonic() - now, reason=reason)
        if self.results.setdefault(job.id, done) is not done:
            log.warning("%r: the handler ended after its span was lost or released; the result does not count", job)
            return False
        job.ran = done.seconds
        if isinstance(outcome, BaseException):
            late = is_last(job, handling, outcome) or isinstance(outcome, LeaseLostError)  # logged when the message is settled
            if job.settled_by is not None or not late:
                log_failure(job, outcome, job.settled_by, done.seconds)
        return True

    def _settle(self, *, last: bool) -> None:
        """Settle the messages whose handlers have ended. With ``last`` also complete the span, or release the rest of it."""
        with self._lock:
            if not self.over:
                self.over = last
                self._report(last=last)

    # --- other threads ----------------------------------------------------------------------------------------------

    def extend(self, *, wait: bool = False) -> bool:
        """Extend the lease; False: try again soon.

        :param wait: whether to wait while another thread settles or extends the span.
        """
        if not self._lock.acquire(blocking=wait):
            return False
        try:
            return self.over or self._extend()
        except StorageError as error:
            self._outage.failed(f"extending a span of {self._source.name!r}", error, self._slots.lease / 20)
            return False
        finally:
            self._lock.release()

    def check_timeout(self) -> None:
        """Fail the message whose handler runs longer than its timeout, and release the rest: the thread keeps the slot."""
        call = self._call
        if call is None or self.over:
            return
        job, handling, began = call
        if handling.timeout is None or not handling.watched or time.monotonic() < began + handling.timeout:
            return
        error = timeout_error(handling)
        if self._decide(call, error):
            if not is_last(job, handling, error):
                log.warning("%r: no result after %g s; its thread keeps a slot until it returns", job, handling.timeout)
            # In a thread of its own: it may wait for a lock, or for a database that does not answer, and other spans have timeouts.
            name = "queue_db timeout in a span"
            threading.Thread(target=self._settle, kwargs={"last": True}, name=name, daemon=True).start()

    def end(self) -> None:
        """Settle the results at the end of the run, and release the rest, including the message whose handler runs."""
        with self._lock:
            if not self.over:
                self.over = True
                call = self._call
                if call is not None:
                    self._decide(call, Released())
                self._report(last=True)

    def _decide(self, call: _Call, outcome: object) -> bool:
        """Abandon the message of a call, with this outcome; False: the message has a result already."""
        job, handling, began = call
        done = JobResult(job, handling, outcome, time.monotonic() - began)
        if self.results.setdefault(job.id, done) is not done:
            return False
        self.abandoned_since = time.monotonic()
        self._slots.run.execution.cancel(job)
        return True

    # --- under the lock ---------------------------------------------------------------------------------------------

    def _extend(self) -> bool:
        span, now = self._source.span, time.monotonic()
        verdict = span.extend_unlocked(self._slots.lease)
        self._outage.worked()
        if verdict is Verdict.APPLIED:
            self.valid_until = now + self._slots.lease
            self._source.extended(now, self._slots.lease)
        elif verdict is Verdict.LOST and self._ended():
            return True
        elif verdict is Verdict.LOST:
            self.over = True
            call = self._call
            if call is not None:
                self._decide(call, LeaseLost())
            self._lost(self._unreported())
        return verdict is not None

    def _ended(self) -> bool:
        """Whether each message is settled, the last one by its handler: then the span has ended, and is not lost."""
        reported = set(islice(list(self.results), self._reported))
        return all(message.seq in self._source.settled or message.seq in reported for message in self._source.span.messages)

    def _unreported(self) -> list[JobResult]:
        unreported = list(islice(list(self.results.values()), self._reported, None))
        self._reported += len(unreported)
        return unreported

    def _report(self, *, last: bool) -> None:
        source, results = self._source, self._unreported()
        released = [results.pop()] if results and isinstance(results[-1].outcome, Released) else []
        # Computed from the results that were taken above: the slot may add a result, which is not reported here.
        left = bool(released) or self._reported < len(source.span.messages)
        for done in results if source.used else ():
            if done.job.settled:
                self._settled_before(done)
        outcomes = [(done, *source.failure(done)) for done in results if not done.job.settled]
        whole = last and not left and not source.used and bool(results)
        # If every message has a result, a message that is left is not released, and its attempt counts. Otherwise it would be
        # repeated at once, again and again.
        release = last and left
        verdict: Verdict | None = Verdict.APPLIED
        if outcomes or release:
            failures = [failure for _, _, failure in outcomes if failure is not None]
            seqs = None if whole else [done.job.id for done, _, failure in outcomes if failure is None]
            verdict = self._try(seqs, failures, release=release)
        if verdict is Verdict.LOST:
            self.over = True
            self._lost([*(done for done, _, _ in outcomes), *(done._replace(outcome=LeaseLost()) for done in released)])
            return
        if verdict is None:
            source.used = True  # the messages are not settled: they come back when the lease ends
        self._settled(outcomes, verdict)
        for done in released:
            self._was_released(done, verdict)

    def _settled_before(self, done: JobResult) -> None:
        """Report a message that its handler has settled, and settle it again if that was perhaps rolled back."""
        verb, failure = self._source.failure(done)
        unconfirmed = done.job.unconfirmed is not None
        verdict: Verdict | None = Verdict.LOST
        if failure is not None:
            verdict = self._try([], [failure])
        elif unconfirmed:
            verdict = self._try([done.job.id], [])
        if verdict:
            done.job.settled_by = verb
            if failure is not None and failure.dead:
                self._died(done)
        self._slots.run.results.settled(done, None if unconfirmed and verdict is None else Verdict.APPLIED)

    def _try(self, seqs: Sequence[int] | None, failures: Sequence[Failure], *, release: bool = False) -> Verdict | None:
        """Settle, with retries while the database does not answer; None: it did not, or the outcome is unknown.

        At the end of the run it does not wait for a handler's transaction that has locked the span.
        """
        name, closing = self._source.name, self._slots.closing
        retry, until, unknown = Pause(*self._slots.run.retry), time.monotonic() + REPORT_FOR, False
        while True:
            try:
                verdict = self._source.span.settle(seqs, failures, release=release, wait=not closing.is_set())
            except StorageError as error:
                unknown = unknown or error.outcome_unknown
                wait = retry.next()
                if time.monotonic() + wait > until or closing.wait(wait):
                    log.warning("%r: a span could not be settled and comes back when its lease ends: %s", name, error)
                    self._outage.gave_up()
                    return None
                self._outage.failed(f"settling a span of {name!r}", error, wait)
            except Exception:
                log.exception("%r: a span could not be settled and comes back when its lease ends", name)
                return None
            else:
                self._outage.worked()
                if verdict is not Verdict.LOST or not unknown:
                    return verdict
                log.warning("%r: whether results of a span count is unknown: the connection broke during the commit", name)
                return None

    # --- results ----------------------------------------------------------------------------------------------------

    def _spec(self, job: LeasedJob) -> HandlerSpec | JobResult:
        """The handler of a message; without one the outcome: it becomes a job, which waits for a worker that has one."""
        worker = self._slots.run.worker
        try:
            return worker.handlers.of(job)
        except UnknownKindError as error:
            outcome, reason = parked(job, error, worker.options)
            return JobResult(job, None, outcome, reason=reason)

    def _settled(self, outcomes: Sequence[tuple[JobResult, str, Failure | None]], verdict: Verdict | None) -> None:
        """Count and report results of messages, each with its verb and the job that the message becomes."""
        completed = []
        for done, verb, failure in outcomes:
            if verdict is not None:
                done.job.settled_by = verb
            if verdict is not None and verb == "complete":
                completed.append(done)
                continue
            if failure is not None and failure.dead and verdict is not None:
                self._died(done)
            self._slots.run.results.settled(done, verdict)
        self._slots.run.results.completed(completed)

    def _died(self, done: JobResult) -> None:
        rejected = DeathReason.REJECTED if isinstance(done.outcome, Dead) else DeathReason.FAILED
        self._slots.run.results.ended(done)
        self._source.died(done.job, reason_of(done.outcome), done.reason or rejected)

    def _was_released(self, done: JobResult, verdict: Verdict | None) -> None:
        """A message was released while its handler runs, unless the verdict is None; the handler may have settled it."""
        done.job.settled_by = done.job.settled_by or "release"
        verdict = Verdict.APPLIED if verdict or done.job.settled else None
        self._slots.run.results.settled(done._replace(outcome=None), verdict)

    def _lost(self, results: Sequence[JobResult]) -> None:
        """Report that the span is lost with these results."""
        count = sum(not isinstance(done.outcome, LeaseLost) for done in results)
        message = "%r: %r is lost: another worker has it; the results of %d messages do not count"
        log.warning(message, self._source.name, self._source, count)
        for done in results:
            self._slots.run.results.settled(done, Verdict.APPLIED if done.job.settled else None)
