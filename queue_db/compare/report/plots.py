"""The plots: each takes a bench and gives a figure, or None where it has nothing to show."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from queue_db.compare import theory
from queue_db.compare.report import drawing
from queue_db.compare.report.drawing import BLUE, FAINT, GREEN, INK, ORANGE, PALETTE, PURPLE, VERMILION
from queue_db.compare.report.findings import predicted_miss
from queue_db.compare.report.wording import errors, label, number, repeats, short_name, unfinished
from queue_db.compare.results import Bench, Row

#: Rows whose order is worth a picture, by short name; peers come after them.
ORDERED = (
    *("DBP-0-1-1", "DBP-0-0-5", "DBP-1-0-1", "DBO-0", "DBO-1", "DBO-2", "DBO-5", "DBO-9"),
    *("pessimistic", "skip_locked", "optimistic", "adaptive"),
)

_FAMILIES = {
    "product": "queue_db's strategies, through the public API",
    "article": "The article's rows, on its table",
    "peer": "Peers",
}
_LINE = 0.235  #: inches for one row of a plot


def throughput(bench: Bench) -> Figure | None:
    """Mean jobs/s of the finished runs with their standard deviation, and beside each its errors and repeated executions."""
    groups = _groups(bench, lambda row: bool(row.runs))
    rates = [spread.mean for _, rows in groups for row in rows if (spread := row.rate)]
    if not rates:
        return None
    figure, panels = _panels(groups)
    log = drawing.logarithmic(rates)
    batches = sorted({row.batch for _, rows in groups for row in rows})
    limits = _room([row for _, rows in groups for row in rows], rates, log=log)
    for axes, (_, rows) in zip(panels, groups, strict=True):
        for place, row in enumerate(rows):
            _throughput_bar(axes, place, row, PALETTE[batches.index(row.batch) % len(PALETTE)], limits[0])
        axes.set_xscale("log" if log else "linear")
        axes.set_xlim(*limits)
        drawing.plain(axes)
    panels[-1].set_xlabel("jobs per second" + (" (logarithmic)" if log else ""))
    if len(batches) > 1:
        keys = [Patch(color=PALETTE[n % len(PALETTE)], label=f"{batch} per claim") for n, batch in enumerate(batches)]
        drawing.legend(figure, keys)
    once = all(len(row.runs) <= 1 for row in bench.rows)
    what = "one run each, which has no spread" if once else "mean, with its standard deviation"
    drawing.title(figure, f"Throughput: {what}, errors and repeats", _where(bench))
    return figure


def _throughput_bar(axes: Axes, place: int, row: Row, colour: str, left: float) -> None:
    rate, wrong = row.rate, bool(row.repeats or unfinished(row))
    if rate is not None:
        axes.barh(place, rate.mean, color=colour, height=0.72, hatch="////" if wrong else None, edgecolor="white", linewidth=0)
        if rate.sd is not None:
            whisker = [max(rate.mean - rate.sd, left), rate.mean + rate.sd]
            axes.plot(whisker, [place, place], color=INK, linewidth=1.2, solid_capstyle="butt", marker="|", markersize=5)
    at = rate.mean + (rate.sd or 0.0) if rate else left
    ink = VERMILION if wrong else INK
    axes.annotate(_beside(row), (at, place), (6, 0), textcoords="offset points", va="center", fontsize=8, color=ink)


def _beside(row: Row) -> str:
    """What is told beside a bar."""
    late = unfinished(row)
    parts = (
        number(round(row.rate.mean)) + "/s" if row.rate else None,
        late.split(":")[0] if late else None,
        errors(row) if row.faults else None,
        repeats(row) if row.repeats else None,
    )
    return " · ".join(part for part in parts if part)


def _room(rows: Sequence[Row], rates: Sequence[float], *, log: bool) -> tuple[float, float]:
    """Limits of the axis between which all bars have room for what is told beside them."""
    low = min(rates) / 2 if log else 0.0
    high = math.log10(max(rates) / low) if log else max(rates)
    for row in rows:
        # A letter is about a hundredth of the axis wide; no text gets more than three quarters of it.
        free = 1 - min(0.75, 0.0105 * len(_beside(row)) + 0.03)
        end = row.rate.mean + (row.rate.sd or 0.0) if row.rate else low
        high = max(high, (math.log10(max(end, low) / low) if log else end) / free)
    return low, low * 10**high if log else high


def displacements(bench: Bench) -> Figure | None:
    """Histograms of |position − index| with single claims, as in the article, all repeats together."""
    chosen = [row for name in ORDERED for row in bench.rows if short_name(row) == name and row.batch == 1]
    chosen += [row for row in bench.rows if row.family == "peer" and row.batch == 1]
    chosen = [row for row in chosen if row.diff.histogram][:15]
    if not chosen:
        return None
    lines = math.ceil(len(chosen) / 3)
    figure, panels = drawing.blank(1.0 + 1.75 * lines, lines, 3)
    top = max(max(row.diff.histogram.values()) for row in chosen)
    for axes, row in zip(panels, chosen, strict=False):
        _histogram(axes, row)
        axes.set_ylim(0.6, top * 2)
        axes.set_title(
            f"{drawing.shown(row.name)}\nmean {number(row.diff.mean)}, largest {number(row.diff.max)}",
            fontsize=9,
            loc="left",
            color=INK,
        )
    for axes in panels[len(chosen) :]:
        axes.set_visible(False)
    for axes in panels[: len(chosen) : 3]:
        axes.set_ylabel("executions", fontsize=9)
    for axes in panels[max(0, len(chosen) - 3) : len(chosen)]:
        axes.set_xlabel("places from its turn", fontsize=9)
    drawing.title(figure, "How far from its turn each job was begun: |position − index|", _where(bench))
    return figure


def _histogram(axes: Axes, row: Row) -> None:
    histogram = row.diff.histogram
    # One bar for each distance while they can be told apart, then as many distances to a bar as make forty.
    wide = max(1, math.ceil((row.diff.max + 1) / 40))
    bars: dict[int, int] = {}
    for distance, count in histogram.items():
        bars[distance // wide] = bars.get(distance // wide, 0) + count
    wrong = row.repeats > 0
    axes.bar(
        [(number + 0.5) * wide - 0.5 for number in bars],
        list(bars.values()),
        width=wide * (0.9 if row.diff.max < 15 else 1.0),
        color=VERMILION if wrong else BLUE,
    )
    axes.set_yscale("log")
    axes.set_xlim(-0.7, max(row.diff.max + 0.7, 5))
    axes.locator_params(axis="x", nbins=5, integer=True)
    drawing.plain(axes)
    drawing.plain(axes, "y")


def duplicates(bench: Bench) -> Figure | None:
    """How many jobs were executed how often, for the rows that executed some more than once, all repeats together."""
    rows = sorted((row for row in bench.rows if row.repeats), key=lambda row: row.repeats, reverse=True)[: len(PALETTE)]
    if not rows:
        return None
    figure, (axes,) = drawing.blank(4.2)
    wide, most = 0.8 / len(rows), 2
    for place, row in enumerate(rows):
        jobs: dict[int, int] = {}
        for run in row.runs:
            for times, count in run.duplicates.items():
                jobs[times] = jobs.get(times, 0) + count
        most = max(most, *jobs) if jobs else most
        words = f"{drawing.shown(label(row))}: {row.total('executions'):,} executions of {row.total('unique'):,} jobs"
        bars = axes.bar(
            [times - 0.4 + (place + 0.5) * wide for times in jobs], list(jobs.values()), wide, color=PALETTE[place], label=words
        )
        axes.bar_label(bars, [number(count) for count in jobs.values()], fontsize=8, color=INK)
    axes.set_yscale("log")
    axes.set_ylim(0.6, axes.get_ylim()[1] * 4)
    drawing.plain(axes, "y")
    axes.set_xlim(1.4, max(most, 4) + 0.6)
    axes.set_xticks(range(2, max(most, 4) + 1, max(1, most // 15)))
    axes.set_xlabel("executions of one job")
    axes.set_ylabel("jobs (logarithmic)")
    axes.legend(fontsize=8.5, frameon=False, loc="upper right")
    drawing.title(figure, "Jobs that were executed more than once", _where(bench))
    return figure


def misses(bench: Bench) -> Figure | None:
    """Share of lost attempts over the window's width, measured and by the model's two views."""
    rows = [row for row in bench.rows if slots(row) and row.total("candidates")]
    if not rows:
        return None
    figure, (axes,) = drawing.blank(4.6)
    workers = rows[0].workers
    widths = [slots(row) or 1.0 for row in rows]
    top = max(2.0 * workers, *widths) * 1.5
    curve = [2 ** (step / 20 * math.log2(top)) for step in range(21)]
    line = [theory.lock_step_miss(width, workers) for width in curve]
    axes.plot(curve, line, color=FAINT, linestyle="--", label=f"model: {workers} workers in lock-step")
    if (racing := fitted(rows)) is not None:
        words = f"model: 1 − e^(−m/W), m = {number(racing)} fitted to the uniform picks"
        axes.plot(curve, [theory.miss(racing, width) for width in curve], color=BLUE, label=words)
    kinds: tuple[tuple[str, Callable[[Row], bool], str, str], ...] = (
        ("measured, uniform pick or head", uniform, BLUE, "o"),
        ("measured, geometric pick (the model is for uniform ones)", lambda row: "geometric" in row.claim, ORANGE, "s"),
        ("measured, slice of the window (queue_db)", lambda row: row.family != "article", GREEN, "D"),
    )
    for words, belongs, colour, marker in kinds:
        some = [row for row in rows if belongs(row)]
        if some:
            places = [slots(row) or 1.0 for row in some]
            axes.scatter(places, [row.miss_ratio for row in some], color=colour, marker=marker, s=34, zorder=3, label=words)
    told = [(slots(row) or 1.0, model) for row in rows if uniform(row) and (model := predicted_miss(row)) is not None]
    if told:
        words = "predicted for each uniform row, from the rivals counted in each attempt"
        axes.scatter(
            [width for width, _ in told],
            [model for _, model in told],
            facecolor="none",
            edgecolor=VERMILION,
            marker="o",
            s=90,
            zorder=2,
            label=words,
        )
    _name_points(axes, rows)
    axes.set_xscale("log", base=2)
    axes.set_xlim(0.85, top)
    powers = [2**power for power in range(math.ceil(math.log2(top)))]
    axes.set_xticks(powers, [number(power) for power in powers])
    axes.set_ylim(-0.02, 1.02)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value * 100:.0f} %")
    axes.set_xlabel("width of the window W, in claims (jobs ÷ batch, logarithmic)")
    axes.set_ylabel("lost attempts")
    axes.legend(fontsize=8, frameon=False, loc="upper right")
    drawing.title(figure, "Misses: measured, and what the model says", _where(bench))
    return figure


def _name_points(axes: Axes, rows: Sequence[Row]) -> None:
    """Names beside the points; those that stand too near to the one before are left out, the table has them all."""
    taken: list[tuple[float, float]] = []
    for row in sorted(rows, key=lambda one: (not uniform(one), one.family, one.miss_ratio)):
        place = (math.log2(slots(row) or 1.0), row.miss_ratio)
        if all(abs(place[0] - x) > 0.7 or abs(place[1] - y) > 0.045 for x, y in taken):
            taken.append(place)
            words = f"{short_name(row)} ×{row.batch}" if row.batch > 1 else short_name(row)
            axes.annotate(
                drawing.shown(words),
                (2 ** place[0], place[1]),
                (8, -3),
                textcoords="offset points",
                fontsize=8.5,
                color=INK,
                zorder=2.5,  # above the lines, below the points
                bbox={"boxstyle": "square,pad=0.1", "facecolor": "white", "edgecolor": "none", "alpha": 0.8},
            )


def slots(row: Row) -> float | None:
    """Width of a row's window in claims: what a rival can take of it is a batch. None without a window."""
    if row.window is not None:
        return max(1.0, row.window / row.batch)
    tuned = [run.window / row.batch for run in row.runs if run.window is not None]
    return max(1.0, sum(tuned) / len(tuned)) if tuned else None


