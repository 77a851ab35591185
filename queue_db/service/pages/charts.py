"""The history of a queue as charts, their scales, and small charts as SVG elements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from markupsafe import Markup

from queue_db.db import QueueDB
from queue_db.monitoring.metrics import QueueMetrics
from queue_db.service.pages import words
from queue_db.service.pages.numbers import series, since, waiting


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


# --- scales ---

# Of a number with two digits.
_TENTHS = (10, 15, 20, 25, 30, 40, 50, 60, 80)
_SPANS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14_400, 28_800, 43_200, 86_400, 172_800)
_PER_MINUTE = 1 / 60


def top_of(largest: float, text: Callable[[float | None], str]) -> float:
    """The upper end of a scale for values up to ``largest``, which ``text`` shows without rounding."""
    if text is words.span:
        return next((float(one) for one in _SPANS if one >= largest), _next(largest, 86_400))
    if text is words.rate:
        return _next(largest, _PER_MINUTE if largest <= 5 * _PER_MINUTE else 0.1)
    return _next(largest, 1)


def _next(largest: float, unit: float) -> float:
    wanted, power = largest / unit, 1
    while True:
        for tenths in _TENTHS:
            # Whole numbers of the unit: the text has no more digits.
            if tenths * power % 10 == 0 and tenths * power / 10 >= wanted:
                return tenths * power / 10 * unit
        power *= 10


# --- small charts ---

_SVG = Markup(
    '<svg class="spark {kind}" viewBox="0 0 {width} {height}" preserveAspectRatio="none" role="img" aria-label="{text}">'
    "{shapes}</svg>"
)
_SHAPE = Markup('<path class="area" d="M{line}V{height}H{first}Z"/><path class="line" d="M{line}"/>')


def _points(values: Sequence[float | None], width: int, height: int, top: float) -> list[list[tuple[float, float]]]:
    """Coordinates, cut into pieces where a value is missing."""
    step = width / max(1, len(values) - 1)
    pieces: list[list[tuple[float, float]]] = [[]]
    for place, value in enumerate(values):
        if value is None:
            if pieces[-1]:
                pieces.append([])
            continue
        pieces[-1].append((place * step, height - 1 - value / top * (height - 3)))
    return [piece for piece in pieces if piece]


def sparkline(
    values: Sequence[float | None], text: str, *, width: int = 120, height: int = 26, kind: str = "", top: float | None = None
) -> Markup:
    """A chart of values at equal distances; None: nothing is known. Colours come from the style sheet.

    :param text: what it shows, for those who do not see it.
    :param kind: a class of the element.
    :param top: the value at the upper edge; default: the largest.
    """
    known = [value for value in values if value is not None]
    top = max([top or 0.0, *known, 1e-9])
    shapes = Markup("").join(_shape(piece, width, height) for piece in _points(values, width, height, top))
    return _SVG.format(kind=kind, width=width, height=height, text=text, shapes=shapes)


def _shape(piece: list[tuple[float, float]], width: int, height: int) -> Markup:
    if len(piece) == 1:
        ((x, y),) = piece
        piece = [(max(0.0, x - 2), y), (x, y)]
    line = "L".join(f"{x:.0f} {y:.3g}" for x, y in piece)
    return _SHAPE.format(line=line, height=height, first=f"{piece[0][0]:.0f}")
