"""Slots of a worker for feeds: each is a thread that claims spans of a shared cursor and calls the handlers of their messages."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Container, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from queue_db import arguments
from queue_db.concurrency.pauses import Pause
from queue_db.db import QueueDB
from queue_db.errors import ArgumentError, ConfigurationError, FeedError, QueueDBError, StorageError
from queue_db.feeds import SharedCursor, Span
from queue_db.feeds.worker.idle_poller import IdlePoller
from queue_db.feeds.worker.messages import MessageSource
from queue_db.feeds.worker.span_work import SpanWork
from queue_db.leased_job import claimed_by
from queue_db.store.schema import CURSOR_LENGTH, FEED_LENGTH
from queue_db.worker.logs import Activity
from queue_db.worker.options import MOST_SLOTS

if TYPE_CHECKING:
    from queue_db.worker.run import Run
    from queue_db.worker.worker import Worker

log = logging.getLogger("queue_db.worker")

# Seconds that the end of a run waits for the spans of all slots to be settled and released; then their leases end.
_END = 5.0


def open_cursors(db: QueueDB, names: Iterable[str]) -> None:
    """Open these shared cursors (``feed:cursor``); those that are missing are created.

    :raises ConfigurationError: one is not shared, or its feed cannot have shared cursors.
    """
    for name in names:
        with suppress(StorageError):  # then its slots try
            try:
                _opened(db, name)
            except FeedError as error:
                feed, _, cursor = name.rpartition(":")
                row = db.feed(feed).existing()
                if row is not None and row.max_attempts is not None:
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
    existed = feed.existing() is not None
    known = existed and any(reader.name == cursor for reader in feed.cursors())
    opened = feed.shared(cursor, on_trimmed="skip")
    if not existed:
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
        slots, retry = self._slots, Pause(*self._slots.run.retry)
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
            # Even after an unexpected error: the heartbeat must not extend the lease any more.
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
            # A cursor that was removed is not created again: it would begin anew. If the feed is a new one, the cursor is created.
            if shared.feed.row(fresh=True).id == shared.feed_id:
                raise
            self._cursor = None
            return None
        finally:
            if shared.skipped > before:
                log.warning("%r: %d messages were trimmed before they were claimed", self._name, shared.skipped - before)


class FeedSlots:
    """The slots of one run, for all its feeds: the :class:`queue_db.slices.Slots` of the option ``feeds``."""

    def __init__(self, run: Run) -> None:
        worker = run.worker
        self.run = run
        self.db = worker.db
        #: Set when nothing more is claimed and no more handlers are called.
        self.stopping = run.stopping
        #: Set when reports are no longer tried again and no longer wait for transactions of handlers.
        self.closing = threading.Event()
        self.quiet = worker.quieted
        self.lease, self.poll, self.size = worker.options.lease, worker.options.poll, worker.options.span
        feeds = worker.options.feeds
        self._lookouts = {
            name: IdlePoller(self.db.core, name.rpartition(":")[0], self.poll, leave=self._inactive) for name in feeds
        }
        self._slots = [
            Slot(self, name, self._lookouts[name], run.activity()) for name, slots in feeds.items() for _ in range(slots)
        ]
        self._threads: list[threading.Thread] = []

    # --- before a run -----------------------------------------------------------------------------------------------

    @staticmethod
    def checked(names: Mapping[str, int]) -> dict[str, int]:
        """How many slots each shared cursor has, by ``feed:cursor``.

        :raises ArgumentError: a value is outside its allowed range.
        """
        if not isinstance(names, Mapping):
            raise ArgumentError(f"feeds={arguments.shown(names)}: must be a mapping from feed:cursor to a number of slots")
        for name, number in names.items():
            feed, colon, cursor = name.rpartition(":") if isinstance(name, str) else ("", "", "")
            if not colon:
                raise ArgumentError(f"feeds: {arguments.shown(name)} must be feed:cursor, such as orders:mailers")
            arguments.name("feed", feed, FEED_LENGTH)
            arguments.name("cursor", cursor, CURSOR_LENGTH)
            arguments.whole(f"feeds[{name!r}]", number, 1, MOST_SLOTS)
        return dict(names)

    @staticmethod
    def queues(names: Mapping[str, int]) -> list[str]:
        """The queues in which messages that fail become jobs."""
        return list(dict.fromkeys(name.rpartition(":")[2] for name in names))

    @staticmethod
    def prepare(worker: Worker) -> None:
        """Open the shared cursors, which creates those that are missing.

        :raises ConfigurationError: a cursor is not shared, or its feed cannot have shared cursors.
        """
        open_cursors(worker.db, worker.options.feeds)
        warn_of_failed(worker.options.feeds, worker.options.limits)

    # --- the run ----------------------------------------------------------------------------------------------------

    def start(self, *, until_empty: bool) -> None:
        """Start a thread for each slot."""
        for number, slot in enumerate(self._slots, 1):
            self._threads.append(self.run.thread(f"feed slot {number}", self._run, slot, until_empty))

    def _run(self, slot: Slot, until_empty: bool) -> None:
        with claimed_by(self.run):
            slot.run(until_empty=until_empty)

    def _inactive(self) -> bool:
        return self.stopping.is_set() or self.quiet.is_set()

    @property
    def busy(self) -> bool:
        """Whether a slot still works. A slot does not if its message was abandoned and the handler does not return."""
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
        extended = [work.extend() for work in self._work()]
        return self.lease / 3 if all(extended) else self.lease / 20

    def check_timeouts(self) -> None:
        """End the calls that take longer than their timeouts."""
        for work in self._work():
            work.check_timeout()

    def wake(self) -> None:
        """End the waits of idle slots if the worker stops or is quiet."""
        for lookout in self._lookouts.values():
            lookout.wake()

    def end(self) -> None:
        """End the work on the spans in hand, and settle or release them."""
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
