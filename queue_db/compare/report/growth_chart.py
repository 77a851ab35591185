"""The chart of a cluster: jobs/s of each strategy by the number of nodes, in a panel for each batch size."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from queue_db.compare.report import drawing
from queue_db.compare.report.advice import median
from queue_db.compare.report.drawing import BLUE, FAINT, GREEN, INK, ORANGE, PALE, SOFT, VERMILION
from queue_db.compare.report.growth import LOCKS, batches, turn, words
from queue_db.compare.report.wording import several
from queue_db.compare.results import Bench

_COLOURS = {
    "adaptive": BLUE,
    "optimistic": ORANGE,
    "skip_locked": VERMILION,
    "pessimistic": SOFT,
    "complete_and_claim": GREEN,
    "at_most_once": FAINT,
}


def chart(benches: Sequence[Bench], width: float = drawing.WIDE) -> Figure | None:
    """Draw the median jobs/s of the finished runs; None without one."""
    sizes = batches(benches)
    if not sizes:
        return None
    columns = 1 if width < drawing.WIDE / 2 else min(3, len(sizes))
    lines = -(-len(sizes) // columns)
    figure, axes = drawing.blank(3.0 * lines + 0.9, lines, columns, width=width)
    legend: dict[str, Line2D] = {}
    for batch, one in zip(sizes, axes, strict=False):
        for name, colour in _COLOURS.items():
            if (drawn := _line(one, benches, name, batch, colour)) is not None:
                legend[name] = drawn
        _divide(one, benches, batch)
        one.set_title(f"{several(batch, 'job')} per claim", fontsize=9.5, fontweight="bold", loc="left", color=INK)
        one.set_xticks([bench.nodes for bench in benches])
        one.set_xlabel("nodes that the workers are spread over", fontsize=8.5)
        drawing.plain(one, "y")
    for one in axes[len(sizes) :]:
        one.remove()
    figure.legend(
        [*legend.values()],
        [f"{name} (locks)" if name in LOCKS else name for name in legend],
        loc="outside lower center",
        ncols=2 if columns == 1 else len(legend),
        frameon=False,
        fontsize=8.5,
        labelcolor=INK,
    )
    server = benches[0].server.rpartition(", ")[0]
    shared = f" The nodes {benches[0].facts['nodes']}." if "nodes" in benches[0].facts else ""
    drawing.title(figure, f"{server}: jobs per second by number of nodes", words(benches) + shared)
    return figure


def _line(axes: Axes, benches: Sequence[Bench], name: str, batch: int, colour: str) -> Line2D | None:
    """Draw a strategy, dashed if it locks, with the intervals of its medians."""
    rows = [(bench.nodes, row) for bench in benches if (row := bench.row(name, batch)) and row.rate]
    if not rows:
        return None
    style = "--" if name in LOCKS else "-"
    (line,) = axes.plot(
        [nodes for nodes, _ in rows], [median(row) for _, row in rows], style, color=colour, marker="o", markersize=4
    )
    for nodes, row in rows:
        if row.rate and row.rate.interval:
            axes.plot([nodes, nodes], row.rate.interval, color=colour, linewidth=1, marker="_", markersize=6)
    return line


def _divide(axes: Axes, benches: Sequence[Bench], batch: int) -> None:
    """Shade where locks pay no longer, and say so above the lines."""
    last, first = benches[-1].nodes, turn(benches, batch)
    axes.set_xlim(0.7, last + 0.3)
    axes.set_ylim(0, 1.15 * axes.get_ylim()[1])
    if first is None:
        return
    border = max(0.7, first - 0.5)
    if first <= last:
        axes.axvspan(border, last + 0.3, color=PALE, alpha=0.3, linewidth=0, zorder=0)
    for begin, end, text in ((0.7, border, "locks pay"), (border, last + 0.3, "optimistic claims pay")):
        if end - begin > 0.5:
            at = ((min(begin, last + 0.3) + min(end, last + 0.3)) / 2, 0.97)
            axes.text(*at, text, transform=axes.get_xaxis_transform(), ha="center", va="top", fontsize=8, color=SOFT)
