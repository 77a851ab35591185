"""The ratio of two throughputs with its noise, and when it counts as a tie."""

from __future__ import annotations

import math
from dataclasses import dataclass

from queue_db.compare.measures import Spread
from queue_db.compare.report.wording import short_name
from queue_db.compare.results import Bench, Row

#: Smaller differences are ties even with a small spread: another day or disk makes a difference as large.
MARGIN = 0.10

#: Pairs of the product's rows in the table of ratios: (over, under), by short name.
PRODUCT_PAIRS: tuple[tuple[str, str], ...] = (
    ("optimistic", "skip_locked"),
    ("adaptive", "skip_locked"),
    ("adaptive", "optimistic"),
    ("skip_locked", "pessimistic"),
)


@dataclass(frozen=True)
class Ratio:
    """The ratio of two medians of jobs/s, with the standard deviation that follows from both spreads."""

    value: float
    sd: float | None  #: None if one of them has a single run
    tie: bool  #: less than :data:`MARGIN` apart, or mean ± sd of both overlap

    @classmethod
    def of(cls, over: Spread | None, under: Spread | None) -> Ratio | None:
        """Return the ratio; None if one of them is missing or zero."""
        if over is None or under is None or min(over.mean, over.median, under.mean, under.median) <= 0:
            return None
        value = over.median / under.median
        near = max(value, 1 / value) < 1 + MARGIN
        if over.sd is None or under.sd is None:
            return cls(value=value, sd=None, tie=near)
        apart = abs(over.mean - under.mean) > over.sd + under.sd
        return cls(value=value, sd=value * math.hypot(over.sd / over.mean, under.sd / under.mean), tie=near or not apart)

    @property
    def faster(self) -> bool:
        """Whether the first is faster: beyond the noise if the spreads are known, otherwise by more than the margin."""
        return not self.tie and self.value > 1

    @property
    def wins(self) -> bool:
        """Whether the first is faster beyond the noise."""
        return self.faster and self.sd is not None

    def __str__(self) -> str:
        if self.sd is None:
            digits = (
                2 if self.value < 2 else 1 if self.value < 10 else 0
            )  # more digits would suggest a precision that was not measured
            return f"{self.value:.{digits}f} ×"
        return f"{self.value:.2f} ×" + (f" (± {self.sd:.2f})" if self.sd else "")


def between(over: Row | None, under: Row | None) -> Ratio | None:
    """Return the ratio of two rows' jobs/s; None if one has no finished run."""
    return None if over is None or under is None else Ratio.of(over.rate, under.rate)


def find(bench: Bench, name: str, batch: int = 1) -> Row | None:
    """Return the row of that short name and batch size."""
    return next((row for row in bench.rows if short_name(row) == name and row.batch == batch), None)
