"""Colours, axes and saving, for all pictures. Matplotlib's global state is not changed."""

from __future__ import annotations

import html
import io
import re
import textwrap
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Literal

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from queue_db.compare.report.wording import number

#: Okabe and Ito's palette for colour-blind readers, without black and yellow, which are used for the grid and the background.
BLUE, ORANGE, GREEN, VERMILION = "#0072B2", "#E69F00", "#009E73", "#D55E00"
INK, SOFT, FAINT, GRID = "#222222", "#5a5a5a", "#8a8a8a", "#e3e3e3"

#: Bars beside the one that is marked.
PALE = "#9CC8E3"

#: Widths of a drawing, inches of 96 pixels each in the page: on a desk and on a phone.
WIDE, NARROW = 9.0, 3.75

#: Inches that stay free on the right: a browser sets the texts of a picture in a page, and its letters may be wider.
SPARE = 0.12

#: Width of a letter relative to the size of its font, on average and for bold text.
_LETTER, _BOLD = 0.58, 0.67

_ID = re.compile(r'(\bid="|url\(#|href="#)')
# Two decimals are a fiftieth of a pixel; a number below 1 may be a scale.
_DECIMALS = re.compile(r"\b([1-9]\d*\.\d\d)\d+")
_LETTER_AT = re.compile(r' transform="translate\(([\d.]+) 0\)"/>')
_BLANK = re.compile(r'<use xlink:href="#[bg]3"[^>]*/>')
_COMMENT, _SPACE = re.compile(r"<!--.*?-->", re.DOTALL), re.compile(r">\s+<")
_COLOUR = re.compile(r"\b(fill|stroke): (#[0-9a-f]{6})")

#: Colours on a dark background, for viewers that prefer one: light colour → name of the variable, dark colour.
DARK = {
    "#ffffff": ("paper", "#202126"),
    INK: ("ink", "#ececee"),
    SOFT: ("soft", "#b4b5bc"),
    FAINT: ("faint", "#85868e"),
    GRID: ("grid", "#3a3b41"),
    PALE.lower(): ("pale", "#3f6d8c"),
    BLUE.lower(): ("blue", "#4fa8de"),
    VERMILION.lower(): ("vermilion", "#ff8a4d"),
    GREEN.lower(): ("green", "#35c99b"),
}
_STYLE = (
    "<style>@media (prefers-color-scheme: dark) { svg { "
    + " ".join(f"--q-{name}: {dark};" for name, dark in DARK.values())
    + " } }</style>"
)


def blank(
    height: float, rows: int = 1, columns: int = 1, *, width: float = WIDE, ratios: Sequence[float] | None = None
) -> tuple[Figure, list[Axes]]:
    """Return a figure of ``width`` × ``height`` inches and its axes, row by row. ``ratios``: relative heights of the rows."""
    figure = Figure(figsize=(width, height), layout="constrained", facecolor="white")
    grid = figure.subplots(rows, columns, squeeze=False, height_ratios=ratios)
    axes = [one for line in grid for one in line]
    for one in axes:
        dress(one)
    return figure, axes


def dress(axes: Axes) -> None:
    """Give axes the grid and the colours of all plots."""
    axes.set_axisbelow(True)
    axes.set_facecolor("white")
    axes.grid(visible=True, color=GRID, linewidth=0.8)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(FAINT)
    axes.tick_params(which="both", colors=INK)
    axes.tick_params(labelsize=9)
    for axis in (axes.xaxis, axes.yaxis):
        axis.label.set_color(INK)


def title(figure: Figure, text: str, below: str, *, layout: bool = True) -> float:
    """Add a title in bold and a line below it, wrapped, and make room for both by a taller figure; return their height, inches.

    :param layout: whether the axes are laid out below it; otherwise their places are fractions of the old height.
    """
    width, height = figure.get_figwidth(), figure.get_figheight()
    bold, small = wrapped(text, width - 0.15, 11, bold=True), wrapped(below, width - 0.15, 8.5)
    used = 0.12 + 0.21 * len(bold) + 0.17 * len(small)
    usual = 0.58
    height += max(0.0, used - usual)
    figure.set_figheight(height)
    figure.text(0.09 / width, 1 - 0.12 / height, shown("\n".join(bold)), fontsize=11, fontweight="bold", color=INK, va="top")
    at = 1 - (0.13 + 0.21 * len(bold)) / height
    figure.text(0.09 / width, at, shown("\n".join(small)), fontsize=8.5, color=SOFT, va="top")
    if layout:
        figure.set_layout_engine("constrained", rect=(0, 0, 1 - SPARE / width, 1 - (used + 0.08) / height))
    return used + 0.08


