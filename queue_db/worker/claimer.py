"""Claims jobs for free slots, one thread for all queues of a worker; and waits, no longer than it must, when there are none."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress

from queue_db.db import QueueDB
from queue_db.errors import QueueDBError
from queue_db.leased_job import LeasedJob
from queue_db.notifications.wakeups import cancelled_in
from queue_db.verbs.claim import MAX_CLAIM
from queue_db.worker.allowance import Allowance
from queue_db.worker.outages import outages_of
from queue_db.worker.pauses import Idle, Pause
from queue_db.worker.shares import Shares
from queue_db.worker.turns import Turns
from queue_db.worker.wakeup import Wakeup

log = logging.getLogger("queue_db.worker")

#: While jobs come from some queues, the others are looked at once in so many seconds, and once in so many jobs, …
LOOK_EVERY = 0.05
LOOK_AFTER = 100

#: … but a look waits for so many times the time that the last one took: looks take a fortieth of the time at most.
LOOK_REST = 40

#: A worker that need not wait hears of cancelled jobs once in so many seconds.
HEAR_EVERY = 0.05

# Seconds to rest at most when all queues that have room are paused or at their limits.
_REFUSED = 0.05


class Claimer:
    """The claim loop.

    :param in_hand: how many jobs of a queue are in hand, and with None of all.
    :param take: gets the jobs claimed.
    :param idle: whether no job is in hand, not even one that has not been reported yet.
    :param quiet: while it is set nothing is claimed.
    :param cancelled: gets the ids of jobs of which is heard that they were cancelled.
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
        self._lease = lease
        self._micros = round(lease * 1_000_000)
        self._at_most_once = at_most_once
        self._in_hand = in_hand
        self._take = take
        self._idle_now = idle
        self._idle = Idle(poll)
        self._poll = poll
        self._retry = Pause(*retry)
        self._outage = outages_of(db.url).activity()
        self.wakeup = Wakeup(lambda: db.database.listen(db.notifications.channel), retry)
        # Where the last claim won all it asked for, the next one will most likely win too.
        self._promising: set[str] = set()
        self._turns = Turns(list(shares.queues), shares.weights)
        self._place = {queue: place for place, queue in enumerate(shares.queues)}
        self._looked_at = 0.0
        self._look_took = 0.0
        self._claimed_since = 0  # jobs since the last look
        self._hungry = False
        self._until_empty = False
        self.stopping = threading.Event()
        self._quiet = quiet
        self._cancelled = cancelled
        self._heard_at = 0.0
        self._allowance = Allowance(
            db, shares.queues, lease, most=lambda queue: min(shares.queues[queue], shares.total) + shares.ahead, in_hand=in_hand
        )

    def run(self, *, until_empty: bool) -> None:
        """Claim until :meth:`stop`; ``until_empty``: or until nothing is due and nothing in hand."""
        self._until_empty = until_empty
        self._db.notifications.add(self.wakeup.set)
        try:
            while not self.stopping.is_set():
                try:
                    if not self._round():
                        return
                except Exception as error:  # noqa: BLE001 - logged there, with the traceback of what is not foreseen
                    wait = self._retry.next()
                    self._outage.failed(f"claiming from {', '.join(map(repr, self._shares.queues))}", error, wait)
                    self.stopping.wait(wait)
        finally:
            self._outage.ended()
            self._db.notifications.remove(self.wakeup.set)
            self.wakeup.close()

    def leave(self) -> None:
        """Nothing is in hand any more: let others use what this worker was allowed."""
        try:
            self._allowance.leave()
        except QueueDBError as error:
            log.debug("shares end by themselves: %s", error)

    def keep_allowance(self) -> None:
        """Keep the shares of queues with limits, from the claimer's thread while it does not claim."""
        with suppress(QueueDBError):
            self._allowance.refresh()

    def stop(self) -> None:
        """Claim no more. From any thread."""
        self.stopping.set()
        self.wakeup.set()

    def freed(self) -> None:
        """A slot is free. From any thread, after each job: it must cost nothing while nobody waits for it."""
        if self._hungry and self._room():
            self._hungry = False
            self.wakeup.set()

    # --- one round --------------------------------------------------------------------------------------------------

    def _round(self) -> bool:
        """Claim or look or wait, once; False if that was all."""
        if time.monotonic() - self._heard_at >= HEAR_EVERY:
            self._hear(0.0)
        room = self._room()
        if not room:
            self._hungry = True
            room = self._room()  # one that was freed just before is not told of
            if not room:
                self._hear(self._poll)
                return True
        self._hungry = False
        if self.stopping.is_set():
            return True  # the slot may be free because a job ended after stop(): that job was the last one
        self._allowance.refresh()
        # Set before the limits are looked at: a job that ends from now on rings.
        self._hungry = self._allowance.limited
        room = {queue: places for queue, most in room.items() if (places := self._allowance.places(queue, most))}
        if not room:
            if self._until_empty and self._idle_now() and all(map(self._allowance.paused, self._shares.queues)):
                return False
            self._hear(min(self._poll, _REFUSED, self._allowance.wait()))
            return True
        promising = {queue: places for queue, places in room.items() if queue in self._promising}
        if not promising or self._look_is_due(room) or not self._claim_all(promising, room):
            return self._look(room)
        return True

    def _claim_all(self, promising: Mapping[str, int], room: Collection[str]) -> bool:
        """Claim from each of the ``promising`` queues its part; False: nothing came, most likely since another one goes first."""
        won = 0
        left = self._most() - self._in_hand(None)
        # Queues that go first and are not asked in this round: they may have got jobs since the last look.
        unasked = [queue for queue in room if queue not in promising] if self._turns.strict else []
        guarded = refused = False
        for queue, most in self._turns.split(promising, left).items():
            wanted = min(most, left - won, MAX_CLAIM)
            allowed = self._allowance.spend(queue, wanted) if wanted > 0 else 0
            came = 0
            if allowed:
                before = [one for one in unasked if self._place[one] < self._place[queue]]
                guarded = guarded or bool(before)
                came = self._claim(queue, allowed, before)
            else:
                refused = True
                # Others have what it allows, and may have taken the last job: look before asking again.
                self._promising.discard(queue)
            self._turns.came(queue, most, came)
            won += came
        if not won and not guarded and not refused:
            # All were lost to others, or taken since somebody said that they were there.
            self._hear(self._idle.next())
        return won > 0 or not guarded

    def _look_is_due(self, room: Collection[str]) -> bool:
        """Whether jobs may be due in a queue that has been without, and that does not go after all that have some."""
        since = time.monotonic() - self._looked_at
        if (self._claimed_since < LOOK_AFTER and since < LOOK_EVERY) or since < LOOK_REST * self._look_took:
            return False
        others = [queue for queue in room if queue not in self._promising]
        if not self._turns.strict:
            return bool(others)
        last = max(self._place[queue] for queue in self._promising if queue in room)
        return any(self._place[queue] < last for queue in others)

    def _claim(self, queue: str, wanted: int, before: Collection[str]) -> int:
        """Claim up to ``wanted`` jobs of a queue while nothing is due in those ``before`` it; return how many came."""
        source = self._db.queue(queue)
        if before:
            jobs = source.claim_unless(before, wanted, self._lease, delete=self._at_most_once)
        else:
            jobs = source.claim(wanted, self._lease, delete=self._at_most_once)
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

    def _look(self, room: Mapping[str, int]) -> bool:
        """Ask where jobs are due, and wait if they are nowhere."""
        # Asked before the look: if nothing was in hand then, nobody here can have added a job since.
        idle = self._idle_now()
        began = time.monotonic()
        waits = self._db.upcoming(room)
        self._looked_at, self._claimed_since = time.monotonic(), 0
        self._look_took = self._looked_at - began
        self._retry.reset()
        self._outage.worked()
        due = {queue for queue, wait in waits.items() if wait is not None and wait <= 0}
        if due:
            self._promising |= due
            return True
        # A queue at its limit was not looked at: there may be due jobs in it.
        if self._until_empty and idle and all(queue in room or self._allowance.paused(queue) for queue in self._shares.queues):
            return False
        self._hear(self._until(waits))
        return True

    def _until(self, waits: Mapping[str, float | None]) -> float:
        """Seconds to rest: until the next job is due, or until it is time to look whether there is another one before it."""
        return min([self._idle.next(), self._allowance.wait(), *(wait for wait in waits.values() if wait is not None)])

    def _hear(self, seconds: float) -> None:
        named = self.wakeup.wait(seconds)
        self._heard_at = time.monotonic()
        if cancelled := cancelled_in(named):
            self._cancelled(cancelled)
        self._promising |= named & self._shares.queues.keys()

    def _most(self) -> int:
        return self._shares.total + self._shares.ahead

    def _room(self) -> dict[str, int]:
        """How many more jobs may be claimed of each queue; nothing until it is worth a statement."""
        if self._quiet.is_set():
            return {}
        shares = self._shares
        ahead = shares.ahead
        free = shares.total + ahead - self._in_hand(None)
        if free < max(1, ahead // 2):
            return {}
        if len(shares.queues) == 1:
            return dict.fromkeys(shares.queues, free)
        room = {queue: min(free, most + ahead - self._in_hand(queue)) for queue, most in shares.queues.items()}
        return {queue: places for queue, places in room.items() if places >= max(1, ahead // 2)}
