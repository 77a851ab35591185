"""The history of a queue as charts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from queue_db.db import QueueDB
from queue_db.monitoring.metrics import QueueMetrics
from queue_db.service.pages import words
from queue_db.service.pages.numbers import series, since, waiting


@dataclass(frozen=True, slots=True)
class Range:
    """How much of the history is shown, and in what steps, seconds."""

    seconds: int
    width: int


#: By the word in the address.
RANGES = {"hour": Range(3_600, 60), "day": Range(86_400, 600), "month": Range(30 * 86_400, 14_400)}


@dataclass(frozen=True, slots=True)
class Chart:
    """One chart."""

    title: str
    values: tuple[float | None, ...]
    now: str
    most: str
    kind: str = ""

    @property
    def text(self) -> str:
        """What it shows, for those who do not see it."""
        return f"{self.title}: now {self.now}, at most {self.most}"


def charts(db: QueueDB, queue: str | None, over: Range, now: datetime) -> list[Chart]:
    """The charts of a queue, or of all."""
    points = over.seconds // over.width
    rows = db.metrics.history(queue, since=since(points, over.width, now), width=over.width)
    if not rows:
        return []

    def per_second(row: QueueMetrics, count: int) -> float:
        return count / row.duration if row.duration else 0.0

    def chart(
        title: str, value: Callable[[QueueMetrics], float | None], text: Callable[[float | None], str], kind: str = ""
    ) -> Chart:
        values = series(rows, value, points, over.width, now)
        known = [one for one in values if one is not None]
        return Chart(title, values, text(known[-1] if known else None), text(max(known, default=None)), kind)

    return [
        chart("due and running", waiting, words.number),
        chart("oldest due", lambda row: row.oldest or 0.0, words.span),
        chart("done", lambda row: per_second(row, row.completed), words.rate, "good"),
        chart("failed attempts and deaths", lambda row: per_second(row, row.failed + row.died), words.rate, "bad"),
        chart("candidates lost to other workers", lambda row: per_second(row, row.missed), words.rate),
        chart("leases lost", lambda row: per_second(row, row.lost), words.rate, "bad"),
    ]