def grow(figure: Figure, height: float) -> None:
    """Make a figure taller; what it has stays where it is, seen from above."""
    before = figure.get_figheight()
    figure.set_figheight(height)
    for text in figure.texts:
        x, y = text.get_position()
        text.set_position((x, 1 - (1 - y) * before / height))


def measured(text: str, size: float, *, bold: bool = False) -> float:
    """Return about how wide a text of that font size is, inches."""
    return len(text) * size * (_BOLD if bold else _LETTER) / 72


def wrapped(text: str, width: float, size: float, *, bold: bool = False) -> list[str]:
    """Return the lines of a text that is ``width`` inches wide at most."""
    return textwrap.wrap(text, max(12, int(width / measured("n", size, bold=bold)))) or [""]


def plain(axes: Axes, which: Literal["x", "y"] = "x") -> None:
    """Format the numbers of an axis with commas."""
    (axes.xaxis if which == "x" else axes.yaxis).set_major_formatter(FuncFormatter(lambda value, _: number(value)))


def shown(text: str) -> str:
    """Escape dollar signs, which Matplotlib reads as mathematics."""
    return text.replace("$", r"\$")


def _settings(*, outlines: bool = False) -> AbstractContextManager[None]:
    # Text stays text in an SVG, so that it is small, searchable and accessible; a fixed salt makes the files reproducible.
    fonts = "path" if outlines else "none"
    return mpl.rc_context({"svg.fonttype": fonts, "svg.hashsalt": "queue_db", "font.family": "DejaVu Sans"})


def png(figure: Figure) -> bytes:
    """Return the figure as a PNG of 120 dots per inch."""
    buffer = io.BytesIO()
    with _settings():
        _lay_out(figure)
        figure.savefig(buffer, format="png", dpi=120)
    return buffer.getvalue()


def svg(figure: Figure, name: str, *, outlines: bool = False) -> str:
    """Return the figure as one SVG element without network references; ``name`` prefixes its ids.

    :param outlines: draw the letters, so that the picture looks the same wherever it is pasted.
    """
    buffer = io.StringIO()
    with _settings(outlines=outlines):
        _lay_out(figure)
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    text = buffer.getvalue()
    text = _ID.sub(rf"\g<1>{name}-", text[text.index("<svg") :]).replace("'DejaVu Sans'", "'DejaVu Sans', Verdana, sans-serif")
    begin = text.index(">") + 1
    return text[:begin] + _STYLE + _COLOUR.sub(_themed, _DECIMALS.sub(r"\1", text[begin:]))


def alone(figure: Figure, words: str) -> str:
    """Return the figure as a small SVG file that looks the same wherever it is pasted. ``words``: for readers who do not see it."""
    text = svg(figure, "q", outlines=True).replace("q-DejaVuSans-Bold-", "b").replace("q-DejaVuSans-", "g")
    begin = text.index(">") + 1
    rest = _LETTER_AT.sub(lambda found: f' x="{float(found[1]):.0f}"/>', _BLANK.sub("", _COMMENT.sub("", text[begin:])))
    title = f' role="img"><title>{html.escape(words, quote=False)}</title>'
    return text[: begin - 1] + title + _SPACE.sub(">\n<", rest) + "\n"


def _lay_out(figure: Figure) -> None:
    """Lay the axes out once, not again for each file."""
    if figure.get_layout_engine() is not None:
        figure.draw_without_rendering()
        figure.set_layout_engine("none")


def _themed(found: re.Match[str]) -> str:
    """Return the colour, and the same as a variable: a program that knows no variables uses the first."""
    what, colour = found.groups()
    return f"{what}: {colour}; {what}: var(--q-{DARK[colour][0]}, {colour})" if colour in DARK else found.group()
