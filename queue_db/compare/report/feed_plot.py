"""The plot of the orderings of feeds."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from queue_db.compare.report import drawing
from queue_db.compare.report.drawing import BLUE, FAINT, INK, ORANGE
from queue_db.compare.report.feed_figures import problems, wrong
from queue_db.compare.report.wording import NOTHING, milliseconds, number
from queue_db.compare.results import Bench, FeedRow

_LINE = 0.32  #: height of one ordering, inches


def feeds(bench: Bench, width: float = drawing.WIDE) -> Figure | None:
    """Plot messages/s with errors, gaps and duplicates, and the times of a post and until a reader has the message."""
    rows = [row for row in bench.feeds if row.rate]
    if not rows:
        return None
    line = 1.35 * _LINE if drawing.narrow(width) else _LINE
    figure, (rates, times) = drawing.blank(1.9 + 2 * line * len(rows), 2, width=width)
    names = [row.name for row in rows]
    drawing.name_rows(rates, names, [_words(row) for row in rows], width)
    drawing.name_rows(times, names, [_waits(row) for row in rows], width)
    for y, row in enumerate(rows):
        _rate(rates, y, row, narrow=drawing.narrow(width))
        _times(times, y, row, narrow=drawing.narrow(width))
    rates.set_xlim(0, 1.03 * max(row.rate.max for row in rows if row.rate))
    rates.set_xlabel("messages per second", fontsize=9)
    times.set_xscale("log")
    times.set_xlabel("ms: median to 99th percentile (logarithmic)", fontsize=9)
    drawing.plain(rates)
    drawing.plain(times)
    handles = [times.plot([], [], color=colour, linewidth=5, label=words)[0] for _, words, colour in _TIMES]
    drawing.legend(figure, handles)
    turns = max(len(row.turns) for row in rows)
    below = f"{bench.server} · {rows[0].publishers} threads publish to {rows[0].feeds} feeds, each with a reader · turns: {turns}"
    drawing.title(figure, "Orderings of feeds: messages per second, with errors, gaps and duplicates", below)
    return figure


_TIMES = (("post", "a publish", BLUE), ("visible", "until a reader has the message", ORANGE))


def _rate(axes: Axes, y: int, row: FeedRow, *, narrow: bool) -> None:
    assert row.rate is not None  # noqa: S101 - callers check
    bad = wrong(row)
    high = 0.5 if narrow else 0.72
    axes.barh(y, row.rate.median, color=BLUE, height=high, hatch="////" if bad else None, edgecolor="white", linewidth=0)
    if len(row.turns) > 1:
        axes.plot([row.rate.min, row.rate.max], [y, y], color=INK, linewidth=1.2, marker="|", markersize=5)


def _words(row: FeedRow) -> str:
    return f"{number(round(row.rate.median)) if row.rate else NOTHING}/s · {problems(row)}"


def _waits(row: FeedRow) -> str:
    """Return the p99 of a publish and until a reader has the message."""
    late = [milliseconds(found) for of, *_ in _TIMES if (found := row.median(of, "p99")) is not None]
    return f"p99 {' / '.join(late)} ms" if late else ""


def _times(axes: Axes, y: int, row: FeedRow, *, narrow: bool) -> None:
    for at, (of, _, colour) in enumerate(_TIMES):
        middle, late = row.median(of, "p50"), row.median(of, "p99")
        if middle is not None and late is not None:
            line = [1000 * max(middle, 1e-6), 1000 * max(late, 1e-6)]
            place = y - 0.08 + 0.27 * at if narrow else y - 0.18 + 0.36 * at
            axes.plot(line, [place] * 2, color=colour, linewidth=5, solid_capstyle="butt")
            axes.plot(line[:1], [place], color=FAINT, marker="|", markersize=9)
