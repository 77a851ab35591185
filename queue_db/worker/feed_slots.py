"""Slots of a worker for feeds: each is a thread that claims spans of a shared cursor and calls the handlers of their messages."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Container, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from queue_db.concurrency.pauses import Pause
from queue_db.db import QueueDB
from queue_db.errors import ConfigurationError, FeedError, QueueDBError, StorageError, UnknownKindError
from queue_db.feeds import SharedCursor, Span
from queue_db.feeds.shared import Failure
from queue_db.leased_job import LeasedJob, claimed_by
from queue_db.model import DeathReason, Verdict
from queue_db.notifications.deaths import Death
from queue_db.outcomes import Dead
from queue_db.verbs.settle import error_text
from queue_db.worker.completer import JobResult, LeaseLost, Unknown, reason_of
from queue_db.worker.events import Results
from queue_db.worker.executor import Execution
from queue_db.worker.handlers import HandlerSpec
from queue_db.worker.idle_poller import IdlePoller
from queue_db.worker.logs import Activity
from queue_db.worker.messages import MessageSource
from queue_db.worker.span_work import SpanWork

if TYPE_CHECKING:
    from queue_db.worker.worker import Worker

log = logging.getLogger("queue_db.worker")

# Seconds between two checks of timeouts, at most.
_CHECK_TIMEOUTS = 0.5

# Seconds that the end of a run waits for the spans of all slots to be settled and released; then their leases end.
_END = 5.0


def open_cursors(db: QueueDB, names: Iterable[str]) -> None:
    """Open these shared cursors (``feed:cursor``), which creates those that are not there.

    :raises ConfigurationError: one is not shared, or its feed cannot have shared cursors.
    """
    for name in names:
        with suppress(StorageError):  # then its slots try
            try:
                _opened(db, name)
            except FeedError as error:
                feed, _, cursor = name.rpartition(":")
                found = db.feed(feed).existing()
                if found is not None and found.max_attempts is not None:
                    advice = "name a feed without claims in feeds= or --feed"
                else:
                    advice = (
                        f"name another cursor for {name!r} in feeds= or --feed, or remove this one with `queue-db cursors remove "
                        f"{feed} {cursor}`"
                    )
                raise ConfigurationError(f"{error}; a worker takes shared cursors only: {advice}") from error


def warn_of_failed(feeds: Iterable[str], queues: Container[str]) -> None:
    """Warn where messages that fail become jobs of a queue that the worker does not run.

    :param feeds: its shared cursors, ``feed:cursor``.
    """
    for name in feeds:
        queue = name.rpartition(":")[2]
        if queue not in queues:
            log.warning("messages of %r that fail become jobs of the queue %r, which this worker does not run", name, queue)


def _opened(db: QueueDB, name: str) -> SharedCursor:
    feed_name, _, cursor = name.rpartition(":")
    feed = db.feed(feed_name)
    # A mistyped name is a new feed or cursor, without messages.
    found = feed.existing() is not None
    known = found and any(one.name == cursor for one in feed.cursors())
    opened = feed.shared(cursor, on_trimmed="skip")
    if not found:
        log.warning("there was no feed %r: it was created, with cursor %r; is the name right?", feed_name, cursor)
    elif not known:
        log.warning("feed %r had no cursor %r: it was created, before the first message; is the name right?", feed_name, cursor)
    return opened


class Slot:
    """One slot: its thread claims spans and works on them, one after the other.

    :param name: feed and cursor.
    """

    def __init__(self, slots: FeedSlots, name: str, lookout: IdlePoller, activity: Activity) -> None:
        self._slots = slots
        self._name = name
        self._lookout = lookout
        self._outage = activity
        self._cursor: SharedCursor | None = None
        #: The span in hand.
        self.work: SpanWork | None = None

    def run(self, *, until_empty: bool) -> None:
        """Claim and work until the worker stops; with ``until_empty`` until there is nothing to claim."""
        slots, retry = self._slots, Pause(*self._slots.retry)
        while not slots.stopping.is_set():
            if slots.quiet.is_set():
                slots.stopping.wait(slots.poll)
                continue
            try:
                work = self._claim()
                if work is None and until_empty:
                    return
                work = work or self._lookout.wait(self._claim)
                if work is not None:
                    self._run(work)
            except QueueDBError as error:
                if until_empty and isinstance(error, FeedError):
                    log.error("%r is not worked on: %s", self._name, error)  # noqa: TRY400 - no traceback
                    return
                wait = retry.next()
                self._outage.failed(f"claiming from {self._name!r}", error, wait)
                slots.stopping.wait(wait)
            except Exception:
                log.exception("%r failed", self._name)
                slots.stopping.wait(retry.next())
            else:
                retry.reset()

    def _run(self, work: SpanWork) -> None:
        self.work = work
        try:
            work.run()
        finally:
            # After an unexpected error too: then nobody extends the lease any more.
            self.work = None

    def _claim(self) -> SpanWork | None:
        """Claim a span; None: there is none."""
        began = time.monotonic()
        span = self._claim_span()
        self._outage.worked()
        if span is None:
            return None
        source = MessageSource(span, self._name, self._slots.db)
        source.extended(began, self._slots.lease)
        return SpanWork(self._slots, source, self._outage, began + self._slots.lease)

    def _claim_span(self) -> Span | None:
        shared = self._cursor = self._cursor or _opened(self._slots.db, self._name)
        before = shared.skipped
        try:
            return shared.claim(self._slots.size, lease=self._slots.lease)
        except FeedError:
            # A cursor that was removed is not created again: it would begin anew. In a new feed of this name it is.
            if shared.feed.row(fresh=True).id == shared.feed_id:
                raise
            self._cursor = None
            return None
        finally:
            if shared.skipped > before:
                log.warning("%r: %d messages were trimmed before they were claimed", self._name, shared.skipped - before)


class FeedSlots:
    """The slots of one run, for all its feeds.

    :param stopping: set when nothing more is claimed and no more handlers are called.
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
        #: Set when reports are not tried again, and wait for no handler's transaction.
        self.closing = threading.Event()
        self.quiet = worker.quieted
        self.retry = retry
        self.lease, self.poll, self.size = worker.options.lease, worker.options.poll, worker.options.span
        feeds = worker.options.feeds
        self._lookouts = {
            name: IdlePoller(self.db.core, name.rpartition(":")[0], self.poll, leave=self._inactive) for name in feeds
        }
        self._slots = [Slot(self, name, self._lookouts[name], activity()) for name, slots in feeds.items() for _ in range(slots)]
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

    def _inactive(self) -> bool:
        return self.stopping.is_set() or self.quiet.is_set()

    @property
    def busy(self) -> bool:
        """Whether a slot still works; one whose handler does not return although its message was taken from it does not."""
        return any(
            thread.is_alive() and ((work := slot.work) is None or work.abandoned_since is None)
            for slot, thread in zip(self._slots, self._threads, strict=False)
        )

    @property
    def in_hand(self) -> int:
        """Messages whose handlers run."""
        return sum(work.calling for work in self._work())

    def stuck(self, longer: float) -> int:
        """How many handlers have not returned although their messages were taken from them more than ``longer`` seconds ago."""
        before = time.monotonic() - longer
        return sum(1 for work in self._work() if (since := work.abandoned_since) is not None and since <= before)

    def beat(self) -> float:
        """A task of the heartbeat: extend all spans; return how many seconds to wait."""
        done = [work.extend() for work in self._work()]
        return self.lease / 3 if all(done) else self.lease / 20

    def check_timeouts(self) -> float:
        """A periodic task: end the calls that take longer than their timeouts."""
        for work in self._work():
            work.check_timeout()
        timeouts = [one.timeout for one in self._worker.handlers.all() if one.timeout is not None and one.watched]
        return min([_CHECK_TIMEOUTS, *(one / 4 for one in timeouts)])

    def wake(self) -> None:
        """End the waits of idle slots if the worker stops or is quiet."""
        for lookout in self._lookouts.values():
            lookout.wake()

    def end(self) -> None:
        """Take the spans from the slots that still work."""
        self.closing.set()
        self.wake()
        # Each in a thread of its own: one may wait for a lock, or for a database that does not answer.
        ends = [threading.Thread(target=work.end, name="queue_db end of a span", daemon=True) for work in self._work()]
        for thread in ends:
            thread.start()
        until = time.monotonic() + _END
        for thread in ends:
            thread.join(max(0.0, until - time.monotonic()))
        for lookout in self._lookouts.values():
            lookout.close(max(0.0, until - time.monotonic()))

    def _work(self) -> list[SpanWork]:
        return [work for slot in self._slots if (work := slot.work) is not None]

    # --- for the work on a span ---------------------------------------------------------------------------------------

    def handling(self, job: LeasedJob) -> HandlerSpec | JobResult:
        """The handler of a message; without one the outcome: it becomes a job, which waits for a worker that has one."""
        options = self._worker.options
        try:
            return self._worker.handlers.of(job)
        except UnknownKindError as error:
            if options.unknown == "dead":
                return JobResult(job, None, Dead(f"parked: {error}"), object(), reason=DeathReason.UNKNOWN_KIND)
            return JobResult(job, None, Unknown(error, options.unknown_grace), object())

    def settled(self, outcomes: Sequence[tuple[JobResult, str, Failure | None]], verdict: Verdict | None) -> None:
        """Count and report results of messages, each with its verb and the job that the message becomes."""
        completed = []
        for one, verb, failure in outcomes:
            if verdict is not None:
                one.job.settled_by = verb
            if verdict is None or verb != "complete":
                self._settled(one, verdict, dead=failure is not None and failure.dead)
            else:
                completed.append(one)
        self.results.completed(completed)

    def _settled(self, done: JobResult, verdict: Verdict | None, *, dead: bool) -> None:
        if dead and verdict is not None:
            done.job.dead = True
            error = reason_of(done.outcome)
            rejected = DeathReason.REJECTED if isinstance(done.outcome, Dead) else DeathReason.FAILED
            self.results.ended(done)
            self.db.deaths.record([Death(done.job, done.reason or rejected, error_text(error), error)])
        self.results.settled(done, verdict)

    def released(self, done: JobResult, verdict: Verdict | None) -> None:
        """A message is released whose handler runs, unless the verdict is None; the handler may have settled it."""
        done.job.settled_by = done.job.settled_by or "release"
        self.results.settled(done._replace(outcome=None), Verdict.APPLIED if verdict or done.job.settled else None)

    def lost(self, source: MessageSource, done: Sequence[JobResult]) -> None:
        """A span is lost with these results."""
        count = sum(not isinstance(one.outcome, LeaseLost) for one in done)
        log.warning("%r: %r is lost: another worker has it; the results of %d messages do not count", source.name, source, count)
        for one in done:
            self.results.settled(one, Verdict.APPLIED if one.job.settled else None)
