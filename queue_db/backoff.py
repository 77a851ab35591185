"""How long a failed job waits: attempt number → seconds. Pure functions; the result is stored, nobody sleeps."""

from __future__ import annotations

import random
from collections.abc import Callable

Backoff = Callable[[int], float]


def exponential(
    first: float = 5.0,
    factor: float = 2.0,
    ceiling: float = 3600.0,
    jitter: float = 0.2,
    rng: Callable[[], float] = random.random,
) -> Backoff:
    """Wait ``first · factor^(attempt-1)`` seconds, at most ``ceiling``, spread by ± ``jitter`` (a share of the wait).

    With the defaults: 5 s, 10 s, 20 s … an hour from the eleventh attempt on; 25 attempts last about 16 hours.
    """

    def seconds(attempt: int) -> float:
        # Beyond 64 doublings the ceiling has been reached for any sensible `first`; this keeps floats finite.
        wait = min(ceiling, first * factor ** min(max(attempt, 1) - 1, 64))
        return wait * (1.0 + jitter * (2.0 * rng() - 1.0))

    return seconds


def constant(seconds: float) -> Backoff:
    """Wait the same time before every attempt."""
    return lambda attempt: seconds
