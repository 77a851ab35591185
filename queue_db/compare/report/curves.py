"""The plot of jobs/s over the number of workers: a panel for each batch size, with the crossing of the default and its rival.

The article's rows have a panel of their own: they differ from the others in more than the claim.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator

from queue_db.compare.report import drawing, sweep
from queue_db.compare.report.advice import AT_MOST_ONCE, DEFAULT
from queue_db.compare.report.drawing import BLUE, GREEN, INK, MARKERS, ORANGE, PALETTE, PURPLE, SKY, SOFT, VERMILION
from queue_db.compare.report.sweep import Crossing, Curve
from queue_db.compare.report.wording import headline, key, number, several
from queue_db.compare.results import Bench

#: Least height of a panel's axes, inches.
AXES = 2.3

#: Inches: a panel's title, the numbers and the words below it, left of it and at its right edge; a line of names.
_HEAD, _BELOW, _LEFT, _RIGHT, _LINE = 0.45, 0.5, 0.62, 0.12, 0.155

_SIZE = 8.0  #: of names

_COLOURS = {DEFAULT: BLUE, "skip_locked": VERMILION, "pessimistic": PURPLE, "optimistic": GREEN, AT_MOST_ONCE: SKY}
_OTHERS = (ORANGE, SOFT, *PALETTE[2:], BLUE)


@dataclass(frozen=True)
class Panel:
    """Curves on a common scale."""

    title: str
    curves: tuple[Curve, ...]
    crossings: tuple[Crossing, ...] = ()

    @property
    def head(self) -> float:
        """Inches above the axes: each crossing has a line of its own."""
        return _HEAD + _LINE * max(0, len(self.crossings) - 1)

    def axes(self, least: float) -> float:
        """Return the height of the axes, inches: each name has a line of its own."""
        return max(least, _LINE * len(self.curves))

    def height(self, least: float = AXES) -> float:
        """Return the height of the panel, with its title and the words below. ``least``: of the axes."""
        return self.head + self.axes(least) + _BELOW


def panel(bench: Bench, batch: int, *, article: bool = False) -> Panel | None:
    """Return the curves of a batch size, of the article's rows or of all others; None without any."""
    found = tuple(curve for curve in sweep.curves(bench, batch) if (curve.family == "article") is article) if bench.sweep else ()
    if not found:
        return None
    if article:
        return Panel("The article's rows, 1 job per claim: jobs/s", found)
    return Panel(f"{several(batch, 'job')} per claim: jobs/s", found, tuple(sweep.crossings(bench, batch)))


def workers(bench: Bench, width: float = drawing.WIDE) -> Figure | None:
    """Plot the median jobs/s over the number of workers; None if there is only one number."""
    every = [panel(bench, batch, article=article) for article in (False, True) for batch in sweep.batches(bench)]
    found = [one for one in every if one is not None]
    if not found:
        return None
    figure = Figure(figsize=(width, 0.58), facecolor="white")
    rows = [*bench.rows, *bench.sweep]
    runs = max(len(row.runs) for row in bench.rows)
    below = f"{bench.server} · {drawing.workers(rows)} · runs per point: {runs}. {key('Point', rows)}"
    drawing.title(figure, headline("Jobs per second over the number of workers", rows), below, layout=False)
    top = figure.get_figheight() + 0.08
    drawing.grow(figure, top + sum(one.height() for one in found))
    for one in found:
        draw(figure, one, 0.0, top, width)
        top += one.height()
    return figure


