"""The chart of a database: linear bars that begin at 0, the fastest first, in a panel for each batch size.

Each name stands above its bar and each figure beside it, so that the same panel fits a desk and a phone. The machine and the
settings of the server are below, for a reader who sees only the chart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from queue_db.compare.report import drawing
from queue_db.compare.report.advice import AT_MOST_ONCE, DEFAULT, Advice, median
from queue_db.compare.report.drawing import BLUE, INK, ORANGE, PALE, SOFT, VERMILION
from queue_db.compare.report.wording import between_runs, caveats, errors, indicative, number, repeats, several, unfinished
from queue_db.compare.results import Bench, Comparison, Row

#: Inches: a line of names, of a bar, of problems, between rows; a panel's title and its axis; the edge of the figure.
_NAME, _BAR, _PROBLEM, _GAP, _HEAD, _AXIS, _EDGE = 0.17, 0.17, 0.15, 0.05, 0.3, 0.3, 0.15

_SIZE, _SMALL = 8.5, 7.5  #: of names and figures; of the line below

#: Colours of the families; queue_db's default has a stronger one.
_COLOURS = {"product": PALE, "peer": ORANGE, "article": PALE}


@dataclass(frozen=True)
class Panel:
    """Rows on a common scale."""

    title: str
    rows: tuple[Row, ...]

    def problems(self, row: Row, width: float) -> list[str]:
        """Return the lines below a bar."""
        late = unfinished(row)
        parts = (
            late.split(":")[0] if late else None,
            errors(row) if row.faults else None,
            repeats(row) if row.repeats else None,
        )
        text = " · ".join(part for part in parts if part)
        return drawing.wrapped(text, width, 7.5) if text else []

    def height(self, width: float) -> float:
        """Return the height of the axes, inches."""
        lines = sum(len(self.problems(row, width)) for row in self.rows)
        return len(self.rows) * (_NAME + _BAR + _GAP) + lines * _PROBLEM


def panels(bench: Bench) -> list[Panel]:
    """Return a panel for each batch size and one for the article's rows, the fastest row first."""
    rows = sorted((row for row in bench.rows if row.runs), key=median, reverse=True)
    ours = [row for row in rows if row.family != "article"]
    found = [
        Panel(f"{several(batch, 'job')} per claim", tuple(row for row in ours if row.batch == batch))
        for batch in sorted({row.batch for row in ours})
    ]
    article = tuple(row for row in rows if row.family == "article")
    return [*found, Panel("The article's rows: own table, 1 per claim", article)] if article else found


def description(bench: Bench) -> str:
    """Return the recommendation in one sentence, for readers who do not see the chart."""
    choice = Advice.of(bench).choice
    if choice is None or (rate := choice.row.rate) is None:
        return f"{bench.server}: no recommendation."
    row = choice.row
    runs = between_runs(rate, len(row.rates))
    spread = f"bootstrap interval {runs}" if rate.interval else f"{runs}: no interval"
    how = "indicative, " if indicative(row) else ""
    tie = f", a tie with {DEFAULT}, the default" if choice.ties_with_default else ""
    return f"{bench.server}: {row.name}, {row.batch} per claim, {number(round(rate.median))} jobs/s ({how}{spread}){tie}."


def chart(bench: Bench, comparison: Comparison, width: float = drawing.WIDE) -> Figure | None:
    """Draw the median jobs/s of the finished runs with intervals, errors and repeated executions; None without one."""
    every = panels(bench)
    if not any(row.rate for panel in every for row in panel.rows):
        return None
    small = [panel for panel in every if not panel.rows or panel.rows[0].family != "article"]
    columns = 1 if width < drawing.WIDE / 2 else max(1, min(3, len(small)))
    bands = [small[first : first + columns] for first in range(0, len(small), columns)]
    bands += [[panel] for panel in every if panel not in small]
    figure = Figure(figsize=(width, 0.58), facecolor="white")
    said = description(bench).removeprefix(f"{bench.server}: ")
    drawing.title(figure, f"{bench.server}: jobs per second", said, layout=False)
    top = figure.get_figheight() + 0.08
    places: list[tuple[Panel, float, float, float]] = []
    for band in bands:
        each = (width - _EDGE * (len(band) + 1)) / len(band)
        for at, panel in enumerate(band):
            places.append((panel, _EDGE + at * (each + _EDGE), top, each))
        top += max(panel.height(each) for panel in band) + _HEAD + _AXIS + 0.1
    foot = drawing.wrapped(_foot(bench, comparison), width - 2 * _EDGE, _SMALL)
    height = top + 0.14 * len(foot) + 0.1
    drawing.grow(figure, height)
    for panel, left, above, each in places:
        draw(figure, panel, left, above, each)
    for at, line in enumerate(foot):
        figure.text(_EDGE / width, 1 - (top + 0.14 * at) / height, drawing.shown(line), fontsize=_SMALL, color=SOFT, va="top")
    return figure