def uniform(row: Row) -> bool:
    """Whether the model speaks of its picks: uniform, or the head, which is a window of one."""
    return row.family == "article" and "geometric" not in row.claim


def fitted(rows: Sequence[Row]) -> float | None:
    """The *m* of 1 − e^(−m/W) that fits the rows with uniform picks best (least squares); None without a miss among them."""
    points = [(width, row.miss_ratio) for row in rows if uniform(row) and (width := slots(row))]
    if not any(ratio for _, ratio in points):
        return None
    most = max(theory.racing(min(ratio, 0.999), width) for width, ratio in points)
    return min(
        (most * step / 500 for step in range(1, 501)),
        key=lambda racing: sum((theory.miss(racing, width) - ratio) ** 2 for width, ratio in points),
    )


def latency(bench: Bench) -> Figure | None:
    """p50, p99 and the longest claim of each row, over all its repeats."""
    groups = _groups(bench, lambda row: any(run.latency for run in row.runs))
    if not groups:
        return None
    figure, panels = _panels(groups)
    everything: list[float] = []
    for axes, (_, rows) in zip(panels, groups, strict=True):
        p50, p99, worst = ([_latency(row, which) for row in rows] for which in ("p50", "p99", "max"))
        everything += [*p50, *worst]
        axes.hlines(range(len(rows)), p50, worst, color="#C8C8C8", linewidth=2)
        axes.scatter(p50, range(len(rows)), color=BLUE, marker="o", s=26, zorder=3, label="p50")
        axes.scatter(p99, range(len(rows)), color=ORANGE, marker="D", s=24, zorder=3, label="p99")
        axes.scatter(worst, range(len(rows)), color=VERMILION, marker="|", s=60, linewidth=2, zorder=3, label="longest")
        axes.set_yticks(range(len(rows)), [drawing.shown(label(row)) for row in rows])
    log = drawing.logarithmic(everything)
    for axes in panels:
        axes.set_xscale("log" if log else "linear")
        axes.set_xlim((min(everything) / 1.5, max(everything) * 1.5) if log else (0, max(everything) * 1.05))
        drawing.plain(axes)
    panels[-1].set_xlabel("milliseconds (logarithmic)" if log else "milliseconds")
    drawing.legend(figure, panels[0].get_legend_handles_labels()[0])
    drawing.title(figure, "How long a claim takes that wins something", _where(bench))
    return figure


