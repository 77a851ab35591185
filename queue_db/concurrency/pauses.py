"""How long loops wait: between retries, and between polls."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

#: The pause before a poll is about this share of the time since the worker's last job. So the next job is found late by about a
#: fortieth of this time on average. Between one and ten seconds after the last job, there are about fifty polls.
SHARE = 0.05

#: The shortest pause between two polls (seconds), before its random reduction.
SHORTEST = 0.001


class Pause:
    """Waits that double from ``first`` to ``longest`` seconds, each reduced at random by up to a half.

    The random part keeps workers from retrying in step.
    """

    def __init__(self, first: float, longest: float, rng: Callable[[], float] = random.random) -> None:
        self._first = min(first, longest)
        self._longest = longest
        self._rng = rng
        self._now = self._first

    def next(self) -> float:
        """Seconds to wait now; the next wait is longer."""
        seconds = self._now * (0.5 + 0.5 * self._rng())
        self._now = min(2 * self._now, self._longest)
        return seconds

    def reset(self) -> None:
        """Start again with the shortest wait."""
        self._now = self._first


class Idle:
    """Waits between polls, which grow with the time since the last job, up to ``longest`` seconds.

    Each wait is reduced at random by up to a quarter.
    """

    def __init__(
        self, longest: float, clock: Callable[[], float] = time.monotonic, rng: Callable[[], float] = random.random
    ) -> None:
        self._longest = longest
        self._clock = clock
        self._rng = rng
        self._since = clock()

    def worked(self) -> None:
        """Record that there was a job just now."""
        self._since = self._clock()

    def next(self) -> float:
        """Seconds to wait until the next poll."""
        wait = max(SHORTEST, SHARE * (self._clock() - self._since))
        return min(wait, self._longest) * (0.75 + 0.25 * self._rng())