def _foot(bench: Bench, comparison: Comparison) -> str:
    """Return where the figures are from."""
    machine = comparison.machine
    rows = [row for row in bench.rows if row.runs]
    plan = [several(rows[0].workers, "worker"), f"runs of each row: {max(len(row.runs) for row in rows)}"]
    plan.append(f"work {comparison.plan.get('work-ms', '0')} ms")
    facts = [f"{name} {machine[name]}" for name in ("cores", "memory", "system", "python") if name in machine]
    facts += [f"{name} {value}" for name, value in bench.facts.items()]
    when = [f"queue_db {comparison.version}, {comparison.began[:10]}"]
    return " · ".join([*plan, *facts, *when, *(one.rstrip(".") for one in caveats([], machine))]) + "."


def draw(figure: Figure, panel: Panel, left: float, top: float, width: float) -> Axes:
    """Draw a panel at a place of the figure, inches from its upper left corner, with its title and its axis."""
    whole, high = figure.get_figwidth(), figure.get_figheight()
    above, height = top + _HEAD, panel.height(width)
    axes = figure.add_axes((left / whole, 1 - (above + height) / high, width / whole, height / high))
    drawing.dress(axes)
    axes.grid(visible=False, axis="y")
    axes.spines["left"].set_visible(False)
    axes.set_yticks([])
    axes.set_ylim(height, 0)
    limit = _limit(panel.rows, width)
    axes.set_xlim(0, limit)
    figure.text(
        left / whole, 1 - (top + 0.06) / high, drawing.shown(panel.title), fontsize=9.5, fontweight="bold", color=INK, va="top"
    )
    y = 0.0
    for row in panel.rows:
        y = _row(axes, row, y, panel.problems(row, width), limit / width)
    axes.xaxis.set_major_locator(MaxNLocator(4 if width > 2 else 3, prune="upper"))
    # The last figure would touch the first one of the next panel.
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: number(value) if value < 0.92 * limit else ""))
    axes.tick_params(axis="x", labelsize=7.5, colors=SOFT, length=0)
    return axes


def _row(axes: Axes, row: Row, y: float, problems: Sequence[str], inch: float) -> float:
    """Draw a row from the height ``y``; return where the next begins. ``inch``: jobs/s of an inch."""
    wrong, rate = bool(row.repeats or unfinished(row)), row.rate
    default = row.name == DEFAULT and row.family == "product"
    axes.text(
        0,
        y + _NAME * 0.55,
        drawing.shown(_name(row)),
        fontsize=_SIZE,
        color=INK,
        va="center",
        fontweight="bold" if default else None,
    )
    middle = y + _NAME + _BAR / 2
    if rate is not None:
        colour = BLUE if default else _COLOURS.get(row.family, PALE)
        hatch = "////" if wrong or row.name == AT_MOST_ONCE else None
        axes.barh(middle, rate.median, color=colour, height=_BAR * 0.82, hatch=hatch, edgecolor="white", linewidth=0)
        if rate.interval is not None:
            axes.plot(rate.interval, [middle, middle], color=INK, linewidth=1.2, marker="|", markersize=6, clip_on=False)
        text = _figure(row)
        axes.text(_end(row) + 0.07 * inch, middle, text, fontsize=_SIZE, va="center", color=VERMILION if wrong else INK)
    y += _NAME + _BAR
    for line in problems:
        axes.text(0, y + _PROBLEM / 2, drawing.shown(line), fontsize=7.5, va="center", color=VERMILION if wrong else SOFT)
        y += _PROBLEM
    return y + _GAP


def _name(row: Row) -> str:
    if row.family == "product" and row.name == DEFAULT:
        return f"{row.name} (default)"
    return f"{row.name} (may lose jobs)" if row.family == "product" and row.name == AT_MOST_ONCE else row.name


def _figure(row: Row) -> str:
    assert row.rate is not None  # noqa: S101 - callers check
    middle = number(round(row.rate.median))
    if row.rate.interval is None:
        return middle
    low, high = (number(round(bound)) for bound in row.rate.interval)
    return f"{middle} ({low}–{high})"


def _end(row: Row) -> float:
    return 0.0 if row.rate is None else max(row.rate.median, row.rate.interval[1] if row.rate.interval else 0.0)


def _limit(rows: Sequence[Row], width: float) -> float:
    """Return the end of the axis, so that every figure has room beside its bar."""
    found = [
        _end(row) / max(0.25, 1 - (drawing.measured(_figure(row), _SIZE) + 0.12) / width) for row in rows if row.rate is not None
    ]
    return max(found, default=1.0) or 1.0
