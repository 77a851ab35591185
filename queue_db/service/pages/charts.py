"""The history of a queue as charts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from queue_db.db import QueueDB
from queue_db.monitoring.metrics import QueueMetrics
from queue_db.service.pages import words
from queue_db.service.pages.numbers import series, since, waiting
from queue_db.service.pages.scales import top_of


@dataclass(frozen=True, slots=True)
class Range:
    """How much of the history is shown, and in what steps, seconds."""

    seconds: int
    width: int


# A line has two ends.
_FEWEST = 2

#: By the word in the address.
RANGES = {"hour": Range(3_600, 60), "day": Range(86_400, 600), "month": Range(30 * 86_400, 14_400)}


@dataclass(frozen=True, slots=True)
class Chart:
    """One chart: values at equal distances, None where nothing is known."""

    title: str
    values: tuple[float | None, ...]
    first: datetime  #: time of the first value
    width: int  #: seconds from one value to the next
    shown: Callable[[float | None], str]  #: a value as text
    kind: str = ""

    @property
    def _known(self) -> list[float]:
        return [one for one in self.values if one is not None]

    @property
    def now(self) -> str:
        """The last known value."""
        return self.shown(self._known[-1] if self._known else None)

    @property
    def most(self) -> str:
        """The largest value."""
        return self.shown(max(self._known, default=None))

    @property
    def top(self) -> float:
        """The upper end of the scale; the lower one is 0."""
        return top_of(max(self._known, default=0.0), self.shown)

    @property
    def texts(self) -> str:
        """Each value as text, for the pointer."""
        return "|".join("" if one is None else self.shown(one) for one in self.values)

    @property
    def last(self) -> datetime:
        """Time of the last value."""
        return self.first + timedelta(seconds=self.width * max(0, len(self.values) - 1))

    @property
    def text(self) -> str:
        """What it shows, for those who do not see it."""
        return f"{self.title}: now {self.now}, at most {self.most}, {words.minute(self.first)} to {words.minute(self.last)}"


def charts(db: QueueDB, queue: str | None, over: Range, now: datetime) -> list[Chart]:
    """The charts of a queue, or of all: from the first time at which anything is known."""
    points = over.seconds // over.width
    begin = since(points, over.width, now)
    rows = db.metrics.history(queue, since=begin, width=over.width)
    if not rows:
        return []
    unknown = int((min(row.at for row in rows) - begin).total_seconds()) // over.width
    points -= min(unknown, points - _FEWEST)
    first = since(points, over.width, now)

    def per_second(row: QueueMetrics, count: int) -> float:
        return count / row.duration if row.duration else 0.0

    def chart(
        title: str, value: Callable[[QueueMetrics], float | None], shown: Callable[[float | None], str], kind: str = ""
    ) -> Chart:
        return Chart(title, series(rows, value, points, over.width, now), first, over.width, shown, kind)

    return [
        chart("due and running", waiting, words.number),
        chart("oldest due", lambda row: row.oldest or 0.0, words.span),
        chart("done", lambda row: per_second(row, row.completed), words.rate, "good"),
        chart("failed attempts and deaths", lambda row: per_second(row, row.failed + row.died), words.rate, "bad"),
        chart("candidates lost to other workers", lambda row: per_second(row, row.missed), words.rate),
        chart("leases lost", lambda row: per_second(row, row.lost), words.rate, "bad"),
    ]
