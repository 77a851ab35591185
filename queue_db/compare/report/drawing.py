"""Colours, axes and saving, for all plots. Matplotlib's global state is not changed."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Literal

import matplotlib as mpl
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from queue_db.compare.report.wording import number
from queue_db.compare.results import Bench

#: Okabe and Ito's palette for colour-blind readers, without black and yellow, which are used for the grid and the background.
BLUE, ORANGE, GREEN, VERMILION, PURPLE, SKY = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9"
INK, SOFT, FAINT = "#222222", "#5A5A5A", "#8A8A8A"
PALETTE = (BLUE, ORANGE, GREEN, VERMILION, PURPLE, SKY)
MARKERS = "osD^vP"

WIDTH = 9.0  #: inches, of 96 pixels each in the page

_ID = re.compile(r'(\bid="|url\(#|href="#)')


def blank(height: float, rows: int = 1, columns: int = 1, *, ratios: Sequence[float] | None = None) -> tuple[Figure, list[Axes]]:
    """Return a figure of :data:`WIDTH` × ``height`` inches and its axes, row by row. ``ratios``: relative heights of the rows."""
    figure = Figure(figsize=(WIDTH, height), layout="constrained", facecolor="white")
    grid = figure.subplots(rows, columns, squeeze=False, height_ratios=ratios)
    axes = [one for line in grid for one in line]
    for one in axes:
        one.set_axisbelow(True)
        one.grid(visible=True, color="#E3E3E3", linewidth=0.8)
        one.spines[["top", "right"]].set_visible(False)
        one.spines[["left", "bottom"]].set_color(FAINT)
        one.tick_params(colors=INK, labelsize=9)
    return figure, axes


def title(figure: Figure, text: str, below: str) -> None:
    """Add a title in bold and a line below it, and make room for both."""
    height = figure.get_figheight()
    figure.text(0.01, 1 - 0.12 / height, shown(text), fontsize=11, fontweight="bold", color=INK, va="top")
    figure.text(0.01, 1 - 0.34 / height, shown(below), fontsize=8.5, color=SOFT, va="top")
    figure.set_layout_engine("constrained", rect=(0, 0, 1, 1 - 0.58 / height))


def subtitle(bench: Bench) -> str:
    """Return server, number of workers and number of runs."""
    workers = sorted({row.workers for row in bench.rows})
    runs = max((len(row.runs) for row in bench.rows), default=0)
    return f"{bench.server} · {', '.join(map(str, workers))} workers · runs per row: {runs}"


def plain(axes: Axes, which: Literal["x", "y"] = "x") -> None:
    """Format the numbers of an axis with commas; a short logarithmic x axis also gets ticks at 2 and 5."""
    axis = axes.xaxis if which == "x" else axes.yaxis
    axis.set_major_formatter(FuncFormatter(lambda value, _: number(value)))
    if axis.get_scale() == "log":
        low, high = axes.get_xlim() if which == "x" else axes.get_ylim()
        if which == "x" and low > 0 and math.log10(high / low) < 2.6:
            axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axis.set_minor_formatter(NullFormatter())


def legend(figure: Figure, handles: Sequence[Artist]) -> None:
    """Add a legend below all axes."""
    figure.legend(handles=handles, loc="outside lower right", ncols=len(handles), fontsize=8.5, frameon=False)


def logarithmic(values: Sequence[float]) -> bool:
    """Return whether the values need a logarithmic axis."""
    above = [value for value in values if value > 0 and math.isfinite(value)]
    return bool(above) and max(above) / min(above) > 20


def shown(text: str) -> str:
    """Escape dollar signs, which Matplotlib reads as mathematics."""
    return text.replace("$", r"\$")


def _settings() -> AbstractContextManager[None]:
    # Text stays text in an SVG, so that it is small, searchable and accessible; a fixed salt makes the files reproducible.
    return mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "queue_db", "font.family": "DejaVu Sans"})


def png(figure: Figure) -> bytes:
    """Return the figure as a PNG of 120 dots per inch."""
    buffer = io.BytesIO()
    with _settings():
        figure.savefig(buffer, format="png", dpi=120)
    return buffer.getvalue()


def svg(figure: Figure, name: str) -> str:
    """Return the figure as one SVG element without network references; ``name`` prefixes its ids."""
    buffer = io.StringIO()
    with _settings():
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    text = buffer.getvalue()
    return _ID.sub(rf"\g<1>{name}-", text[text.index("<svg") :])