def draw(figure: Figure, panel: Panel, left: float, top: float, width: float, least: float = AXES) -> Axes:
    """Draw a panel at a place of the figure, inches from its upper left corner, with axes at least so high."""
    whole, high = figure.get_figwidth(), figure.get_figheight()
    found = panel.curves
    label = max(drawing.measured(_label(curve), _SIZE) for curve in found) + 0.25
    across, down = width - _LEFT - label - _RIGHT, panel.axes(least)
    axes = figure.add_axes(((left + _LEFT) / whole, 1 - (top + panel.head + down) / high, across / whole, down / high))
    drawing.dress(axes)
    most = max(max(row.rate.max for row in curve.rows if row.rate) for curve in found) * 1.06
    axes.set_ylim(0, most)
    counts = sorted({row.workers for curve in found for row in curve.rows})
    axes.set_xscale("log", base=2)
    axes.set_xlim(counts[0] / 1.12, counts[-1] * 1.12)
    axes.set_xticks(counts, [str(count) for count in counts])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_locator(MaxNLocator(5))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: number(value)))
    axes.tick_params(labelsize=8)
    figure.text((left + 0.09) / whole, 1 - (top + 0.06) / high, panel.title, fontsize=9.5, fontweight="bold", color=INK, va="top")
    axes.set_xlabel("workers", fontsize=8.5, color=SOFT, labelpad=1)
    for at, curve in enumerate(found):
        _curve(axes, curve, _colour(found, curve), MARKERS[at % len(MARKERS)])
    _name(axes, found, most * _LINE / down, most)
    for at, crossing in enumerate(panel.crossings):
        _note(axes, crossing, across, label, 1 + (0.05 + _LINE * at) / down)
    return axes


def _note(axes: Axes, crossing: Crossing, across: float, room: float, height: float) -> None:
    """Draw a crossing and write above the axes who overtakes; there are ``room`` inches right of the axes."""
    axes.axvline(crossing.workers, color=SOFT, linewidth=1, linestyle="--", zorder=1)
    words = f"{crossing.after} overtakes at ≈ {crossing.workers:.1f}"
    low, high = map(math.log2, axes.get_xlim())
    place = across * (math.log2(crossing.workers) - low) / (high - low) + 0.03
    begin = max(0.1 - _LEFT, min(place, across + room - drawing.measured(words, 8)))
    axes.text(begin / across, height, drawing.shown(words), transform=axes.transAxes, fontsize=8, color=SOFT, va="bottom")


def _curve(axes: Axes, curve: Curve, colour: str, marker: str) -> None:
    places = [row.workers for row in curve.rows]
    medians = [row.rate.median for row in curve.rows if row.rate]
    default = curve.name == DEFAULT
    axes.plot(places, medians, color=colour, linewidth=2.4 if default else 1.4, zorder=4 if default else 3)
    axes.scatter(places, medians, color=colour, marker=marker, s=30 if default else 20, zorder=5 if default else 4)
    for row in curve.rows:
        if row.rate and row.rate.interval:
            axes.plot([row.workers] * 2, row.rate.interval, color=colour, linewidth=1, zorder=2)


def _name(axes: Axes, found: Sequence[Curve], gap: float, most: float) -> None:
    """Write each name and its last figure at the right edge, with a line to its last point."""
    lasts = [row.rate.median if (row := curve.rows[-1]).rate else 0.0 for curve in found]
    for curve, last, place in zip(found, lasts, drawing.spread_apart(lasts, gap, gap / 2, most - gap / 2), strict=True):
        colour = _colour(found, curve)
        axes.annotate(
            drawing.shown(_label(curve)),
            (curve.rows[-1].workers, last),
            (1.03, place),
            textcoords=axes.get_yaxis_transform(),
            fontsize=_SIZE,
            color=INK,
            va="center",
            fontweight="bold" if curve.name == DEFAULT else None,
            arrowprops={"arrowstyle": "-", "color": colour, "linewidth": 0.9, "shrinkA": 1, "shrinkB": 3, "relpos": (0, 0.5)},
            annotation_clip=False,
        )


def _label(curve: Curve) -> str:
    rate = curve.rows[-1].rate
    return f"{curve.name} {number(round(rate.median)) if rate else ''}".strip()


def _colour(found: Sequence[Curve], curve: Curve) -> str:
    if curve.name in _COLOURS:
        return _COLOURS[curve.name]
    names = [one.name for one in found]
    taken = {_COLOURS[name] for name in names if name in _COLOURS}
    free = [colour for colour in _OTHERS if colour not in taken]
    return free[[name for name in names if name not in _COLOURS].index(curve.name) % len(free)]
