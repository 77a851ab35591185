"""How long a loop waits when there is nothing to do, or nothing can be done."""

from __future__ import annotations

import random
from collections.abc import Callable


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
