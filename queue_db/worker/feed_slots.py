"""Slots of a worker for feeds: each is a thread that claims spans of a shared cursor and calls the handlers of their messages."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from queue_db.errors import FeedError, QueueDBError, StorageError, UnknownKindError
from queue_db.feeds import Message, SharedCursor, Span
from queue_db.leased_job import LeasedJob, claimed_by
from queue_db.model import DeathReason, Verdict
from queue_db.notifications.deaths import Death
from queue_db.outcomes import Dead
from queue_db.pauses import Idle, Pause
from queue_db.verbs.settle import error_text
from queue_db.worker.execution import Execution, log_failure
from queue_db.worker.handlers import Handling, timeout_error
from queue_db.worker.messages import MessageSource
from queue_db.worker.outages import Activity
from queue_db.worker.results import Results
from queue_db.worker.settling import Done, LeaseLost, Unknown

if TYPE_CHECKING:
    from queue_db.worker.worker import Worker

log = logging.getLogger("queue_db.worker")

#: Seconds between two reports of what is done of a span: a worker that dies repeats the messages since the last one, and the one
#: whose handler ran.
REPORT_EVERY = 1.0

#: For how long a report is tried while the database does not answer, seconds.
REPORT_FOR = 600.0

# Seconds between two checks of timeouts, at most.
_CHECK_TIMEOUTS = 0.5

# Seconds that the end of a run waits for a report that is under way.
_END = 5.0


class Slot:
    """One slot. Its thread claims and calls; the heartbeat, the check of timeouts and the end of the run may take its span away.

    :param name: feed and cursor.
    """

    def __init__(self, slots: FeedSlots, name: str, activity: Activity) -> None:
        self._slots = slots
        self._name = name
        self._outage = activity
        # Held while the span is settled or extended.
        self._lock = threading.RLock()
        self._source: MessageSource | None = None
        self._current: tuple[LeasedJob, Handling, float] | None = None
        self._pending: list[Done] = []
        self._valid_until = 0.0
        self._cursor: SharedCursor | None = None

    @property
    def in_hand(self) -> int:
        """Messages whose handler runs."""
        return int(self._current is not None)

    # --- the slot's thread ------------------------------------------------------------------------------------------

    def run(self, *, until_empty: bool) -> None:
        """Claim and work until the worker stops; with ``until_empty`` until there is nothing to claim."""
        slots = self._slots
        idle, retry = Idle(slots.poll), Pause(*slots.retry)
        while not slots.stopping.is_set():
            if slots.quiet.is_set():
                slots.stopping.wait(slots.poll)
                continue
            try:
                worked = self._round()
            except QueueDBError as error:
                if until_empty and isinstance(error, FeedError):
                    slots.refused(self._name, error)
                    return
                wait = retry.next()
                self._outage.failed(f"claiming from {self._name!r}", error, wait)
                slots.stopping.wait(wait)
            except Exception:
                log.exception("%r failed", self._name)
                slots.stopping.wait(retry.next())
            else:
                retry.reset()
                if worked:
                    idle.worked()
                elif until_empty:
                    return
                else:
                    slots.stopping.wait(idle.next())

    def _round(self) -> bool:
        """Claim a span and work on it; False: there is none."""
        claimed = time.monotonic()
        span = self._claim()
        self._outage.worked()
        if span is None:
            return False
        self._work(span, claimed)
        return True

    def _claim(self) -> Span | None:
        name, _, cursor = self._name.rpartition(":")
        feed = self._slots.db.feed(name)
        shared = self._cursor = self._cursor or feed.shared(cursor, on_trimmed="skip")
        before = shared.skipped
        try:
            return shared.claim(self._slots.size, lease=self._slots.lease)
        except FeedError:
            # A cursor that was removed is not created again: it would begin anew. In a new feed of this name it is.
            if feed.row(fresh=True).id == shared.feed_id:
                raise
            self._cursor = None
            return None
        finally:
            if shared.skipped > before:
                log.warning("%r: %d messages were trimmed before they were claimed", self._name, shared.skipped - before)

    def _work(self, span: Span, claimed: float) -> None:
        """Call the handlers of the messages, in their order, and settle the span."""
        source = MessageSource(span, self._name, self._slots.db)
        with self._lock:
            self._source, self._pending = source, []
            self._valid_until = claimed + self._slots.lease
        try:
            self._call_all(source)
        finally:
            with self._lock:
                if self._source is source:
                    self._source = None  # an unexpected error: nobody extends the lease any more

    def _call_all(self, source: MessageSource) -> None:
        reported = time.monotonic()
        for message in source.span.messages:
            if self._slots.stopping.is_set() or not self._call(source, message):
                break
            if time.monotonic() - reported >= REPORT_EVERY:
                self._report(source, last=False)
                reported = time.monotonic()
        self._report(source, last=True)

    def _call(self, source: MessageSource, message: Message) -> bool:
        """Call the handler of a message; False: the span was taken away, or its lease could not be extended."""
        job = source.job(message, self._slots.lease)
        # The process was suspended, or the database did not answer.
        if time.monotonic() >= self._valid_until and not self.extend(wait=True):
            return False
        handling = self._slots.handling(job)
        began = time.monotonic()
        with self._lock:
            if self._source is not source:
                return False
            if isinstance(handling, Handling):
                self._current = job, handling, began
        if not isinstance(handling, Handling):
            return self._ended(source, handling)
        self._slots.results.started(job)
        outcome, reason = self._slots.execution.call(job, handling), None
        if outcome is not None and outcome is job.misfit:
            outcome, reason = Dead(f"parked: {outcome}"), DeathReason.PAYLOAD
        done = Done(job, handling, outcome, object(), time.monotonic() - began, reason=reason)
        if not self._ended(source, done):
            log.warning("%r: the handler ended after its span was lost or released; the result does not count", job)
            return False
        if isinstance(outcome, BaseException):
            log_failure(job, outcome, job.settled_by, done.seconds)
        return True

    def _ended(self, source: MessageSource, done: Done) -> bool:
        with self._lock:
            self._current = None
            if self._source is not source:
                return False
            self._slots.results.ended(done)
            self._pending.append(done)
            source.ended += 1
        return True

    # --- settling, under the lock -------------------------------------------------------------------------------------

    def _report(self, source: MessageSource, *, last: bool) -> None:
        """Settle what is done; ``last``: and complete the span, or release what is left of it."""
        with self._lock:
            if self._source is not source:
                return
            done, self._pending = self._pending, []
            if last:
                self._source = None
            if done or last:
                self._settle(source, done, last=last)

    def _settle(self, source: MessageSource, done: Sequence[Done], *, last: bool) -> None:
        span = source.span
        for one in done:
            if one.job.settled:
                self._settled_before(source, one)
        rest = [one for one in done if not one.job.settled]
        verbs = [source.failure(one) for one in rest]
        failures = [failure for _, failure in verbs if failure is not None]
        seqs = [one.job.id for one, (_, failure) in zip(rest, verbs, strict=True) if failure is None]
        whole = last and not source.used and bool(done) and done[-1].job.id == span.messages[-1].seq
        verdict: Verdict | None = Verdict.APPLIED
        if whole or rest:
            verdict = self._try(partial(span.settle, None if whole else seqs, failures))
        if verdict is Verdict.LOST:
            self._source = None
            self._slots.lost(self._name, span, rest)
            return
        if verdict is None:
            source.used = True  # not completed with the others: it comes back when the lease ends
        for one, (verb, failure) in zip(rest, verbs, strict=True):
            if verdict is not None:
                one.job.settled_by = verb
            self._slots.settled(one, failure is not None and failure.dead, verdict)
        # If each message has a result and one is left, its attempt counts: released, it would be repeated at once, again and again.
        if last and not whole and verdict is not None and source.ended < len(span.messages):
            self._try(span.release)

    def _settled_before(self, source: MessageSource, one: Done) -> None:
        """A message that its handler has settled: if the handler raised then, that was perhaps rolled back."""
        verb, failure = source.failure(one)
        if failure is not None and self._try(partial(source.span.settle, [], [failure])):
            one.job.settled_by = verb
        self._slots.results.settled(one, Verdict.APPLIED)

    def _try(self, settle: Callable[[], Verdict]) -> Verdict | None:
        """The verdict, after retries while the database does not answer; None: it did not, or the outcome is unknown."""
        retry, until, unknown = Pause(*self._slots.retry), time.monotonic() + REPORT_FOR, False
        while True:
            try:
                verdict = settle()
            except StorageError as error:
                unknown = unknown or error.outcome_unknown
                wait = retry.next()
                if time.monotonic() + wait > until or self._slots.closing.wait(wait):
                    log.warning("%r: a span could not be settled and comes back when its lease ends: %s", self._name, error)
                    self._outage.ended()
                    return None
                self._outage.failed(f"settling a span of {self._name!r}", error, wait)
            except Exception:
                log.exception("%r: a span could not be settled and comes back when its lease ends", self._name)
                return None
            else:
                self._outage.worked()
                if verdict is not Verdict.LOST or not unknown:
                    return verdict
                log.warning("%r: whether results of a span count is unknown: the connection broke during the commit", self._name)
                return None

    # --- other threads ----------------------------------------------------------------------------------------------

    def extend(self, *, wait: bool = False) -> bool:
        """Extend the lease of the span; False: try again soon.

        :param wait: until it is settled, if it is now.
        """
        if not self._lock.acquire(blocking=wait):
            return False  # it is being settled
        try:
            return self._source is None or self._extend(self._source.span)
        except StorageError as error:
            self._outage.failed(f"extending a span of {self._name!r}", error, self._slots.lease / 20)
            return False
        finally:
            self._lock.release()

    def _extend(self, span: Span) -> bool:
        now = time.monotonic()
        verdict = span.extend_unlocked(self._slots.lease)
        self._outage.worked()
        if verdict is Verdict.APPLIED:
            self._valid_until = now + self._slots.lease
        elif verdict is Verdict.LOST:
            done, self._pending, self._source = self._pending, [], None
            self._end_current()
            self._slots.lost(self._name, span, done, self._current and self._current[0])
        return verdict is not None

    def check_timeout(self) -> None:
        """Fail the message whose handler runs longer than its timeout, and release the rest: the thread keeps the slot."""
        current = self._current
        if current is None:
            return
        job, handling, began = current
        if handling.timeout is None or not handling.watched or time.monotonic() < began + handling.timeout:
            return
        with self._lock:
            if self._current is not current or self._source is None:
                return
            log.warning("%r: no result after %g s; its thread keeps a slot until it returns", job, handling.timeout)
            done = Done(job, handling, timeout_error(handling), object(), handling.timeout)
            self._slots.results.ended(done)
            self._pending.append(done)
            self._source.ended += 1
            self._take_away(self._source)

    def end(self) -> None:
        """The run ends: settle what is done and release the rest, also the message whose handler runs."""
        if not self._lock.acquire(timeout=_END):
            return
        try:
            source, current = self._source, self._current
            if source is not None:
                self._take_away(source)
                if current is not None:
                    current[0].settled_by = "release"
                    self._slots.results.settled(Done(current[0], None, None, object()), Verdict.APPLIED)
        finally:
            self._lock.release()

    def _take_away(self, source: MessageSource) -> None:
        done, self._pending, self._source = self._pending, [], None
        self._end_current()
        self._settle(source, done, last=True)

    def _end_current(self) -> None:
        if self._current is not None:
            self._slots.execution.cancel(self._current[0])


class FeedSlots:
    """The slots of one run, for all its feeds.

    :param stopping: set when nothing more is claimed and no more handlers are called.
    :param closing: set when reports are not tried again.
    """

    def __init__(
        self,
        worker: Worker,
        results: Results,
        execution: Execution,
        *,
        stopping: threading.Event,
        retry: tuple[float, float],
        activity: Callable[[], Activity],
    ) -> None:
        self._worker = worker
        self.db = worker.db
        self.results = results
        self.execution = execution
        self.stopping = stopping
        self.closing = threading.Event()
        self.quiet = worker.quieted
        self.retry = retry
        self.lease, self.poll, self.size = worker.options.lease, worker.options.poll, worker.options.span
        self._slots = [Slot(self, name, activity()) for name, slots in worker.options.feeds.items() for _ in range(slots)]
        self._threads: list[threading.Thread] = []

    def __bool__(self) -> bool:
        return bool(self._slots)

    def start(self, thread: Callable[..., threading.Thread], run: object, *, until_empty: bool) -> None:
        """Start a thread for each slot."""
        for number, slot in enumerate(self._slots, 1):
            self._threads.append(thread(f"feed slot {number}", self._run, slot, run, until_empty))

    def _run(self, slot: Slot, run: object, until_empty: bool) -> None:
        with claimed_by(run):
            slot.run(until_empty=until_empty)

    @property
    def busy(self) -> bool:
        """Whether a slot still works."""
        return any(thread.is_alive() for thread in self._threads)

    @property
    def in_hand(self) -> int:
        """Messages whose handlers run."""
        return sum(slot.in_hand for slot in self._slots)

    def beat(self) -> float:
        """A task of the heartbeat: extend all spans; return how many seconds to wait."""
        done = [slot.extend() for slot in self._slots]
        return self.lease / 3 if all(done) else self.lease / 20

    def check_timeouts(self) -> float:
        """A periodic task: end the calls that take longer than their timeouts."""
        for slot in self._slots:
            slot.check_timeout()
        timeouts = [one.timeout for one in self._worker.handlers.all() if one.timeout is not None and one.watched]
        return min([_CHECK_TIMEOUTS, *(one / 4 for one in timeouts)])

    def end(self) -> None:
        """Take the spans from the slots that still work."""
        self.closing.set()
        for slot in self._slots:
            slot.end()

    # --- for the slots ----------------------------------------------------------------------------------------------

    def handling(self, job: LeasedJob) -> Handling | Done:
        """The handler of a message; without one the outcome: it becomes a job, which waits for a worker that has one."""
        options = self._worker.options
        try:
            return self._worker.handlers.of(job)
        except UnknownKindError as error:
            if options.unknown == "dead":
                return Done(job, None, Dead(f"parked: {error}"), object(), reason=DeathReason.UNKNOWN_KIND)
            return Done(job, None, Unknown(error, options.unknown_grace), object())

    def settled(self, done: Done, dead: bool, verdict: Verdict | None) -> None:
        """Count and report the result of a message."""
        if dead and verdict is not None:
            done.job.dead = True
            outcome = done.outcome
            error = error_text(outcome if isinstance(outcome, BaseException) else str(getattr(outcome, "reason", outcome)))
            rejected = DeathReason.REJECTED if isinstance(outcome, Dead) else DeathReason.FAILED
            self.db.deaths.record([Death(done.job, done.reason or rejected, error)])
        self.results.settled(done, verdict)

    def refused(self, name: str, error: FeedError) -> None:
        """A run that ends when there is nothing to claim does not wait until this cursor can be claimed from."""
        log.error("%r is not worked on: %s", name, error)

    def lost(self, name: str, span: Span, done: Sequence[Done], running: LeasedJob | None = None) -> None:
        """A span is lost with these results."""
        log.warning("%r: %r is lost: another worker has it; the results of %d messages do not count", name, span, len(done))
        if running is not None:
            done = [*done, Done(running, None, LeaseLost(), object())]
        for one in done:
            self.results.settled(one, None)
