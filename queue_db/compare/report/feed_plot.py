"""The plot of the orderings of feeds."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from queue_db.compare.report import drawing
from queue_db.compare.report.drawing import BLUE, FAINT, INK, ORANGE, VERMILION
from queue_db.compare.report.feed_figures import problems, wrong
from queue_db.compare.report.wording import number
from queue_db.compare.results import Bench, FeedRow

_LINE = 0.32  #: height of one ordering, inches


def feeds(bench: Bench) -> Figure | None:
    """Plot messages/s with errors, gaps and duplicates, and the times of a post and until a reader has the message."""
    rows = [row for row in bench.feeds if row.rate]
    if not rows:
        return None
    figure, (rates, times) = drawing.blank(1.9 + 2 * _LINE * len(rows), 2)
    for axes in (rates, times):
        axes.set_yticks(range(len(rows)), [drawing.shown(row.name) for row in rows])
        axes.set_ylim(len(rows) - 0.4, -0.6)
        axes.grid(visible=False, axis="y")
    for y, row in enumerate(rows):
        _rate(rates, y, row)
        _times(times, y, row)
    rates.set_xlim(0, 1.9 * max(row.rate.max for row in rows if row.rate))
    rates.set_xlabel("messages per second")
    times.set_xscale("log")
    times.set_xlabel("ms: median to 99th percentile (logarithmic)")
    drawing.plain(rates)
    drawing.plain(times)
    handles = [times.plot([], [], color=colour, linewidth=5, label=words)[0] for _, words, colour in _TIMES]
    drawing.legend(figure, handles)
    turns = max(len(row.turns) for row in rows)
    below = f"{bench.server} · {rows[0].publishers} threads publish to {rows[0].feeds} feeds, each with a reader · turns: {turns}"
    drawing.title(figure, "Orderings of feeds: messages per second, with errors, gaps and duplicates", below)
    return figure


_TIMES = (("post", "a publish", BLUE), ("visible", "until a reader has the message", ORANGE))


def _rate(axes: Axes, y: int, row: FeedRow) -> None:
    assert row.rate is not None  # noqa: S101 - callers check
    bad = wrong(row)
    axes.barh(y, row.rate.median, color=BLUE, height=0.72, hatch="////" if bad else None, edgecolor="white", linewidth=0)
    if len(row.turns) > 1:
        axes.plot([row.rate.min, row.rate.max], [y, y], color=INK, linewidth=1.2, marker="|", markersize=5)
    text = f"{number(round(row.rate.median))}/s · {problems(row)}"
    ink = VERMILION if bad else INK
    axes.annotate(drawing.shown(text), (row.rate.max, y), (6, 0), textcoords="offset points", va="center", fontsize=8, color=ink)


def _times(axes: Axes, y: int, row: FeedRow) -> None:
    for at, (of, _, colour) in enumerate(_TIMES):
        middle, late = row.median(of, "p50"), row.median(of, "p99")
        if middle is not None and late is not None:
            line = [1000 * max(middle, 1e-6), 1000 * max(late, 1e-6)]
            axes.plot(line, [y - 0.18 + 0.36 * at] * 2, color=colour, linewidth=5, solid_capstyle="butt")
            axes.plot(line[:1], [y - 0.18 + 0.36 * at], color=FAINT, marker="|", markersize=9)