def _latency(row: Row, which: str) -> float:
    """Milliseconds: the median of the repeats, of the longest the longest."""
    values = sorted(getattr(run.latency, which) * 1000 for run in row.runs if run.latency)
    return float(values[-1] if which == "max" else values[len(values) // 2])


def fairness(bench: Bench) -> Figure | None:
    """The busiest and the idlest worker of each row, as multiples of a fair share."""
    groups = _groups(bench, lambda row: bool(_shares(row)))
    if not groups:
        return None
    figure, panels = _panels(groups)
    for axes, (_, rows) in zip(panels, groups, strict=True):
        shares = [_shares(row) for row in rows]
        places = range(len(rows))
        axes.hlines(places, [min(some) for some in shares], [max(some) for some in shares], color=PURPLE, linewidth=3)
        axes.scatter([min(some) for some in shares], places, color=BLUE, marker="<", s=30, zorder=3, label="idlest worker")
        axes.scatter([max(some) for some in shares], places, color=VERMILION, marker=">", s=30, zorder=3, label="busiest worker")
        axes.axvline(1.0, color=FAINT, linewidth=1, linestyle="--", zorder=1, label="mean: a fair share")
    panels[0].set_xlim(0, 1.05 * max(share for _, rows in groups for row in rows for share in _shares(row)))
    panels[-1].set_xlabel("executions of a worker ÷ mean of the run's workers")
    drawing.legend(figure, panels[0].get_legend_handles_labels()[0])
    drawing.title(figure, "Fairness: what one worker got, least and most over all runs", _where(bench))
    return figure


def _shares(row: Row) -> list[float]:
    return [
        jobs * len(run.per_worker) / sum(run.per_worker) for run in row.runs if sum(run.per_worker) > 0 for jobs in run.per_worker
    ]


def _groups(bench: Bench, wanted: Callable[[Row], bool]) -> list[tuple[str, list[Row]]]:
    """Rows by family, each in the order of the bench."""
    families = [*_FAMILIES, *sorted({row.family for row in bench.rows} - _FAMILIES.keys())]
    groups = [(family, [row for row in bench.rows if row.family == family and wanted(row)]) for family in families]
    return [(_FAMILIES.get(family, family), rows) for family, rows in groups if rows]


def _panels(groups: Sequence[tuple[str, list[Row]]]) -> tuple[Figure, list[Axes]]:
    """A panel for each family, a line for each of its rows, the first at the top, on one common scale."""
    heights = [len(rows) + 1.5 for _, rows in groups]
    figure, panels = drawing.blank(1.5 + _LINE * sum(heights) + 0.2 * len(groups), len(groups), ratios=heights)
    for axes, (words, rows) in zip(panels, groups, strict=True):
        axes.sharex(panels[0]) if axes is not panels[0] else None
        axes.set_yticks(range(len(rows)), [drawing.shown(label(row)) for row in rows])
        axes.set_ylim(len(rows) - 0.4, -0.6)
        axes.grid(visible=False, axis="y")
        axes.set_title(drawing.shown(words), fontsize=9, loc="left", color=INK)
    return figure, panels


def _where(bench: Bench) -> str:
    workers = sorted({row.workers for row in bench.rows})
    runs = max((len(row.runs) for row in bench.rows), default=0)
    return f"{bench.server} · {', '.join(map(str, workers))} workers · runs of each row: {runs}"


#: Name in files → the plot and what it says to those who cannot see it.
PLOTS: dict[str, tuple[Callable[[Bench], Figure | None], str]] = {
    "throughput": (throughput, "Jobs per second of each row, with standard deviation, errors and repeated executions."),
    "misses": (misses, "Share of lost attempts over the width of the window, with the curves of the model."),
    "displacement": (displacements, "Histograms of how far from its turn each job was begun."),
    "duplicates": (duplicates, "Number of jobs that were executed more than once, by the number of executions."),
    "latency": (latency, "Median, 99th percentile and longest time of a claim of each row."),
    "fairness": (fairness, "Executions of the busiest and the idlest worker of each row, against a fair share."),
}
