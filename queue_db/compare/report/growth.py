"""The chart of a cluster: jobs/s of each strategy by the number of nodes, in a panel for each batch size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from queue_db.compare.report import drawing
from queue_db.compare.report.advice import join, median, recommendable
from queue_db.compare.report.drawing import BLUE, FAINT, GREEN, INK, ORANGE, SOFT, VERMILION
from queue_db.compare.report.wording import indicative, number, several
from queue_db.compare.results import Bench

# Strategy → colour and line; locks are dashed.
_LINES = {
    "pessimistic": (SOFT, "--"),
    "skip_locked": (VERMILION, "--"),
    "optimistic": (ORANGE, "-"),
    "adaptive": (BLUE, "-"),
    "complete_and_claim": (GREEN, "-"),
    "at_most_once": (FAINT, "-"),
}


def clusters(benches: Sequence[Bench]) -> Iterator[list[Bench]]:
    """Yield the databases that are one cluster on one node, on two and so on, if there are at least two."""
    together: list[Bench] = []
    for at, bench in enumerate(benches, 1):
        together = [*together, bench] if bench.nodes > 1 else [bench]
        if len(together) > 1 and (at == len(benches) or benches[at].nodes != bench.nodes + 1):
            yield together


def fastest(benches: Sequence[Bench]) -> str:
    """Return for each batch size which strategy is the fastest on how many nodes, for readers who do not see the chart."""
    said, weak = [], False
    for batch in _batches(benches):
        found = []
        for bench in benches:
            rows = [row for row in bench.rows if recommendable(row) and row.batch == batch]
            if rows:
                best = max(rows, key=median)
                weak = weak or indicative(best)
                found.append(f"{best.name} on {several(bench.nodes, 'node')} ({number(round(median(best)))})")
        if found:
            said.append(f"{join(found)} at {batch} per claim")
    return ("Indicative. Fastest: " if weak else "Fastest: ") + "; ".join(said) + "." if said else "No recommendation."


def chart(benches: Sequence[Bench], width: float = drawing.WIDE) -> Figure | None:
    """Draw the median jobs/s of the finished runs; None without one."""
    batches = _batches(benches)
    if not batches:
        return None
    columns = 1 if width < drawing.WIDE / 2 else min(3, len(batches))
    lines = -(-len(batches) // columns)
    figure, axes = drawing.blank(2.6 * lines + 1.0, lines, columns, width=width)
    legend: dict[str, Line2D] = {}
    for batch, one in zip(batches, axes, strict=False):
        for name, (colour, line) in _LINES.items():
            rows = [(bench.nodes, row.rate) for bench in benches if (row := bench.row(name, batch)) and row.rate]
            places, rates = [nodes for nodes, _ in rows], [rate.median for _, rate in rows]
            if not rows:
                continue
            legend[name], *_ = one.plot(places, rates, color=colour, linestyle=line, marker="o", markersize=4, linewidth=1.6)
            for nodes, rate in rows:
                if rate.interval is not None:
                    one.plot([nodes, nodes], rate.interval, color=colour, linewidth=1, marker="_", markersize=6)
        one.set_title(f"{several(batch, 'job')} per claim", fontsize=9.5, fontweight="bold", loc="left", color=INK)
        one.set_xticks([bench.nodes for bench in benches])
        one.set_xlabel("nodes", fontsize=8.5)
        one.set_ylim(bottom=0)
        drawing.plain(one, "y")
    for one in axes[len(batches) :]:
        one.remove()
    figure.legend(
        [*legend.values()],
        [*legend],
        loc="outside lower center",
        ncols=2 + columns // 2,
        frameon=False,
        fontsize=8.5,
        labelcolor=INK,
    )
    server = benches[0].server.rpartition(", ")[0]
    drawing.title(figure, f"{server}: jobs per second by number of nodes, locks dashed", fastest(benches))
    return figure


def _batches(benches: Sequence[Bench]) -> list[int]:
    return sorted({row.batch for bench in benches for row in bench.rows if row.name in _LINES and row.rate})
