"""How many jobs a worker may claim from paused and limited queues."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from queue_db.concurrency.pauses import Pause
from queue_db.core import ONCE
from queue_db.db import QueueDB
from queue_db.model import Controls
from queue_db.store import controls
from queue_db.worker.registration import own_name

#: Seconds between two reads of the controls of the queues.
REFRESH = 1.0

# A share expires after this many leases. So the share of a dead worker is free only when the worker's last job has come back.
_LEASES = 2

# A worker takes, in one transaction, the jobs that a rate allows in this many seconds. A transaction for each claim would cost a
# third of the throughput. The bursts are too short to be noticed.
_AHEAD = 0.05

#: The first and the longest pause before a worker asks again for a larger share, seconds.
ASK_AGAIN = (0.02, 0.25)

_NONE = Controls()


@dataclass(slots=True)
class _QueueLimits:
    """The limits of one queue, and this worker's part of them."""

    controls: Controls = _NONE
    #: This worker's part of the concurrency limit; None: the worker has not asked for a part.
    share: int | None = None
    #: The most jobs in hand since the last refresh. The next refresh returns the unused part of the share.
    used: int = 0
    #: How many more jobs this worker may claim before it must ask the rate limit again.
    credit: int = 0
    #: When the rate allows jobs again.
    refused_until: float = 0.0
    #: When to ask for a larger share.
    ask_at: float = 0.0
    #: The pauses between two requests for a larger share.
    pause: Pause = field(default_factory=lambda: Pause(*ASK_AGAIN))
    #: When to try this queue again after a limit left no free place; None: no such time is known.
    try_again: float | None = None

    @property
    def limited(self) -> bool:
        return self.controls.paused or self.controls.concurrency is not None or self.controls.rate is not None


class RateLimiter:
    """Says how many jobs one worker, or one task of a drain in Spark, may claim now. Threads must not use it at the same time.

    :param lease: seconds for which the worker's jobs are leased.
    :param most: returns how many jobs of a queue the worker can have in hand.
    :param in_hand: returns how many jobs of a queue the worker has in hand.
    """

    def __init__(
        self, db: QueueDB, queues: Collection[str], lease: float, most: Callable[[str], int], in_hand: Callable[[str], int]
    ) -> None:
        self._core = db.core
        self._of = {queue: _QueueLimits() for queue in queues}
        self._lasts = round(_LEASES * lease * 1_000_000)
        self._most = most
        self._in_hand = in_hand
        self._name = own_name(db)
        #: When :meth:`refresh` reads the controls again, by ``time.monotonic``.
        self.refresh_at = 0.0
        #: True: at the last refresh no queue was paused or limited, so :meth:`places` and :meth:`spend` need not be called.
        self.unlimited = False

    def refresh(self) -> None:
        """Read the controls, and reduce the shares to what is used; within a second of the last refresh do nothing."""
        now = time.monotonic()
        if now < self.refresh_at:
            return
        self.unlimited = False
        controls_of = self._core.read("controls.read", controls.read, list(self._of))
        for queue, limits in self._of.items():
            limits.controls = controls_of.get(queue, _NONE)
        self.refresh_at = now + REFRESH
        self._return_credit()
        for queue, limits in self._of.items():
            if limits.share is None:
                continue
            if limits.controls.concurrency is None:
                limits.share = None
            else:
                self._take(queue, min(limits.share, max(self._in_hand(queue), limits.used)))
            limits.used = 0
        self.unlimited = not self.limited and not any(limits.limited for limits in self._of.values())
        if self.unlimited:
            for limits in self._of.values():
                limits.try_again = None

    def paused(self, queue: str) -> bool:
        """Whether this queue is paused."""
        return self._of[queue].controls.paused

    def places(self, queue: str, room: int) -> int:
        """How many of ``room`` jobs a claim from this queue may ask for: 0 while the queue is paused or at its limits."""
        limits = self._of[queue]
        limits.try_again = None
        if limits.controls.paused:
            return 0
        if time.monotonic() < limits.refused_until:
            limits.try_again = limits.refused_until
            return 0
        if limits.controls.concurrency is None or self._may_ask(queue):
            return room
        left = (limits.share or 0) - self._in_hand(queue)
        if left <= 0 and self._share_is_small(queue):
            limits.try_again = limits.ask_at
        return max(0, min(room, left))

    def allows(self, queue: str) -> bool:
        """Whether a claim from this queue may get a job."""
        return self.places(queue, 1) > 0

    @property
    def limited(self) -> bool:
        """Whether this worker has a share of a limit. If so, the end of a job may let another job of the same queue begin."""
        return any(limits.share is not None for limits in self._of.values())

    def wait(self) -> float:
        """Seconds until a queue without free places may be tried again. The end of a job may free a place earlier."""
        times = [limits.try_again for limits in self._of.values() if limits.try_again is not None]
        return max(0.0, min(times) - time.monotonic()) if times else math.inf

    def spend(self, queue: str, wanted: int) -> int:
        """Ask the limits of this queue for up to ``wanted`` jobs; return how many may be claimed now."""
        limits = self._of[queue]
        if limits.controls.concurrency is not None:
            in_hand = self._in_hand(queue)
            if in_hand + wanted > (limits.share or 0) and self._may_ask(queue):
                self._ask(queue)
            wanted = min(wanted, (limits.share or 0) - in_hand)
            if wanted <= 0:
                return 0
            limits.used = max(limits.used, in_hand + wanted)
        rate, per = limits.controls.rate, limits.controls.per
        if rate is not None and per is not None:
            if not limits.credit:
                limits.credit, wait = self._core.write(
                    "controls.spend", controls.spend, queue, max(wanted, round(rate / per * _AHEAD))
                )
                if not limits.credit:
                    limits.refused_until = time.monotonic() + min(wait / 1_000_000, REFRESH)
            wanted = min(wanted, limits.credit)
            limits.credit -= wanted
        return wanted

    def refund(self, queue: str, count: int) -> None:
        """Return the jobs that :meth:`spend` allowed and the claim did not get."""
        if self._of[queue].controls.rate is not None:
            self._of[queue].credit += count

    def return_all(self) -> None:
        """Return all shares and credits. Called when no job of a limited queue is in hand."""
        self._return_credit()
        if self.limited:
            for limits in self._of.values():
                limits.share = None
            self._core.run(ONCE.named("controls.drop_shares"), controls.drop_shares, self._name)

    def _return_credit(self) -> None:
        for queue, limits in self._of.items():
            count, limits.credit = limits.credit, 0
            rate, per = limits.controls.rate, limits.controls.per
            if count and rate is not None and per is not None:
                self._core.write("controls.refund", controls.refund, queue, round(count * per * 1_000_000 / rate))

    def _share_is_small(self, queue: str) -> bool:
        """Whether this worker could use a larger share than it has."""
        limits = self._of[queue]
        limit = limits.controls.concurrency
        return limit is not None and (limits.share or 0) < min(limit, self._most(queue))

    def _may_ask(self, queue: str) -> bool:
        return self._share_is_small(queue) and time.monotonic() >= self._of[queue].ask_at

    def _ask(self, queue: str) -> None:
        limits = self._of[queue]
        before = limits.share or 0
        if self._take(queue, self._most(queue)) > before:
            limits.pause.reset()
        limits.ask_at = time.monotonic() + limits.pause.next()

    def _take(self, queue: str, wanted: int) -> int:
        share = self._core.write("controls.take_share", controls.take_share, queue, self._name, wanted, self._lasts)
        if share is None:
            self.refresh_at = 0.0  # the limit has been removed: read the controls
            share = wanted
        self._of[queue].share = share
        return share
