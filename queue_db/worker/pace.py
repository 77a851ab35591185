"""The pace of a worker: while handlers are short, a claim waits a moment until more slots are free, and brings more jobs."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue

#: Seconds; a claim waits for slots no longer than this after the last one, and no longer than twice the time that one took.
LONGEST = 0.0025

# Each handler changes the share of short ones by this part of the difference; claims wait while the share is above _MOSTLY.
_WEIGHT = 1 / 16
_MOSTLY = 0.75


class Pace:
    """Lets the claim after one that filled all slots wait until its jobs have ended: ten jobs cost a claim little more than one.

    It waits only while most handlers end within that wait; those that take :data:`LONGEST` or more never make it wait. The
    claimer's thread claims and waits, any thread reports handlers. Two reports at the same moment may count as one, which does no
    harm.

    :param in_hand: how many jobs are in hand.
    """

    def __init__(self, in_hand: Callable[[], int]) -> None:
        self._in_hand = in_hand
        self._longest = 0.0
        self._short = 0.0  # the share of short handlers
        self._until = 0.0
        # When at most this many jobs are in hand, those of the last claim have ended. -1: no claim waits for that.
        self._before = 0
        self._several = False  # whether the last claim brought more than one job
        self._wake_at = -1
        self._wakes: SimpleQueue[None] = SimpleQueue()

    def claimed(self, seconds: float, before: int) -> None:
        """A claim has taken so long and filled all slots; ``before`` it so many jobs were in hand."""
        self._longest = min(2 * seconds, LONGEST)
        self._before = before
        self._several = self._in_hand() > before + 1
        self._until = time.monotonic() + self._longest if self._short > _MOSTLY else 0.0

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
                # Lets the claimer run at once: the claim goes out while this thread still ends its job. For one job it costs more.
                time.sleep(0)

    def wait(self) -> None:
        """Wait for the jobs of the last claim, if they are expected in a moment."""
        seconds = self._until - time.monotonic()
        if seconds <= 0:
            return
        while not self._wakes.empty():
            self._wakes.get_nowait()
        self._wake_at = self._before
        if self._in_hand() > self._before:
            with suppress(Empty):
                self._wakes.get(timeout=seconds)
        self._wake_at, self._until = -1, 0.0
