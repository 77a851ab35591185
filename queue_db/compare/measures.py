"""The measures, as functions of plain lists: what each one means is said here, and nowhere else."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Spread:
    """A figure over the repeats of a row."""

    mean: float
    sd: float | None  #: of the sample (n − 1); None for a single run, which has no spread
    min: float
    median: float
    max: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread | None:
        """The spread of ``values``; None if there are none."""
        if not values:
            return None
        return cls(
            mean=statistics.fmean(values),
            sd=statistics.stdev(values) if len(values) > 1 else None,
            min=min(values),
            median=statistics.median(values),
            max=max(values),
        )


@dataclass(frozen=True)
class Displacement:
    """How far from its place each job was begun: the article's Diff, ``|position − index|`` over the executions.

    ``histogram`` counts executions by distance.
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

    def share_above(self, distance: int) -> float:
        """Share of the executions that were further away than ``distance``, 0 … 1."""
        total = sum(self.histogram.values())
        return sum(count for far, count in self.histogram.items() if far > distance) / total if total else 0.0

    def quantile(self, q: float) -> int:
        """The smallest distance that at least the share ``q`` of the executions do not exceed."""
        wanted = math.ceil(q * sum(self.histogram.values()))
        seen = 0
        for distance in sorted(self.histogram):
            seen += self.histogram[distance]
            if seen >= wanted:
                return distance
        return 0


def displacement(order: Sequence[int]) -> Displacement:
    """The Diff of a run. ``order``: job numbers (0 is the first in the queue) in the order in which they were begun."""
    return Displacement(dict(sorted(Counter(abs(position - job) for position, job in enumerate(order)).items())))


def duplicates(order: Sequence[int]) -> dict[int, int]:
    """How many jobs were executed twice, three times …: ``{executions: jobs}``, without those that were executed once."""
    return dict(sorted((times, jobs) for times, jobs in Counter(Counter(order).values()).items() if times > 1))


def quantile(ordered: Sequence[float], q: float) -> float | None:
    """The ``q`` quantile of sorted values, by nearest rank; None if there are none."""
    if not ordered:
        return None
    return ordered[max(0, math.ceil(q * len(ordered)) - 1)]


@dataclass(frozen=True)
class Latency:
    """Seconds that claims took which won something."""

    count: int
    p50: float
    p99: float
    max: float

    @classmethod
    def of(cls, ordered: Sequence[float]) -> Latency | None:
        """From sorted values; None if there are none."""
        p50, p99 = quantile(ordered, 0.5), quantile(ordered, 0.99)
        if p50 is None or p99 is None:
            return None
        return cls(count=len(ordered), p50=p50, p99=p99, max=ordered[-1])


def miss_ratio(candidates: int, won: int) -> float:
    """Share of the tried jobs that somebody else was faster at, 0 … 1."""
    return (candidates - won) / candidates if candidates else 0.0


def attempts_per_claim(candidates: int, won: int) -> float | None:
    """Jobs tried for each job won; 1 without any race lost, None if nothing was won."""
    return candidates / won if won else None
