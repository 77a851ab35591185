"""The ratio of two throughputs with its noise, and when it counts as a tie."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from queue_db.compare.measures import Interval, ratio_interval
from queue_db.compare.results import Row

#: Smaller differences are ties even with a small spread: another day or disk makes a difference as large.
MARGIN = 0.10


@dataclass(frozen=True)
class Ratio:
    """The ratio of two medians of jobs/s, with its bootstrap interval."""

    value: float
    interval: Interval | None  #: None if one of them has fewer than three runs
    tie: bool  #: less than :data:`MARGIN` apart, or the interval contains 1
    indicative: bool  #: too few runs, or runs of ``--quick``: nothing wins

    @classmethod
    def of(cls, over: Sequence[float], under: Sequence[float], *, quick: bool = False) -> Ratio | None:
        """Return the ratio of two rows' jobs/s, a value per run; None if there are none, or zero."""
        if not over or not under or min(*over, *under) <= 0:
            return None
        value = statistics.median(over) / statistics.median(under)
        interval = ratio_interval(tuple(over), tuple(under))
        tie = max(value, 1 / value) < 1 + MARGIN or (interval is not None and interval[0] <= 1 <= interval[1])
        return cls(value=value, interval=interval, tie=tie, indicative=quick or interval is None)

    @property
    def faster(self) -> bool:
        """Whether the first is faster: beyond the noise if the interval is known, otherwise by more than the margin."""
        return not self.tie and self.value > 1

    @property
    def wins(self) -> bool:
        """Whether the first is faster beyond the noise."""
        return self.faster and not self.indicative

    def __str__(self) -> str:
        # More digits would suggest a precision that was not measured.
        if self.interval is None:
            digits = 2 if self.value < 2 else 1 if self.value < 10 else 0
            return f"{self.value:.{digits}f} ×"
        digits = 2 if self.value < 10 else 0
        low, high = self.interval
        return f"{self.value:.{digits}f} × ({low:.{digits}f}–{high:.{digits}f})"


def between(over: Row | None, under: Row | None) -> Ratio | None:
    """Return the ratio of two rows' jobs/s; None if one has no finished run."""
    return None if over is None or under is None else Ratio.of(over.rates, under.rates, quick=over.quick or under.quick)
