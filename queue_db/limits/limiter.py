"""How many jobs one worker may claim from limited queues."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from queue_db.concurrency.pauses import Pause
from queue_db.core import ONCE
from queue_db.db import QueueDB
from queue_db.errors import QueueDBError
from queue_db.limits import store
from queue_db.model import Controls
from queue_db.store import controls
from queue_db.worker.registration import own_name

log = logging.getLogger("queue_db.worker")

#: Seconds between two reads of the controls by :meth:`RateLimiter.refresh`.
REFRESH = 1.0

# A share expires after this many leases. So the share of a dead worker is free only when the worker's last job has come back.
_LEASES = 2

# A worker takes, in one transaction, the jobs that a rate allows in this many seconds. A transaction for each claim would cost a
# third of the throughput. The bursts are too short to be noticed.
_AHEAD = 0.05

# The longest time for which a worker does not ask the rate limit again, seconds. The rate may be raised meanwhile.
_REFUSED = 1.0

#: The first and the longest pause before a worker asks again for a larger share, seconds.
ASK_AGAIN = (0.02, 0.25)

_NONE = Controls()


@dataclass(slots=True)
class _QueueLimits:
    """The limits of one queue, and this worker's part of them."""

    controls: Controls = _NONE
    #: This worker's part of the concurrency limit; None: the worker has not asked for a part.
    share: int | None = None
    #: The most jobs in hand since the last call of ``obey``. The next call returns the unused part of the share.
    used: int = 0
    #: How many more jobs this worker may claim before it must ask the rate limit again.
    credit: int = 0
    #: When the rate allows jobs again.
    refused_until: float = 0.0
    #: When to ask for a larger share.
    ask_at: float = 0.0
    #: The pauses between two requests for a larger share.
    pause: Pause = field(default_factory=lambda: Pause(*ASK_AGAIN))


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
        self._refresh_at = 0.0
        # When to try again a queue that the last call of ``allowed`` left out.
        self._try_again = math.inf

    def refresh(self) -> None:
        """Read the controls and :meth:`obey` them; within a second of the last refresh do nothing."""
        now = time.monotonic()
        if now >= self._refresh_at:
            controls_of = self._core.read("controls.read", controls.read, list(self._of))
            self._refresh_at = now + REFRESH
            self.obey(controls_of)

    def obey(self, controls_of: Mapping[str, Controls]) -> None:
        """Obey these controls from now on, and reduce the shares to what is used. Call this about once a second.

        :param controls_of: the controls by queue; queues without controls are missing.
        """
        for queue, limits in self._of.items():
            limits.controls = controls_of.get(queue, _NONE)
        self._return_credit()
        for queue, limits in self._of.items():
            if limits.controls.concurrency is None:
                limits.share = None
            elif limits.share is not None:
                self._take(queue, min(limits.share, max(self._in_hand(queue), limits.used)))
            limits.used = 0

    def paused(self, queue: str) -> bool:
        """Whether this queue is paused."""
        return self._of[queue].controls.paused

    def allowed(self, room: Mapping[str, int]) -> dict[str, int]:
        """How many of the jobs in ``room`` (by queue) may be claimed. Queues that are paused or at their limits are missing."""
        self._try_again = math.inf
        return {queue: places for queue, most in room.items() if (places := self._places(queue, most))}

    def wait(self) -> float:
        """Seconds until a queue that :meth:`allowed` left out may be tried again. The end of a job may free a place earlier."""
        return max(0.0, self._try_again - time.monotonic())

    @property
    def has_shares(self) -> bool:
        """Whether this worker has a share of a limit. If so, the end of a job may let another job of the same queue begin."""
        return any(limits.share is not None for limits in self._of.values())

    def take(self, queue: str, wanted: int) -> int:
        """Ask the limits of this queue for up to ``wanted`` jobs; return how many may be claimed now."""
        limits = self._of[queue]
        wanted = self._places(queue, wanted)
        if wanted and limits.controls.concurrency is not None:
            in_hand = self._in_hand(queue)
            if in_hand + wanted > (limits.share or 0) and self._may_ask(queue):
                self._ask(queue)
            wanted = max(0, min(wanted, (limits.share or 0) - in_hand))
            if wanted:
                limits.used = max(limits.used, in_hand + wanted)
        rate, per = limits.controls.rate, limits.controls.per
        if wanted and rate is not None and per is not None:
            if not limits.credit:
                ahead = max(wanted, round(rate / per * _AHEAD))
                limits.credit, wait = self._core.write("limits.spend", store.spend, queue, ahead)
                if not limits.credit:
                    limits.refused_until = time.monotonic() + min(wait / 1_000_000, _REFUSED)
            wanted = min(wanted, limits.credit)
            limits.credit -= wanted
        return wanted

    def give_back(self, queue: str, count: int) -> None:
        """Return the jobs that :meth:`take` allowed and the claim did not get."""
        if self._of[queue].controls.rate is not None:
            self._of[queue].credit += count

    def return_all(self) -> None:
        """Return all shares and credits. Called when no job of a limited queue is in hand."""
        try:
            self._return_credit()
            if self.has_shares:
                for limits in self._of.values():
                    limits.share = None
                self._core.run(ONCE.named("limits.drop_shares"), store.drop_shares, self._name)
        except QueueDBError as error:
            log.debug("the shares of limited queues could not be returned and expire: %s", error)

    def _return_credit(self) -> None:
        for queue, limits in self._of.items():
            count, limits.credit = limits.credit, 0
            rate, per = limits.controls.rate, limits.controls.per
            if count and rate is not None and per is not None:
                self._core.write("limits.refund", store.refund, queue, round(count * per * 1_000_000 / rate))

    def _places(self, queue: str, room: int) -> int:
        """How many of ``room`` jobs a claim from this queue may ask for: 0 while the queue is paused or at its limits."""
        limits = self._of[queue]
        if limits.controls.paused:
            return 0
        if time.monotonic() < limits.refused_until:
            self._try_again = min(self._try_again, limits.refused_until)
            return 0
        if limits.controls.concurrency is None or self._may_ask(queue):
            return room
        left = (limits.share or 0) - self._in_hand(queue)
        if left <= 0 and self._share_is_small(queue):
            self._try_again = min(self._try_again, limits.ask_at)
        return max(0, min(room, left))

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
        share = self._core.write("limits.take_share", store.take_share, queue, self._name, wanted, self._lasts)
        # None: the limit has been removed. The next call of `obey` gets controls without it.
        self._of[queue].share = share = wanted if share is None else share
        return share
