"""The model of a window, printed beside the measured figures.

A worker reads a window of the first *W* due jobs, picks one, and takes it unless another worker was faster. Two versions:

- *lock-step*: *N* workers read the same window at the same moment, and then all try. It fits empty jobs.
- *asynchronous*: between a worker's read and its attempt, *m* claims of other workers succeed. Its pick is gone with probability
  1 − e^(−m/W).
"""

from __future__ import annotations

import math


def lock_step_attempts(window: float, workers: int) -> float:
    """Attempts per claim of ``workers`` workers in lock-step with a window of ``window`` jobs: N / (W·(1 − (1 − 1/W)^N))."""
    if window <= 1.0:
        return float(workers)
    return workers / (window * (1.0 - (1.0 - 1.0 / window) ** workers))


def lock_step_miss(window: float, workers: int) -> float:
    """Share of attempts lost in lock-step: 1 − 1/A."""
    return 1.0 - 1.0 / lock_step_attempts(window, workers)


def miss(racing: float, window: float) -> float:
    """Share of attempts lost when ``racing`` claims of other workers succeed between read and attempt: 1 − e^(−m/W)."""
    return 1.0 - math.exp(-racing / window)


def racing(miss_ratio: float, window: float) -> float:
    """Return the *m* that follows from a measured share of misses: −W·ln(1 − r)."""
    return -window * math.log(1.0 - min(miss_ratio, 1.0 - 1e-9))


def mean_displacement(window: float) -> float:
    """Mean |position − index| of uniform picks from a window of ``window`` jobs: 2W·(1 − 1/W)^W, about 0.74·W for large W."""
    return 2.0 * window * (1.0 - 1.0 / window) ** window if window > 1.0 else 0.0


def largest_displacement(window: float, jobs: int) -> float:
    """Expected largest |position − index| over ``jobs`` jobs: W·(ln n + 0.577 − 1)."""
    return window * (math.log(jobs) + 0.5772156649 - 1.0) if jobs > 0 else 0.0
