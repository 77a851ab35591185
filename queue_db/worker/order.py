"""The order of claims: which queue comes first, how many jobs to claim from each queue, and when to claim next."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue

# A queue that had no due jobs for some time may catch up on its share by this many jobs at most.
_CREDIT = 20.0


class FairOrder:
    """Divides claims by weight: while all queues have jobs, each queue gets its share of the jobs, give or take one job.

    Each queue has a clock that advances by ``1/weight`` for each of its jobs. The next job comes from the queue whose clock is
    furthest behind. Without weights the order is strict.
    """

    def __init__(self, queues: Sequence[str], weights: Mapping[str, int] | None) -> None:
        self._queues = list(queues)
        self._weights = weights
        #: Whether the order is strict: a queue gets no claim while a job is due in an earlier queue.
        self.strict = weights is None
        self._clocks = dict.fromkeys(self._queues, 0.0)
        self._now = 0.0

    def split(self, room: Mapping[str, int], free: int) -> dict[str, int]:
        """How many of the next ``free`` jobs to claim from each queue in ``room``, in the order of the claims."""
        names = [queue for queue in self._queues if queue in room]
        if self._weights is None:
            return {queue: min(room[queue], free) for queue in names}
        clocks = self._clocks
        for queue in names:
            clocks[queue] = max(clocks[queue], self._now - _CREDIT / self._weights[queue])
        wanted: dict[str, int] = {}
        for _ in range(free):
            names = [queue for queue in names if wanted.get(queue, 0) < room[queue]]
            if not names:
                break
            queue = min(names, key=clocks.__getitem__)
            self._now = max(self._now, clocks[queue])
            clocks[queue] += 1.0 / self._weights[queue]
            wanted[queue] = wanted.get(queue, 0) + 1
        return wanted

    def came(self, queue: str, wanted: int, number: int) -> None:
        """Note that a claim of ``wanted`` jobs from this queue got ``number`` jobs."""
        if self._weights is not None:
            self._clocks[queue] -= (wanted - number) / self._weights[queue]


#: The most seconds for which a claim waits for slots. No claim waits longer than twice the time that the last claim took.
LONGEST = 0.0025

# The weight of the latest handler in the moving average that estimates the share of short handlers.
_WEIGHT = 1 / 16
# Claims wait only while the share of short handlers is above this value.
_MOSTLY = 0.75


class FetchPacing:
    """Delays the claim after one that filled all slots, since a claim of ten jobs costs little more than a claim of one.

    A claim is delayed only if most handlers end within the delay. So handlers that take :data:`LONGEST` or more delay no claim.
    The fetcher's thread claims and waits, and any thread calls :meth:`ended`. Two such calls at the same moment may count as one,
    which does no harm.

    :param in_hand: returns how many jobs are in hand.
    """

    def __init__(self, in_hand: Callable[[], int]) -> None:
        self._in_hand = in_hand
        self._longest = 0.0
        self._short = 0.0  # the share of short handlers
        #: The time until which :meth:`wait` waits (``time.monotonic``); 0: no wait.
        self.until = 0.0
        # The number of jobs in hand before the last claim. The wait ends when the number is as low again.
        self._before = 0
        self._several = False  # whether the last claim brought more than one job
        self._wake_at = -1  # _before while the fetcher waits; otherwise -1
        self._wakes: SimpleQueue[None] = SimpleQueue()

    def claimed(self, seconds: float, before: int, came: int) -> None:
        """Note that a claim has filled all slots.

        :param seconds: how long the claim took.
        :param before: jobs in hand before the claim.
        :param came: jobs that were claimed.
        """
        self._longest = min(2 * seconds, LONGEST)
        self._before = before
        self._several = came > 1
        self.until = time.monotonic() + self._longest if self._short > _MOSTLY else 0.0

    def ended(self, seconds: float | None) -> None:
        """Note that a slot is free. Any thread may call this.

        :param seconds: how long the handler ran; None: the handler was not called.
        """
        if seconds is not None:
            self._short += ((seconds < self._longest) - self._short) * _WEIGHT
        if self._wake_at >= 0 and self._in_hand() <= self._wake_at:
            self._wake_at = -1
            self._wakes.put(None)
            if self._several:
                # Let the fetcher claim while this thread ends its job. For a single job this switch is not worth its cost.
                time.sleep(0)

    def wait(self) -> None:
        """Wait until as few jobs are in hand as before the last claim, at most until :attr:`until`."""
        seconds = self.until - time.monotonic()
        if seconds <= 0:
            self.until = 0.0
            return
        while not self._wakes.empty():
            self._wakes.get_nowait()
        self._wake_at = self._before
        if self._in_hand() > self._before:
            with suppress(Empty):
                self._wakes.get(timeout=seconds)
        self._wake_at, self.until = -1, 0.0
