"""How long a loop waits when there is nothing to do, or nothing can be done."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

#: Of the time since the last job a worker waits this share until it looks again. So a look comes late by a fortieth of the wait on
#: average, however long that was, and from the first second to the tenth there are fewer than fifty looks.
SHARE = 0.05

#: Seconds; the shortest pause between two looks.
SHORTEST = 0.001


class Pause:
    """Waits that double from ``first`` to ``longest`` seconds, each spread down to half of it: workers must not march in step."""

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
        """Begin again with the shortest wait."""
        self._now = self._first


class Idle:
    """Waits for jobs, the longer the longer there have been none, up to ``longest`` seconds, spread by a quarter."""

    def __init__(
        self, longest: float, clock: Callable[[], float] = time.monotonic, rng: Callable[[], float] = random.random
    ) -> None:
        self._longest = longest
        self._clock = clock
        self._rng = rng
        self._since = clock()

    def worked(self) -> None:
        """There was a job just now."""
        self._since = self._clock()

    def next(self) -> float:
        """Seconds to wait until the next look."""
        wait = max(SHORTEST, SHARE * (self._clock() - self._since))
        return min(wait, self._longest) * (0.75 + 0.25 * self._rng())
