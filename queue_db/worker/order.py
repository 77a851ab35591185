"""The order of claims: which queue comes first, how many jobs of each, and when the next claim goes out."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue

# The most jobs by which a queue without due jobs may lag behind its share; the rest is forfeited.
_CREDIT = 20.0


class FairOrder:
    """Divides jobs by weight: while all queues have jobs, the jobs of each queue differ from its share by at most one.

    Each queue has a clock that advances by ``1/weight`` for each of its jobs. The next job comes from the queue whose clock is
    furthest behind. Without weights the order is strict.
    """

    def __init__(self, queues: Sequence[str], weights: Mapping[str, int] | None) -> None:
        self._queues = list(queues)
        self._weights = weights
        #: Whether no job of a queue may be claimed while one is due in a queue before it.
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
        """Note that the claim of ``wanted`` jobs got ``number`` jobs."""
        if self._weights is not None:
            self._clocks[queue] -= (wanted - number) / self._weights[queue]


#: The most seconds for which a claim waits for slots. It also waits at most twice as long as the last claim took.
LONGEST = 0.0025

# Each handler changes the share of short ones by this part of the difference; claims wait while the share is above _MOSTLY.
_WEIGHT = 1 / 16
_MOSTLY = 0.75


class FetchPacing:
    """Delays the next claim after one that filled all slots, since a claim of ten jobs costs little more than a claim of one.

    It waits only while most handlers end within that wait, so never for handlers that take :data:`LONGEST` or more. The fetcher's
    thread claims and waits, and any thread calls :meth:`ended`. Two calls at the same moment may count as one; that does no harm.

    :param in_hand: returns how many jobs are in hand.
    """

    def __init__(self, in_hand: Callable[[], int]) -> None:
        self._in_hand = in_hand
        self._longest = 0.0
        self._short = 0.0  # the share of short handlers
        #: Until when :meth:`wait` waits, by ``time.monotonic``; 0: not at all.
        self.until = 0.0
        # When at most this many jobs are in hand, those of the last claim have ended.
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
        """A slot is free. From any thread.

        :param seconds: how long its handler took; None: it was not called.
        """
        if seconds is not None:
            self._short += ((seconds < self._longest) - self._short) * _WEIGHT
        if self._wake_at >= 0 and self._in_hand() <= self._wake_at:
            self._wake_at = -1
            self._wakes.put(None)
            if self._several:
                # Lets the fetcher claim while this thread ends its job. For a single job that is not worth it.
                time.sleep(0)

    def wait(self) -> None:
        """Wait for the jobs of the last claim, if they are expected in a moment."""
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
