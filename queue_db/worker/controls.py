"""What a worker may claim of queues that are paused or limited: asked once a second, and before a claim that may be too much."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Collection
from functools import partial

from queue_db.db import QueueDB
from queue_db.model import Controls
from queue_db.store import controls
from queue_db.worker.pauses import Pause
from queue_db.worker.registration import own_name

#: Seconds between two looks at what is said about the queues.
REFRESH = 1.0

# A share lasts so many leases: until the last job of a worker that is gone has come back.
_LEASES = 2

# A worker takes as much of a rate at once as is to be had in so many seconds: a transaction for each claim would cost a third of
# the throughput, and this much no rate can be told from another.
_AHEAD = 0.05

#: Seconds until a worker whose share is smaller than it would like asks for more: first, longest.
ASK_AGAIN = (0.02, 0.25)

_NUMBERS = itertools.count(1)


class Allowance:
    """What one worker may claim. Used by its claimer's thread alone.

    :param lease: seconds for which its jobs are leased.
    :param most: how many jobs of a queue it can have in hand.
    :param in_hand: how many it has.
    """

    def __init__(
        self, db: QueueDB, queues: Collection[str], lease: float, most: Callable[[str], int], in_hand: Callable[[str], int]
    ) -> None:
        self._db = db
        self._queues = list(queues)
        self._lasts = round(_LEASES * lease * 1_000_000)
        self._most = most
        self._in_hand = in_hand
        self._name = own_name(db, next(_NUMBERS))
        self._controls: dict[str, Controls] = {}
        self._shares: dict[str, int] = {}
        # The most in hand since the last look: what is not used is given back.
        self._used: dict[str, int] = {}
        # Jobs that may be begun under a queue's rate and have not been.
        self._credit: dict[str, int] = {}
        # When a queue's rate has places again.
        self._refused_until: dict[str, float] = {}
        # When to ask for a larger share, and the pauses between.
        self._ask_at: dict[str, float] = {}
        self._pauses: dict[str, Pause] = {}
        # Queues for which there were no places, and when they are to be tried again.
        self._try_again: dict[str, float] = {}
        self._look_again = 0.0

    def refresh(self) -> None:
        """Look at what is said, if that was not done a moment ago, and keep shares as large as they are used."""
        now = time.monotonic()
        if now < self._look_again:
            return
        self._controls = self._db.database.run(
            partial(controls.read, store=self._db.store, queues=self._queues), name="controls", write=False
        )
        self._look_again = now + REFRESH
        self._give_back_credit()
        for queue, share in list(self._shares.items()):
            used = max(self._in_hand(queue), self._used.pop(queue, 0))
            if self._of(queue).concurrency is None:
                del self._shares[queue]
            elif used < share:
                self._take(queue, used)
            else:
                self._take(queue, share)

    def paused(self, queue: str) -> bool:
        """Whether nothing of this queue may be claimed until somebody says otherwise."""
        return self._of(queue).paused

    def places(self, queue: str, room: int) -> int:
        """For how many jobs of this queue it is worth to look, of ``room``: 0 while it is paused or at its limits."""
        self._try_again.pop(queue, None)
        if self.paused(queue):
            return 0
        if time.monotonic() < self._refused_until.get(queue, 0.0):
            self._try_again[queue] = self._refused_until[queue]
            return 0
        if self._of(queue).concurrency is None or self._may_ask(queue):
            return room
        left = self._shares.get(queue, 0) - self._in_hand(queue)
        if left <= 0 and self._share_is_small(queue):
            self._try_again[queue] = self._ask_at[queue]
        return max(0, min(room, left))

    def allows(self, queue: str) -> bool:
        """Whether it is worth to look for a job of this queue."""
        return self.places(queue, 1) > 0

    @property
    def limited(self) -> bool:
        """Whether a job that ends may let another one of its queue begin."""
        return bool(self._shares)

    def wait(self) -> float:
        """Seconds until a queue for which there were no places is worth to be tried again, if none of its jobs ends here before."""
        return max(0.0, min(self._try_again.values()) - time.monotonic()) if self._try_again else math.inf

    def spend(self, queue: str, wanted: int) -> int:
        """How many of ``wanted`` jobs may be claimed now."""
        said = self._of(queue)
        if said.concurrency is not None:
            held = self._in_hand(queue)
            if held + wanted > self._shares.get(queue, 0) and self._may_ask(queue):
                self._ask(queue)
            wanted = min(wanted, self._shares.get(queue, 0) - held)
            if wanted <= 0:
                return 0
            self._used[queue] = max(self._used.get(queue, 0), held + wanted)
        if said.rate is not None and said.per is not None:
            if not self._credit.get(queue):
                ahead = max(wanted, round(said.rate / said.per * _AHEAD))
                work = partial(controls.spend, store=self._db.store, queue=queue, wanted=ahead)
                self._credit[queue], wait = self._db.database.run(work, name="spend")
                if not self._credit[queue]:
                    self._refused_until[queue] = time.monotonic() + min(wait / 1_000_000, REFRESH)
            wanted = min(wanted, self._credit[queue])
            self._credit[queue] -= wanted
        return wanted

    def refund(self, queue: str, count: int) -> None:
        """So many of those were not there."""
        if queue in self._credit:
            self._credit[queue] += count

    def leave(self) -> None:
        """Give everything back: nothing of a limited queue is in hand any more."""
        self._give_back_credit()
        if self._shares:
            self._shares.clear()
            self._db.database.run(partial(controls.drop_shares, store=self._db.store, worker=self._name), name="leave", attempts=1)

    def _give_back_credit(self) -> None:
        for queue, count in list(self._credit.items()):
            del self._credit[queue]
            said = self._of(queue)
            if count and said.rate is not None and said.per is not None:
                micros = round(count * said.per * 1_000_000 / said.rate)
                self._db.database.run(partial(controls.refund, store=self._db.store, queue=queue, micros=micros), name="refund")

    def _of(self, queue: str) -> Controls:
        return self._controls.get(queue, _NONE)

    def _share_is_small(self, queue: str) -> bool:
        """Whether other workers have some of what this one would like to have."""
        limit = self._of(queue).concurrency
        return limit is not None and self._shares.get(queue, 0) < min(limit, self._most(queue))

    def _may_ask(self, queue: str) -> bool:
        return self._share_is_small(queue) and time.monotonic() >= self._ask_at.get(queue, 0.0)

    def _ask(self, queue: str) -> None:
        before = self._shares.get(queue, 0)
        self._take(queue, self._most(queue))
        pause = self._pauses.setdefault(queue, Pause(*ASK_AGAIN))
        if self._shares[queue] > before:
            pause.reset()
        self._ask_at[queue] = time.monotonic() + pause.next()

    def _take(self, queue: str, wanted: int) -> None:
        work = partial(controls.take_share, store=self._db.store, queue=queue, worker=self._name, wanted=wanted, lasts=self._lasts)
        share = self._db.database.run(work, name="share")
        if share is None:
            self._look_again = 0.0  # there is no limit any more
            share = wanted
        self._shares[queue] = share


_NONE = Controls()
