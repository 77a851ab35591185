"""The claim loop: one thread claims for all queues of a worker, as many jobs as there are free slots, and waits between claims."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress

from queue_db.concurrency.pauses import Idle, Pause
from queue_db.db import QueueDB
from queue_db.errors import QueueDBError
from queue_db.leased_job import LeasedJob
from queue_db.notifications.wakeup import Wakeup
from queue_db.store.wakeups import cancelled_in
from queue_db.verbs.claim import MAX_CLAIM
from queue_db.worker.allowance import Allowance
from queue_db.worker.outages import outages_of
from queue_db.worker.pace import Pace
from queue_db.worker.shares import Shares
from queue_db.worker.turns import Turns

log = logging.getLogger("queue_db.worker")

#: While some queues have jobs, the others are polled once in this many seconds, or once in this many jobs, …
POLL_EVERY = 0.05
POLL_AFTER = 100

#: … but not before this many times the duration of the last poll has passed: polls take a fortieth of the time at most.
POLL_REST = 40

#: While there is no wait, notifications of cancelled jobs are read once in this many seconds.
READ_EVERY = 0.05

# Seconds of the longest wait when all queues with free places are paused or at their limits.
_REFUSED = 0.05


class Claimer:
    """The claim loop.

    :param in_hand: how many jobs of a queue are in hand; of None: of all queues.
    :param take: gets the claimed jobs.
    :param idle: whether no job is in hand and all results are reported.
    :param quiet: while it is set, nothing is claimed.
    :param cancelled: gets the ids of cancelled jobs, from notifications.
    """

    def __init__(
        self,
        db: QueueDB,
        shares: Shares,
        *,
        lease: float,
        at_most_once: bool,
        poll: float,
        retry: tuple[float, float],
        in_hand: Callable[[str | None], int],
        take: Callable[[str, Sequence[LeasedJob]], None],
        idle: Callable[[], bool],
        quiet: threading.Event,
        cancelled: Callable[[set[int]], None],
    ) -> None:
        self._db = db
        self._shares = shares
        # The fewest free places for which a claim is worth a statement.
        self._fewest = max(1, shares.ahead // 2)
        self._lease = lease
        self._micros = round(lease * 1_000_000)
        self._at_most_once = at_most_once
        self._in_hand = in_hand
        self._take = take
        self._idle_now = idle
        self._idle = Idle(poll)
        self._longest = poll
        self._retry = Pause(*retry)
        self._outage = outages_of(db.url).activity()
        self.wakeup = Wakeup(lambda: db.database.listen(db.notifications.channel), retry)
        # Queues whose last claim got all that it asked for: the next claim probably gets jobs too.
        self._promising: set[str] = set()
        self._turns = Turns(list(shares.queues), shares.weights)
        self._rank = {queue: rank for rank, queue in enumerate(shares.queues)}
        self._polled_at = 0.0
        self._poll_took = 0.0
        self._claimed_since = 0  # jobs since the last poll
        # While the claimer waits for a slot: the most jobs in hand with which a claim is worth it; otherwise -1.
        self._hungry_at = -1
        self._pace = Pace(lambda: in_hand(None))
        self._until_empty = False
        self.stopping = threading.Event()
        self._quiet = quiet
        self._cancelled = cancelled
        self._read_at = 0.0
        self._allowance = Allowance(
            db, shares.queues, lease, most=lambda queue: min(shares.queues[queue], shares.total) + shares.ahead, in_hand=in_hand
        )

    def run(self, *, until_empty: bool) -> None:
        """Claim until :meth:`stop`; with ``until_empty`` also until no job is due or in hand."""
        self._until_empty = until_empty
        self._db.notifications.add(self.wakeup.set)
        try:
            while not self.stopping.is_set():
                try:
                    if not self._round():
                        return
                except Exception as error:  # noqa: BLE001 - logged by the outage, an unexpected one with its traceback
                    wait = self._retry.next()
                    self._outage.failed(f"claiming from {', '.join(map(repr, self._shares.queues))}", error, wait)
                    self.stopping.wait(wait)
        finally:
            self._outage.ended()
            self._db.notifications.remove(self.wakeup.set)
            self.wakeup.close()

    def return_shares(self) -> None:
        """Return the shares of limited queues: no job is in hand."""
        try:
            self._allowance.return_all()
        except QueueDBError as error:
            log.debug("the shares of limited queues could not be returned and expire: %s", error)

    def keep_allowance(self) -> None:
        """Keep the shares of limited queues, in the claimer's thread while it does not claim."""
        with suppress(QueueDBError):
            self._allowance.refresh()

    def stop(self) -> None:
        """Stop claiming. From any thread."""
        self.stopping.set()
        self.wakeup.set()

    def freed(self, seconds: float | None) -> None:
        """A slot is free. From any thread, after each job: it costs little unless the claimer waits for a slot.

        :param seconds: how long the handler took; None: it was not called.
        """
        self._pace.ended(seconds)
        if self._hungry_at >= 0 and self._in_hand(None) <= self._hungry_at and self._room():
            self._hungry_at = -1
            self.wakeup.set()

    # --- one round --------------------------------------------------------------------------------------------------

    def _round(self) -> bool:
        """Claim, poll or wait, once; False: there is nothing more to do."""
        if time.monotonic() - self._read_at >= READ_EVERY:
            self._wait(0.0)
        if self._promising:
            self._pace.wait()
        room = self._room()
        if not room:
            self._hungry_at = self._shares.slots - self._fewest
            room = self._room()  # a slot that was freed just before sets no wakeup
            if not room:
                self._wait(self._longest)
                return True
        self._hungry_at = -1
        if self.stopping.is_set():
            return True  # the slot may be free because a job ended after stop(): that job was the last one
        self._allowance.refresh()
        # Set before the limits are read: a job that ends from now on ends the wait.
        if self._allowance.limited:
            self._hungry_at = self._shares.slots
        room = {queue: places for queue, most in room.items() if (places := self._allowance.places(queue, most))}
        if not room:
            if self._until_empty and self._idle_now() and all(map(self._allowance.paused, self._shares.queues)):
                return False
            self._wait(min(self._longest, _REFUSED, self._allowance.wait()))
            return True
        promising = {queue: places for queue, places in room.items() if queue in self._promising}
        if not promising or self._poll_is_due(room) or not self._claim_all(promising, room):
            return self._poll_queues(room)
        return True

    def _claim_all(self, promising: Mapping[str, int], room: Collection[str]) -> bool:
        """Claim from each of the ``promising`` queues its part; False: no job came, probably since a higher queue has due jobs."""
        won = 0
        began, in_hand = time.monotonic(), self._in_hand(None)
        left = self._shares.slots - in_hand
        # Higher queues that are not claimed from in this round: they may have got jobs since the last poll.
        unasked = [queue for queue in room if queue not in promising] if self._turns.strict else []
        guarded = refused = False
        for queue, most in self._turns.split(promising, left).items():
            wanted = min(most, left - won, MAX_CLAIM)
            allowed = self._allowance.spend(queue, wanted) if wanted > 0 else 0
            came = 0
            if allowed:
                before = [one for one in unasked if self._rank[one] < self._rank[queue]]
                guarded = guarded or bool(before)
                came = self._claim(queue, allowed, before)
            else:
                refused = True
                # Other workers use what the limit allows, and may have claimed the last job: poll before the next claim.
                self._promising.discard(queue)
            self._turns.came(queue, most, came)
            won += came
        if won == left and not self._shares.ahead:
            self._pace.claimed(time.monotonic() - began, in_hand)
        if not won and not guarded and not refused:
            # Other workers have claimed all of them.
            self._wait(self._idle.next())
        return won > 0 or not guarded

    def _poll_is_due(self, room: Collection[str]) -> bool:
        """Whether to poll: queues without jobs may have some now, and they are not all lower than those with jobs."""
        since = time.monotonic() - self._polled_at
        if (self._claimed_since < POLL_AFTER and since < POLL_EVERY) or since < POLL_REST * self._poll_took:
            return False
        others = [queue for queue in room if queue not in self._promising]
        if not self._turns.strict:
            return bool(others)
        last = max(self._rank[queue] for queue in self._promising if queue in room)
        return any(self._rank[queue] < last for queue in others)

    def _claim(self, queue: str, wanted: int, before: Collection[str]) -> int:
        """Claim up to ``wanted`` jobs of a queue while none is due in the queues ``before`` it; return how many came."""
        source = self._db.queue(queue)
        try:
            if before:
                jobs = source.claim_unless(before, wanted, self._lease, delete=self._at_most_once)
            else:
                jobs = source.claim(wanted, self._lease, delete=self._at_most_once)
        except BaseException:
            self._allowance.refund(queue, wanted)
            raise
        self._claimed_since += len(jobs)
        if len(jobs) < wanted:
            if self._turns.strict or not jobs:
                self._promising.discard(queue)
            self._allowance.refund(queue, wanted - len(jobs))
        if jobs:
            for job in jobs:
                job.leased_for(self._micros)
            self._retry.reset()
            self._outage.worked()
            self._idle.worked()
            self._take(queue, jobs)
        return len(jobs)

    def _poll_queues(self, room: Mapping[str, int]) -> bool:
        """Read which queues have due jobs, and wait if none has."""
        # Read before the poll: if no job was in hand then, no handler here can have enqueued one since.
        idle = self._idle_now()
        began = time.monotonic()
        waits = self._db.upcoming(room)
        self._polled_at, self._claimed_since = time.monotonic(), 0
        self._poll_took = self._polled_at - began
        self._retry.reset()
        self._outage.worked()
        due = {queue for queue, wait in waits.items() if wait is not None and wait <= 0}
        if due:
            self._promising |= due
            return True
        # A queue at its limit was not polled: it may have due jobs.
        if self._until_empty and idle and all(queue in room or self._allowance.paused(queue) for queue in self._shares.queues):
            return False
        self._wait(self._until(waits))
        return True

    def _until(self, waits: Mapping[str, float | None]) -> float:
        """Seconds to wait: until the next job is due, or until the next poll for jobs that are due before it."""
        return min([self._idle.next(), self._allowance.wait(), *(wait for wait in waits.values() if wait is not None)])

    def _wait(self, seconds: float) -> None:
        named = self.wakeup.wait(seconds)
        self._read_at = time.monotonic()
        if cancelled := cancelled_in(named):
            self._cancelled(cancelled)
        self._promising |= named & self._shares.queues.keys()

    def _room(self) -> dict[str, int]:
        """How many more jobs may be claimed of each queue; empty until there are enough for a statement."""
        if self._quiet.is_set():
            return {}
        shares = self._shares
        free = shares.slots - self._in_hand(None)
        if free < self._fewest:
            return {}
        if len(shares.queues) == 1:
            return dict.fromkeys(shares.queues, free)
        room = {queue: min(free, most + shares.ahead - self._in_hand(queue)) for queue, most in shares.queues.items()}
        return {queue: places for queue, places in room.items() if places >= self._fewest}
