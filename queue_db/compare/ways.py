"""Which ways the claims of an adaptive strategy took, over all workers."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass

from queue_db.compare.history import Notes
from queue_db.strategies.ways import Way


@dataclass(frozen=True)
class Ways:
    """The claims of one run or of several."""

    skip_locked: int  #: claims with SKIP LOCKED
    window: int  #: claims from a window
    candidates: int  #: that claims from windows tried to take
    missed: int  #: candidates that other workers took first
    #: The cost of a job won from windows divided by that with SKIP LOCKED, for each worker that has tried both.
    costs: list[float]
    ended: dict[str, int]  #: way in use at the end → number of workers

    @classmethod
    def of(cls, notes: Iterable[Notes]) -> Ways | None:
        """Those of the workers with these notes; None without an adaptive strategy, or where it has one way."""
        found = [note.usage for note in notes if note.usage is not None]
        if not found:
            return None
        return cls(
            skip_locked=sum(one.skip_locked for one in found),
            window=sum(one.window for one in found),
            candidates=sum(one.candidates for one in found),
            missed=sum(one.missed for one in found),
            costs=[one.cost for one in found if one.cost is not None],
            ended={way.value: sum(one.way is way for one in found) for way in Way},
        )

    @classmethod
    def together(cls, several: Iterable[Ways]) -> Ways | None:
        """Those of several runs; None without any."""
        found = list(several)
        if not found:
            return None
        return cls(
            skip_locked=sum(one.skip_locked for one in found),
            window=sum(one.window for one in found),
            candidates=sum(one.candidates for one in found),
            missed=sum(one.missed for one in found),
            costs=[cost for one in found for cost in one.costs],
            ended={way.value: sum(one.ended.get(way.value, 0) for one in found) for way in Way},
        )

    @property
    def most(self) -> Way:
        """The way of most claims."""
        return Way.SKIP_LOCKED if self.skip_locked >= self.window else Way.WINDOW

    def share_of(self, way: Way) -> float:
        """The share of the claims that took it, 0 … 1."""
        taken = self.skip_locked if way is Way.SKIP_LOCKED else self.window
        return taken / max(1, self.skip_locked + self.window)

    @property
    def miss_ratio(self) -> float | None:
        """Share of the candidates in windows that other workers took first; None if there were none."""
        return self.missed / self.candidates if self.candidates else None

    @property
    def cost(self) -> float | None:
        """The cost of a job won from windows divided by that with SKIP LOCKED: the median of the workers; None without trials."""
        return statistics.median(self.costs) if self.costs else None
