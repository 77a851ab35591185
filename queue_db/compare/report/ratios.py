"""One throughput against another, with its noise: what may be called faster, and what is a tie."""

from __future__ import annotations

import math
from dataclasses import dataclass

from queue_db.compare.measures import Spread
from queue_db.compare.report.wording import short_name
from queue_db.compare.results import Bench, Row

#: Differences smaller than this share are ties, however small the spread: another day or another disk makes as much.
MARGIN = 0.10

#: What is compared beside the article's own: (over, under), by short name.
PRODUCT_PAIRS: tuple[tuple[str, str], ...] = (
    ("optimistic", "skip_locked"),
    ("adaptive", "skip_locked"),
    ("adaptive", "optimistic"),
    ("skip_locked", "pessimistic"),
)


@dataclass(frozen=True)
class Ratio:
    """Jobs/s over jobs/s: of the medians, with the standard deviation that the two spreads give it."""

    value: float
    sd: float | None  #: None when one of them ran only once
    tie: bool  #: under :data:`MARGIN` apart, or mean ± sd of the two overlap

    @classmethod
    def of(cls, over: Spread | None, under: Spread | None) -> Ratio | None:
        """None when one of them is missing or zero."""
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
        """Whether the first is faster: beyond the noise where that is known, by more than the margin where it is not."""
        return not self.tie and self.value > 1

    @property
    def wins(self) -> bool:
        """Whether the first is faster beyond the noise."""
        return self.faster and self.sd is not None

    def __str__(self) -> str:
        if self.sd is None:
            digits = 2 if self.value < 2 else 1 if self.value < 10 else 0  # more would say more than was measured
            return f"{self.value:.{digits}f} ×"
        return f"{self.value:.2f} ×" + (f" (± {self.sd:.2f})" if self.sd else "")


def between(over: Row | None, under: Row | None) -> Ratio | None:
    """The ratio of two rows' jobs/s; None when one did not run or never finished."""
    return None if over is None or under is None else Ratio.of(over.rate, under.rate)


def find(bench: Bench, name: str, batch: int = 1) -> Row | None:
    """The row of that short name and batch."""
    return next((row for row in bench.rows if short_name(row) == name and row.batch == batch), None)
