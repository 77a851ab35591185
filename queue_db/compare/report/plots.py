"""The plots: each function returns a figure for a bench, or None without data. ``width`` is that of a desk or of a phone."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from queue_db.compare.report import drawing
from queue_db.compare.report.arrival_plot import arrivals
from queue_db.compare.report.bars import throughput
from queue_db.compare.report.curves import workers
from queue_db.compare.report.drawing import BLUE, FAINT, GRID, INK, ORANGE, PALETTE, PURPLE, VERMILION
from queue_db.compare.report.feed_plot import feeds
from queue_db.compare.report.misses import misses
from queue_db.compare.report.wording import label, number, short_name
from queue_db.compare.results import Bench, Row

#: Rows in the plot of displacements, by short name; peers follow.
ORDERED = (
    *("DBP-0-1-1", "DBP-0-0-5", "DBP-1-0-1", "DBO-0", "DBO-1", "DBO-2", "DBO-5", "DBO-9"),
    *("pessimistic", "skip_locked", "optimistic", "adaptive"),
)

_FAMILIES = {
    "product": "queue_db's strategies (public API)",
    "article": "The article's rows (its own table)",
    "peer": "Peers",
}
_LINE = 0.235  #: height of one row of a plot, inches


def displacements(bench: Bench, width: float = drawing.WIDE) -> Figure | None:
    """Plot histograms of |position − index| for single claims over all repeats, as in the article."""
    chosen = [row for name in ORDERED for row in bench.rows if short_name(row) == name and row.batch == 1]
    chosen += [row for row in bench.rows if row.family == "peer" and row.batch == 1]
    chosen = [row for row in chosen if row.diff.histogram][:15]
    if not chosen:
        return None
    columns = 2 if drawing.narrow(width) else 3
    lines = math.ceil(len(chosen) / columns)
    figure, panels = drawing.blank(1.0 + 1.75 * lines, lines, columns, width=width)
    top = max(max(row.diff.histogram.values()) for row in chosen)
    for axes, row in zip(panels, chosen, strict=False):
        _histogram(axes, row)
        axes.set_ylim(0.6, top * 2)
        axes.set_title(
            f"{drawing.shown(row.name)}\nmean {number(row.diff.mean)}, max {number(row.diff.max)}",
            fontsize=8.5,
            loc="left",
            color=INK,
        )
    for axes in panels[len(chosen) :]:
        axes.set_visible(False)
    for axes in panels[: len(chosen) : columns]:
        axes.set_ylabel("executions", fontsize=9)
    for axes in panels[max(0, len(chosen) - columns) : len(chosen)]:
        axes.set_xlabel("positions", fontsize=8.5)
    drawing.title(figure, "Displacement: distance of executions from the jobs' positions in the queue", drawing.subtitle(bench))
    return figure


def _histogram(axes: Axes, row: Row) -> None:
    histogram = row.diff.histogram
    # At most 40 bars: beyond that a bar stands for several distances.
    wide = max(1, math.ceil((row.diff.max + 1) / 40))
    bars: dict[int, int] = {}
    for distance, count in histogram.items():
        bars[distance // wide] = bars.get(distance // wide, 0) + count
    wrong = row.repeats > 0
    # One shape: a page with a rectangle for each bar would be twice as large.
    heights = [bars.get(index, 0) for index in range(max(bars) + 1)]
    edges = [index * wide - 0.5 for index in range(max(bars) + 2)]
    axes.stairs(heights, edges, fill=True, baseline=0.5, color=VERMILION if wrong else BLUE)
    axes.set_yscale("log")
    axes.set_xlim(-0.7, max(row.diff.max + 0.7, 5))
    axes.locator_params(axis="x", nbins=3, integer=True)
    drawing.plain(axes)
    drawing.plain(axes, "y")


def duplicates(bench: Bench, width: float = drawing.WIDE) -> Figure | None:
    """Plot how often jobs were executed, for rows with repeated executions, over all repeats."""
    rows = sorted((row for row in bench.rows if row.repeats), key=lambda row: row.repeats, reverse=True)[: len(PALETTE)]
    if not rows:
        return None
    figure, (axes,) = drawing.blank(4.2, width=width)
    wide, most = 0.8 / len(rows), 2
    for index, row in enumerate(rows):
        jobs: dict[int, int] = {}
        for run in row.runs:
            for times, count in run.duplicates.items():
                jobs[times] = jobs.get(times, 0) + count
        most = max(most, *jobs) if jobs else most
        words = f"{drawing.shown(label(row))}: {row.total('executions'):,} of {row.total('unique'):,} jobs"
        bars = axes.bar(
            [times - 0.4 + (index + 0.5) * wide for times in jobs], list(jobs.values()), wide, color=PALETTE[index], label=words
        )
        axes.bar_label(bars, [number(count) for count in jobs.values()], fontsize=8, color=INK)
    axes.set_yscale("log")
    axes.set_ylim(0.6, axes.get_ylim()[1] * 4)
    drawing.plain(axes, "y")
    axes.set_xlim(1.4, max(most, 4) + 0.6)
    axes.set_xticks(range(2, max(most, 4) + 1, max(1, most // 15)))
    axes.set_xlabel("executions of one job")
    axes.set_ylabel("jobs (logarithmic)")
    drawing.legend(figure, axes.get_legend_handles_labels()[0])
    drawing.title(figure, "Jobs that were executed more than once", f"{drawing.subtitle(bench)}. Below: executions of jobs")
    return figure


def latency(bench: Bench, width: float = drawing.WIDE) -> Figure | None:
    """Plot p50, p99 and maximum of the claim latency of each row over all repeats."""
    groups = _groups(bench, lambda row: any(run.latency for run in row.runs))
    if not groups:
        return None
    figure, panels = _panels(groups, width)
    everything: list[float] = []
    for axes, (_, rows) in zip(panels, groups, strict=True):
        p50, p99, worst = ([_latency(row, which) for row in rows] for which in ("p50", "p99", "max"))
        everything += [*p50, *worst]
        axes.hlines(range(len(rows)), p50, worst, color=GRID, linewidth=2)
        axes.scatter(p50, range(len(rows)), color=BLUE, marker="o", s=26, zorder=3, label="p50")
        axes.scatter(p99, range(len(rows)), color=ORANGE, marker="D", s=24, zorder=3, label="p99")
        axes.scatter(worst, range(len(rows)), color=VERMILION, marker="|", s=60, linewidth=2, zorder=3, label="max")
        values = [" / ".join(map(number, three)) for three in zip(p50, p99, worst, strict=True)]
        drawing.name_rows(axes, [label(row) for row in rows], values, width)
    log = drawing.logarithmic(everything)
    for axes in panels:
        axes.set_xscale("log" if log else "linear")
        axes.set_xlim((min(everything) / 1.5, max(everything) * 1.5) if log else (0, max(everything) * 1.05))
        drawing.plain(axes)
    panels[-1].set_xlabel("milliseconds (logarithmic)" if log else "milliseconds")
    drawing.legend(figure, panels[0].get_legend_handles_labels()[0])
    drawing.title(
        figure, "Latency of claims that win at least one job", f"{drawing.subtitle(bench)} · beside each row: p50 / p99 / max, ms"
    )
    return figure


def _latency(row: Row, which: str) -> float:
    """Return milliseconds: the median of the repeats, for ``max`` their maximum."""
    values = sorted(getattr(run.latency, which) * 1000 for run in row.runs if run.latency)
    return float(values[-1] if which == "max" else values[len(values) // 2])


def fairness(bench: Bench, width: float = drawing.WIDE) -> Figure | None:
    """Plot the busiest and the idlest worker of each row, as multiples of the mean."""
    groups = _groups(bench, lambda row: bool(_shares(row)))
    if not groups:
        return None
    figure, panels = _panels(groups, width)
    for axes, (_, rows) in zip(panels, groups, strict=True):
        shares = [_shares(row) for row in rows]
        places = range(len(rows))
        axes.hlines(places, [min(some) for some in shares], [max(some) for some in shares], color=PURPLE, linewidth=3)
        axes.scatter([min(some) for some in shares], places, color=BLUE, marker="<", s=30, zorder=3, label="idlest worker")
        axes.scatter([max(some) for some in shares], places, color=VERMILION, marker=">", s=30, zorder=3, label="busiest worker")
        axes.axvline(1.0, color=FAINT, linewidth=1, linestyle="--", zorder=1, label="mean")
        values = [f"{number(min(some))} – {number(max(some))}" for some in shares]
        drawing.name_rows(axes, [label(row) for row in rows], values, width)
    most = max(share for _, rows in groups for row in rows for share in _shares(row))
    panels[0].set_xlim(-0.04 * most, 1.06 * most)
    panels[-1].set_xlabel("executions of a worker ÷ mean of all workers", fontsize=9)
    drawing.legend(figure, panels[0].get_legend_handles_labels()[0])
    drawing.title(figure, "Fairness: executions of the idlest and the busiest worker", drawing.subtitle(bench))
    return figure


def _shares(row: Row) -> list[float]:
    return [
        jobs * len(run.per_worker) / sum(run.per_worker) for run in row.runs if sum(run.per_worker) > 0 for jobs in run.per_worker
    ]


def _groups(bench: Bench, wanted: Callable[[Row], bool]) -> list[tuple[str, list[Row]]]:
    """Return the rows by family, in the order of the bench."""
    families = [*_FAMILIES, *sorted({row.family for row in bench.rows} - _FAMILIES.keys())]
    groups = [(family, [row for row in bench.rows if row.family == family and wanted(row)]) for family in families]
    return [(_FAMILIES.get(family, family), rows) for family, rows in groups if rows]


def _panels(groups: Sequence[tuple[str, list[Row]]], width: float) -> tuple[Figure, list[Axes]]:
    """Return a figure with one panel per family and one line per row, on a common scale."""
    heights = [len(rows) + 1.5 for _, rows in groups]
    line = 1.6 * _LINE if drawing.narrow(width) else _LINE
    figure, panels = drawing.blank(1.5 + line * sum(heights) + 0.2 * len(groups), len(groups), width=width, ratios=heights)
    for axes, (words, _) in zip(panels, groups, strict=True):
        axes.sharex(panels[0]) if axes is not panels[0] else None
        axes.set_title(drawing.shown(words), fontsize=9, loc="left", color=INK)
    return figure, panels


#: Name in files → the plot and its text description.
PLOTS: dict[str, tuple[Callable[[Bench, float], Figure | None], str]] = {
    "throughput": (throughput, "Jobs per second of each row by batch size, with intervals, errors and repeated executions."),
    "workers": (workers, "Jobs per second over the number of workers, with the crossing of the default and its rival."),
    "arrivals": (arrivals, "Median, 99th percentile and maximum of the wait of a job at a fixed arrival rate."),
    "misses": (misses, "Misses over the width of the window, with the predictions of the models."),
    "displacement": (displacements, "Histograms of the displacement of executions."),
    "duplicates": (duplicates, "Number of jobs that were executed more than once, by the number of executions."),
    "latency": (latency, "Median, 99th percentile and maximum of the claim latency of each row."),
    "fairness": (fairness, "Executions of the busiest and the idlest worker of each row, relative to the mean."),
    "feeds": (feeds, "Messages per second of each ordering of feeds, the time of a publish and the time until it is read."),
}
