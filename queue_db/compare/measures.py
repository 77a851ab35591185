"""The definitions of the measures, as functions of plain lists."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from random import Random

#: An interval of fewer runs says nothing; so a row has three by default.
ENOUGH = 3

# Up to this many runs every resample is taken; of more runs, this number of random ones.
_EXACT, _RESAMPLES = 3, 2000

#: From the lower to the upper bound.
Interval = tuple[float, float]


@dataclass(frozen=True)
class Spread:
    """The distribution of a figure over the repeats of a row."""

    mean: float
    sd: float | None  #: sample standard deviation (n − 1); None for a single run
    min: float
    median: float
    max: float
    interval: Interval | None = None  #: bootstrap interval of the median; None for fewer than three runs

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread | None:
        """Return the spread of ``values``; None without values."""
        if not values:
            return None
        return cls(
            mean=statistics.fmean(values),
            sd=statistics.stdev(values) if len(values) > 1 else None,
            min=min(values),
            median=statistics.median(values),
            max=max(values),
            interval=median_interval(tuple(values)),
        )


@lru_cache(maxsize=4096)
def median_interval(values: tuple[float, ...]) -> Interval | None:
    """Return the interval that 95 % of the medians of resamples lie in; None for fewer than three values.

    With three to five values it is their range, which contains the true median in 75 % to 94 % of cases.
    """
    return _middle(_medians(values, Random(0))) if len(values) >= ENOUGH else None


@lru_cache(maxsize=4096)
def ratio_interval(over: tuple[float, ...], under: tuple[float, ...]) -> Interval | None:
    """Return the same for the ratio of two medians; None for fewer than three values on either side, or values of 0."""
    if min(len(over), len(under)) < ENOUGH or min(*over, *under) <= 0:
        return None
    luck = Random(0)
    above, below = _medians(over, luck), _medians(under, luck)
    if len(above) == len(below) == _RESAMPLES:
        return _middle([first / second for first, second in zip(above, below, strict=True)])
    return _middle([first / second for first in above for second in below[:200]])


def _medians(values: Sequence[float], luck: Random) -> list[float]:
    if len(values) <= _EXACT:
        return [statistics.median(some) for some in product(values, repeat=len(values))]
    return [statistics.median(luck.choices(values, k=len(values))) for _ in range(_RESAMPLES)]


def _middle(values: Sequence[float]) -> Interval:
    ordered = sorted(values)
    cut = int(0.025 * len(ordered))
    return ordered[cut], ordered[-1 - cut]


@dataclass(frozen=True)
class Displacement:
    """Distance of each execution from the job's position in the queue: the article's Diff, ``|position − index|``.

    ``histogram`` maps distances to numbers of executions.
    """

    histogram: Mapping[int, int]

    @property
    def mean(self) -> float:
        """Mean distance; 0 without executions."""
        total = sum(self.histogram.values())
        return sum(distance * count for distance, count in self.histogram.items()) / total if total else 0.0

    @property
    def max(self) -> int:
        """The largest distance."""
        return max(self.histogram, default=0)


def displacement(order: Sequence[int]) -> Displacement:
    """Return the displacement of a run. ``order``: job numbers (0 is the first in the queue) in the order of their executions."""
    return Displacement(dict(sorted(Counter(abs(position - job) for position, job in enumerate(order)).items())))


def duplicates(order: Sequence[int]) -> dict[int, int]:
    """Return ``{executions: jobs}`` of the jobs that were executed more than once."""
    return dict(sorted((times, jobs) for times, jobs in Counter(Counter(order).values()).items() if times > 1))


def quantile(ordered: Sequence[float], q: float) -> float | None:
    """Return the ``q`` quantile of sorted values by nearest rank; None without values."""
    if not ordered:
        return None
    return ordered[max(0, math.ceil(q * len(ordered)) - 1)]


@dataclass(frozen=True)
class Latency:
    """Durations of the claims that won at least one job, seconds."""

    count: int
    p50: float
    p99: float
    max: float

    @classmethod
    def of(cls, ordered: Sequence[float]) -> Latency | None:
        """Return the latency from sorted durations; None without values."""
        p50, p99 = quantile(ordered, 0.5), quantile(ordered, 0.99)
        if p50 is None or p99 is None:
            return None
        return cls(count=len(ordered), p50=p50, p99=p99, max=ordered[-1])


def miss_ratio(candidates: int, won: int) -> float:
    """Return the share of candidates that another worker won, 0 … 1."""
    return (candidates - won) / candidates if candidates else 0.0
