"""The plot of misses over the width of the window, measured and predicted."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from queue_db.compare import theory
from queue_db.compare.report import drawing
from queue_db.compare.report.drawing import BLUE, FAINT, GREEN, GRID, INK, ORANGE, VERMILION
from queue_db.compare.report.findings import predicted_miss
from queue_db.compare.report.wording import number, several, short_name
from queue_db.compare.results import Bench, Row


def misses(bench: Bench, width: float = drawing.WIDE) -> Figure | None:
    """Plot the misses over the width of the window, measured and predicted by both models."""
    rows = [row for row in bench.rows if slots(row) and row.total("candidates")]
    if not rows:
        return None
    figure, (axes,) = drawing.blank(4.6 if not drawing.narrow(width) else 4.2, width=width)
    workers = rows[0].workers
    widths = [slots(row) or 1.0 for row in rows]
    top = max(2.0 * workers, *widths) * 1.5
    curve = [2 ** (step / 20 * math.log2(top)) for step in range(21)]
    line = [theory.lock_step_miss(width, workers) for width in curve]
    axes.plot(curve, line, color=FAINT, linestyle="--", label=f"model: {several(workers, 'worker')} in lock-step")
    if (racing := fitted(rows)) is not None:
        words = f"model: 1 − e^(−m/W), m = {number(racing)} fitted to uniform picks"
        axes.plot(curve, [theory.miss(racing, width) for width in curve], color=BLUE, label=words)
    kinds: tuple[tuple[str, Callable[[Row], bool], str, str], ...] = (
        ("measured, uniform pick or head", uniform, BLUE, "o"),
        ("measured, geometric pick (not covered by the model)", lambda row: "geometric" in row.claim, ORANGE, "s"),
        ("measured, slot of the window (queue_db)", lambda row: row.family != "article", GREEN, "D"),
    )
    for words, belongs, colour, marker in kinds:
        some = [row for row in rows if belongs(row)]
        if some:
            places = [slots(row) or 1.0 for row in some]
            axes.scatter(places, [row.miss_ratio for row in some], color=colour, marker=marker, s=34, zorder=3, label=words)
    predicted = [(slots(row) or 1.0, model) for row in rows if uniform(row) and (model := predicted_miss(row)) is not None]
    if predicted:
        words = "predicted per row from the competing claims of each attempt"
        axes.scatter(
            [width for width, _ in predicted],
            [model for _, model in predicted],
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
    axes.set_xlabel("width of the window W, in claims", fontsize=9)
    axes.set_ylabel("misses")
    drawing.legend(figure, axes.get_legend_handles_labels()[0])
    drawing.title(figure, "Misses: measured and predicted", drawing.subtitle(bench))
    return figure


def _name_points(axes: Axes, rows: Sequence[Row]) -> None:
    """Write the name of each point at the right edge, with a line to the point; one for all batch sizes of a row at one place."""
    gap = 0.046
    named: dict[tuple[str, float, float], list[Row]] = {}
    for row in rows:
        named.setdefault((short_name(row), round(slots(row) or 1.0, 1), round(row.miss_ratio, 2)), []).append(row)
    places = drawing.spread_apart([ratio for _, _, ratio in named], gap, 0.0, 1.0)
    for ((name, _, _), alike), place in zip(named.items(), places, strict=True):
        row = alike[0]
        axes.annotate(
            drawing.shown(_label(name, [one.batch for one in alike], [one.batch for one in rows if short_name(one) == name])),
            (slots(row) or 1.0, row.miss_ratio),
            (1.02, place),
            textcoords=axes.get_yaxis_transform(),
            fontsize=8,
            color=INK,
            va="center",
            arrowprops={"arrowstyle": "-", "color": GRID, "linewidth": 0.9, "shrinkA": 1, "shrinkB": 3, "relpos": (0, 0.5)},
            annotation_clip=False,
            zorder=2.5,
        )


def _label(name: str, batches: Sequence[int], every: Sequence[int]) -> str:
    if len(batches) > 1 and len(batches) == len(every):
        return f"{name} (all)"
    sizes = ", ".join(f"×{batch}" for batch in batches if batch > 1 or len(batches) > 1)
    return f"{name} {sizes}".rstrip()


def slots(row: Row) -> float | None:
    """Return the width of a row's window in claims, since each claim takes a batch; None without a window."""
    if row.window is not None:
        return max(1.0, row.window / row.batch)
    tuned = [run.window / row.batch for run in row.runs if run.window is not None]
    return max(1.0, sum(tuned) / len(tuned)) if tuned else None


def uniform(row: Row) -> bool:
    """Return whether the model covers the row: uniform picks, or the head, which is a window of one."""
    return row.family == "article" and "geometric" not in row.claim


def fitted(rows: Sequence[Row]) -> float | None:
    """Return the *m* of 1 − e^(−m/W) that fits the rows with uniform picks best (least squares); None without misses."""
    points = [(width, row.miss_ratio) for row in rows if uniform(row) and (width := slots(row))]
    if not any(ratio for _, ratio in points):
        return None
    most = max(theory.racing(min(ratio, 0.999), width) for width, ratio in points)
    return min(
        (most * step / 500 for step in range(1, 501)),
        key=lambda racing: sum((theory.miss(racing, width) - ratio) ** 2 for width, ratio in points),
    )
