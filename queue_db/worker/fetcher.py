"""The fetcher: one thread that claims from all queues of a worker, as many jobs as there are free slots."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from queue_db.concurrency.pauses import Idle, Pause
from queue_db.errors import QueueDBError
from queue_db.notifications.wakeup import Wakeup
from queue_db.slices import load
from queue_db.store import controls
from queue_db.store.wakeups import cancelled_in
from queue_db.verbs.claim import MAX_CLAIM
from queue_db.worker.logs import Activity, outages_of
from queue_db.worker.order import FairOrder, FetchPacing

if TYPE_CHECKING:
    from queue_db.leased_job import LeasedJob
    from queue_db.limits.limiter import RateLimiter
    from queue_db.worker.run import Run

#: Seconds between two reads of the pauses and limits of the queues.
READ_CONTROLS_EVERY = 1.0

#: While some queues have jobs, the queues without jobs are polled after this many seconds.
POLL_EVERY = 0.05
#: While some queues have jobs, the queues without jobs are polled after this many claimed jobs, even before POLL_EVERY.
POLL_AFTER = 100

#: The next poll waits for at least this many times the duration of the last poll. So polls take at most a fortieth of the time.
POLL_REST = 40

#: While the fetcher does not wait, it reads notifications of cancelled jobs once in this many seconds.
READ_EVERY = 0.05

# The longest wait while all queues with free places are paused or at their limits, seconds.
_REFUSED = 0.05


class Fetcher:
    """The claim loop of a run."""

    def __init__(self, run: Run) -> None:
        db, options = run.worker.db, run.worker.options
        self._db = db
        self._run = run
        # How many more jobs this run may claim.
        self._claims_left = options.max_jobs or sys.maxsize
        limits = options.limits
        self._queues = {name: db.queue(name) for name in limits}
        # A coroutine begins as soon as its job is claimed. So with a job that is claimed ahead, too many coroutines would run.
        self._ahead = ahead = 0 if any(spec.asynchronous for spec in run.worker.handlers.all()) else options.prefetch
        self._slots = options.slots + ahead
        # The fewest free places for which a claim ahead is worth a statement.
        self._fewest = max(1, ahead // 2)
        # The most jobs of each queue in hand, and the fewest free places for a claim. A free thread begins a job of any queue. So a
        # queue that may not fill all slots is not claimed ahead: more of its jobs would run at once than it may have in hand.
        self._places = {
            queue: (self._slots, self._fewest) if most >= options.slots else (most, 1) for queue, most in limits.items()
        }
        self._lease, self._at_most_once = options.lease, options.at_most_once
        self._in_flight = run.in_flight
        self._idle = Idle(options.poll)
        self._longest = options.poll
        self._retry = Pause(*run.retry)
        # The pauses while the groups of all due jobs are at their limits.
        self._held = Pause(0.005, _REFUSED)
        self._outage = Activity(outages_of(db.url))
        self.wakeup = Wakeup(lambda: db.database.listen(db.notifications.channel), run.retry)
        # Queues that probably have due jobs, as a poll, a notification or the last claim showed.
        self._promising: set[str] = set()
        self._order = FairOrder(list(limits), options.weights)
        self._rank = {queue: rank for rank, queue in enumerate(limits)}
        self._polled_at = self._poll_took = 0.0
        self._claimed_since = 0  # jobs claimed since the last poll
        # The fetcher is woken when at most this many slots are in use; -1: the fetcher does not wait for a slot.
        self._hungry_at = -1
        self._pacing = FetchPacing(run.in_flight.slots_in_use)
        self._stopping = run.stopping
        self._quiet = run.worker.quieted
        self._read_at = 0.0
        self._controls_at = 0.0  # when to read the controls
        self._paused: set[str] = set()
        #: None: no queue has had a limit since the run began.
        self._limiter: RateLimiter | None = None

    def run(self, *, until_empty: bool) -> None:
        """Claim until :meth:`stop` is called; with ``until_empty`` end earlier if no job is due or in hand."""
        self._until_empty = until_empty
        self._take = self._run.dispatch.take
        self._db.notifications.add(self.wakeup.set)
        try:
            while not self._stopping.is_set():
                try:
                    if not (self._round() if self._claims_left > 0 else self._wait_for_the_last()):
                        return
                except Exception as error:  # noqa: BLE001 - the outage logs it, an unexpected error with its traceback
                    wait = self._retry.next()
                    self._outage.failed(f"claiming from {', '.join(map(repr, self._queues))}", error, wait)
                    self._stopping.wait(wait)
        finally:
            self._outage.ended()
            self._db.notifications.remove(self.wakeup.set)
            self.wakeup.close()

    def return_shares(self) -> None:
        """Return the shares of limited queues. Called when no job is in hand."""
        if self._limiter is not None:
            self._limiter.return_all()

    @property
    def has_shares(self) -> bool:
        """Whether this run has shares of limited queues."""
        return self._limiter is not None and self._limiter.has_shares

    def keep_shares(self) -> None:
        """Refresh the shares of limited queues before they expire. The fetcher's thread calls this while it does not claim."""
        if self._limiter is not None and time.monotonic() >= self._controls_at:
            with suppress(QueueDBError):
                self._read_controls()

    def recycle(self) -> None:
        """Claim no more jobs, and end the run when those in hand are done. Any thread may call this."""
        self._claims_left = 0

    def stop(self) -> None:
        """Stop claiming. Any thread may call this."""
        self._stopping.set()
        self.wakeup.set()

    def freed(self, seconds: float | None) -> None:
        """Note that a slot is free. Any thread calls this after each job. It costs little unless the fetcher waits for a slot.

        :param seconds: how long the handler ran; None: the handler was not called.
        """
        if not self._ahead:  # with prefetch, claims are not paced
            self._pacing.ended(seconds)
        if self._hungry_at >= 0:
            in_use = self._in_flight.slots_in_use()
            if in_use <= self._hungry_at and self._room(self._slots - in_use):
                self._hungry_at = -1
                self.wakeup.set()
        if self._stopping.is_set() and not self._in_flight:
            self._run.drained()

    # --- one round --------------------------------------------------------------------------------------------------

    def _round(self) -> bool:
        """Claim, poll or wait, once; False: there is nothing more to do."""
        if time.monotonic() - self._read_at >= READ_EVERY:
            self._wait(0.0)
        if self._pacing.until and self._promising:
            self._pacing.wait()
        free = self._slots - self._in_flight.slots_in_use()
        room = self._room(free)
        if not room:
            self._hungry_at = self._slots - self._fewest
            free = self._slots - self._in_flight.slots_in_use()  # a slot freed before _hungry_at was set did not wake this thread
            room = self._room(free)
            if not room:
                self._wait(self._longest)
                return True
        self._hungry_at = -1
        if self._stopping.is_set():
            return True  # after stop() a free slot stays free
        if time.monotonic() >= self._controls_at:
            self._read_controls()
        if self._paused or self._limiter is not None:
            room = self._allowed(room)
        if not room:
            return self._wait_for_limits()
        promising = {queue: places for queue, places in room.items() if queue in self._promising}
        poll = not promising or (len(promising) < len(room) and self._poll_is_due(room))
        if poll or not self._claim_all(promising, room, free):
            return self._poll_queues(room)
        return True

    def _wait_for_the_last(self) -> bool:
        """Wait while jobs are in hand after the last claim; then end the run to be started again."""
        if self._in_flight or self._run.completer:
            self.keep_shares()  # else they expire while a job runs that is longer than its first lease
            self._wait(min(self._longest, _REFUSED))
            return True
        self._run.recycle()
        return False

    def _wait_for_limits(self) -> bool:
        """Wait while all queues with free places are paused or at their limits; False: there is nothing more to do."""
        if self._until_empty and self._run.idle and self._queues.keys() <= self._paused:
            return False
        self._wait(min(self._longest, _REFUSED, self._limits_wait()))
        return True

    def _read_controls(self) -> None:
        """Read the pauses and limits of the queues."""
        controls_of = self._db.core.read("controls.read", controls.read, list(self._queues))
        self._controls_at = time.monotonic() + READ_CONTROLS_EVERY
        self._db.core.policies.compare({queue for queue, of_queue in controls_of.items() if of_queue.fair}, self._queues)
        self._paused = {queue for queue, of_queue in controls_of.items() if of_queue.paused}
        if self._limiter is None and any(of_queue.concurrency or of_queue.rate for of_queue in controls_of.values()):
            self._limiter = load("limits.limiter", "RateLimiter")(
                self._db, self._queues, self._lease, lambda queue: self._places[queue][0], self._in_flight.in_use
            )
        if self._limiter is not None:
            self._limiter.obey(controls_of)

    def _allowed(self, room: Mapping[str, int]) -> dict[str, int]:
        """How many jobs of each queue in ``room`` the pauses and limits allow."""
        if self._limiter is None:
            return {queue: places for queue, places in room.items() if queue not in self._paused}
        # The end of a job may free a place, so it ends the wait. Set before the limits are read, so that no end is missed.
        if self._limiter.has_shares:
            self._hungry_at = self._slots
        return self._limiter.allowed(room)

    def _limits_wait(self) -> float:
        """Seconds until a queue at its limits may be tried again."""
        return math.inf if self._limiter is None else self._limiter.wait()

    def _claim_all(self, promising: Mapping[str, int], room: Collection[str], left: int) -> bool:
        """Claim jobs from each of the ``promising`` queues, up to the queue's part of the free slots.

        Return False if no job came, probably because a queue of higher precedence has due jobs.

        :param left: free slots, including the slots for jobs that are claimed ahead.
        """
        won = 0
        began = time.monotonic()
        # Queues that had no jobs at the last poll. In strict order a claim checks those of higher precedence for new jobs.
        unasked = [queue for queue in room if queue not in promising] if self._order.strict else []
        parts = self._order.split(promising, left) if len(promising) > 1 or not self._order.strict else promising
        guarded = refused = False
        for queue, most in parts.items():
            wanted = min(most, left - won, MAX_CLAIM, self._claims_left)
            allowed = wanted if self._limiter is None or wanted <= 0 else self._limiter.take(queue, wanted)
            came = 0
            if allowed > 0:
                before = [other for other in unasked if self._rank[other] < self._rank[queue]]
                guarded = guarded or bool(before)
                came = self._claim(queue, allowed, before)
            else:
                refused = True
                # Other workers use up the limit, and may have claimed the last job. So poll before the next claim.
                self._promising.discard(queue)
            if not self._order.strict:
                self._order.came(queue, most, came)
            won += came
        if won == left and not self._ahead:
            self._pacing.claimed(time.monotonic() - began, self._slots - left, won)
        if won:
            self._held.reset()
        elif not guarded and not refused:
            held = min(map(self._db.core.policies.wait, parts))
            if held == math.inf:
                # Other workers have claimed all due jobs: wait for new ones.
                self._wait(self._idle.next())
            else:
                # The groups of the due jobs are at their limits. The end of a job here may free a place, so it ends the wait.
                self._hungry_at = self._slots
                self._wait(min(max(held, self._held.next()), _REFUSED))
        return won > 0 or not guarded

    def _poll_is_due(self, room: Collection[str]) -> bool:
        """Whether to poll the queues without jobs. In strict order such a queue must precede a queue with jobs."""
        since = time.monotonic() - self._polled_at
        if (self._claimed_since < POLL_AFTER and since < POLL_EVERY) or since < POLL_REST * self._poll_took:
            return False
        others = [queue for queue in room if queue not in self._promising]
        if not self._order.strict:
            return bool(others)
        last = max(self._rank[queue] for queue in self._promising if queue in room)
        return any(self._rank[queue] < last for queue in others)

    def _claim(self, queue: str, wanted: int, before: Collection[str]) -> int:
        """Claim up to ``wanted`` jobs of a queue if no job is due in the queues ``before``; return how many were claimed."""
        source = self._queues[queue]
        jobs: Sequence[LeasedJob] = ()
        try:
            if before:
                jobs = source.claim_if_idle(before, wanted, self._lease, delete=self._at_most_once)
            else:
                jobs = source.claim(wanted, self._lease, delete=self._at_most_once)
        finally:
            if self._limiter is not None:
                self._limiter.give_back(queue, wanted - len(jobs))
        came = len(jobs)
        self._claimed_since += came
        self._claims_left -= came
        if not jobs or (came < wanted and self._order.strict):
            self._promising.discard(queue)
        if jobs:
            if self._outage.fails:
                self._worked()
            self._idle.worked()
            self._take(queue, jobs)
        return came

    def _poll_queues(self, room: Mapping[str, int]) -> bool:
        """Read which queues have due jobs, and wait if no queue has one; False: there is nothing more to do."""
        # Read before the poll: if the run was idle then, no handler can have enqueued a job that the poll did not see.
        idle = self._run.idle
        began = time.monotonic()
        waits = self._db.next_due(room)
        self._polled_at, self._claimed_since = time.monotonic(), 0
        self._poll_took = self._polled_at - began
        if self._outage.fails:
            self._worked()
        due = {queue for queue, wait in waits.items() if wait is not None and wait <= 0}
        if due:
            self._promising |= due
            return True
        # A queue at its limit was not polled: it may have due jobs.
        if self._until_empty and idle and all(queue in room or queue in self._paused for queue in self._queues):
            return False
        self._wait(self._until(waits))
        return True

    def _worked(self) -> None:
        """Note that a statement succeeded after one that failed."""
        self._retry.reset()
        self._outage.worked()

    def _until(self, waits: Mapping[str, float | None]) -> float:
        """Seconds to wait: until the next job is due, until the next poll, or until a limited queue may be tried again."""
        return min([self._idle.next(), self._limits_wait(), *(wait for wait in waits.values() if wait is not None)])

    def _wait(self, seconds: float) -> None:
        named = self.wakeup.wait(seconds)
        self._read_at = time.monotonic()
        if cancelled := cancelled_in(named):
            self._run.execution.lease_check.check_cancelled(cancelled)
        self._promising |= named & self._queues.keys()

    def _room(self, free: int) -> dict[str, int]:
        """How many more jobs to claim from each queue, at most ``free``. Queues with too few free places are missing."""
        if self._quiet.is_set():
            return {}
        if free < self._fewest:
            return {}
        if len(self._places) == 1:
            return dict.fromkeys(self._places, free)
        in_use = self._in_flight.in_use
        room = {queue: (min(free, most - in_use(queue)), fewest) for queue, (most, fewest) in self._places.items()}
        return {queue: places for queue, (places, fewest) in room.items() if places >= fewest}
