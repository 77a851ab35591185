"""The plot of the waits under a fixed arrival rate."""

from __future__ import annotations

from matplotlib.figure import Figure

from queue_db.compare.report import drawing
from queue_db.compare.report.arrival_figures import claimers, problem, waiting, weak
from queue_db.compare.report.drawing import BLUE, GRID, ORANGE, VERMILION
from queue_db.compare.results import ArrivalRow, Bench

_MARKS = (("p50", BLUE, "o", 26), ("p99", ORANGE, "D", 24), ("max", VERMILION, "|", 60))


def arrivals(bench: Bench, width: float = drawing.WIDE) -> Figure | None:
    """Plot p50, p99 and maximum of the waits of each strategy."""
    rows = [row for row in bench.arrivals if problem(row) is None]
    if not rows:
        return None
    line = 0.42 if drawing.narrow(width) else 0.3
    figure, (axes,) = drawing.blank(1.7 + line * len(rows), width=width)
    found = {which: [_ms(row, which) for row in rows] for which, *_ in _MARKS}
    axes.hlines(range(len(rows)), found["p50"], found["max"], color=GRID, linewidth=2)
    handles = [
        axes.scatter(found[which], range(len(rows)), color=colour, marker=marker, s=size, zorder=3, label=which)
        for which, colour, marker, size in _MARKS
    ]
    drawing.name_rows(axes, [row.name for row in rows], [waiting(row) for row in rows], width)
    every = [value for values in found.values() for value in values]
    axes.set_xscale("log")
    axes.set_xlim(min(every) / 1.5, max(every) * 1.5)
    drawing.plain(axes)
    axes.set_xlabel("milliseconds (logarithmic)", fontsize=9)
    drawing.legend(figure, handles)
    first = rows[0]
    below = (
        f"{bench.server} · {first.arrivals:,.0f} jobs/s arrive · {claimers(first)} {first.batch} · "
        f"turns: {max(len(row.turns) for row in rows)}"
    )
    note = ": indicative" if any(weak(row) for row in rows) else ""
    drawing.title(figure, f"Wait of a job at a fixed arrival rate, until a worker has it{note}", below)
    return figure


def _ms(row: ArrivalRow, which: str) -> float:
    found = row.pickup(which)
    assert found is not None  # noqa: S101 - callers check
    return max(1e-3, 1000 * (found.max if which == "max" else found.median))
