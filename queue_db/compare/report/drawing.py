"""What all plots have in common: colours, axes, saving. No global state: figures are objects, settings hold while one is saved."""

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

#: Okabe and Ito's palette, which the colour-blind can tell apart; black and yellow are left out: grid and paper need them.
BLUE, ORANGE, GREEN, VERMILION, PURPLE, SKY = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9"
INK, SOFT, FAINT = "#222222", "#5A5A5A", "#8A8A8A"
PALETTE = (BLUE, ORANGE, GREEN, VERMILION, PURPLE, SKY)
MARKERS = "osD^vP"

WIDTH = 9.0  #: inches; the page shows them at 96 pixels each

_ID = re.compile(r'(\bid="|url\(#|href="#)')


def blank(height: float, rows: int = 1, columns: int = 1, *, ratios: Sequence[float] | None = None) -> tuple[Figure, list[Axes]]:
    """A figure of :data:`WIDTH` × ``height`` inches and its axes, row by row. ``ratios``: heights of the rows."""
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
    """What one sees, in bold, and under it where it was measured; the axes make room for both."""
    height = figure.get_figheight()
    figure.text(0.01, 1 - 0.12 / height, shown(text), fontsize=11, fontweight="bold", color=INK, va="top")
    figure.text(0.01, 1 - 0.34 / height, shown(below), fontsize=8.5, color=SOFT, va="top")
    figure.set_layout_engine("constrained", rect=(0, 0, 1, 1 - 0.58 / height))


def plain(axes: Axes, which: Literal["x", "y"] = "x") -> None:
    """Numbers with commas on an axis; on a logarithmic one also at 2 and 5 where there is room."""
    axis = axes.xaxis if which == "x" else axes.yaxis
    axis.set_major_formatter(FuncFormatter(lambda value, _: number(value)))
    if axis.get_scale() == "log":
        low, high = axes.get_xlim() if which == "x" else axes.get_ylim()
        if which == "x" and low > 0 and math.log10(high / low) < 2.6:
            axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axis.set_minor_formatter(NullFormatter())


def legend(figure: Figure, handles: Sequence[Artist]) -> None:
    """Below all axes, so that it hides nothing."""
    figure.legend(handles=handles, loc="outside lower right", ncols=len(handles), fontsize=8.5, frameon=False)


def logarithmic(values: Sequence[float]) -> bool:
    """Whether they lie too far apart for a linear axis."""
    above = [value for value in values if value > 0 and math.isfinite(value)]
    return bool(above) and max(above) / min(above) > 20


def shown(text: str) -> str:
    """A name as it is: Matplotlib takes what stands between dollar signs for mathematics."""
    return text.replace("$", r"\$")


def _settings() -> AbstractContextManager[None]:
    # Text stays text in an SVG: smaller, to be found and read aloud; a fixed salt makes the same figure the same file.
    return mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "queue_db", "font.family": "DejaVu Sans"})


def png(figure: Figure) -> bytes:
    """As a picture of 120 dots per inch."""
    buffer = io.BytesIO()
    with _settings():
        figure.savefig(buffer, format="png", dpi=120)
    return buffer.getvalue()


def svg(figure: Figure, name: str) -> str:
    """As one SVG element. ``name`` goes before its identifiers, so that several fit into one page; it has no network references."""
    buffer = io.StringIO()
    with _settings():
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    text = buffer.getvalue()
    return _ID.sub(rf"\g<1>{name}-", text[text.index("<svg") :])
