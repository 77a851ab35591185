"""The card: one picture, one number and its interval, with the line of the server, to be pasted into a README or a chat."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from queue_db import __version__
from queue_db.compare.report import bars, curves, drawing
from queue_db.compare.report.advice import DEFAULT, Advice, Choice, median
from queue_db.compare.report.arrival_figures import finding as arrival_finding
from queue_db.compare.report.drawing import BLUE, GRID, INK, SOFT, VERMILION
from queue_db.compare.report.wording import between_runs, caveats, errors, indicative, number, repeats, several
from queue_db.compare.results import Bench, Row

#: Width of a card on a desk, inches: narrower than a plot, so that it can still be read where it is shown smaller.
CARD = 7.5

#: Width of the column with the number on such a card, inches.
_COLUMN = 2.3

_EDGE = 0.18

#: Least height of the axes of curves, inches.
_AXES = 1.8

#: Rows of the picture; the slowest are left out, with a line that says so.
_MOST = 7

_NUMBER, _WORDS, _SMALL = 30.0, 9.0, 7.5  #: sizes of fonts


@dataclass(frozen=True)
class Origin:
    """Where the figures are from, for the line below the picture."""

    machine: Mapping[str, str] = field(default_factory=dict)
    plan: Mapping[str, str] = field(default_factory=dict)
    began: str = ""
    version: str = __version__


def chosen(bench: Bench) -> Choice | None:
    """Return the recommended row, whose number is shown, with those that tie."""
    return Advice.of(bench).choice


def description(bench: Bench) -> str:
    """Return the card in one sentence, for readers who do not see it."""
    choice = chosen(bench)
    if choice is None or (rate := choice.row.rate) is None:
        return f"{bench.server}: no recommendation."
    row = choice.row
    how = "indicative, " if indicative(row) else ""
    tie = f", a tie with {DEFAULT}, the default" if choice.ties_with_default else ""
    speed = f"{number(round(rate.median))} jobs/s ({how}{_interval(row)}){tie}"
    return f"{bench.server}: {row.name}, {row.batch} per claim, {speed}."


def card(bench: Bench, origin: Origin, width: float = CARD) -> Figure | None:
    """Draw the card; None for a bench without a finished run."""
    choice = chosen(bench)
    row = choice.row if choice else max((row for row in bench.rows if row.rate), key=median, default=None)
    if row is None:
        return None
    phone = drawing.narrow(width)
    column = width - 2 * _EDGE if phone else _COLUMN
    figure = Figure(figsize=(width, 1.0), facecolor="white")
    words = _words(bench, row, choice, column)
    foot = drawing.wrapped(_foot(bench, row, origin), width - 2 * _EDGE, _SMALL)
    head = 0.62
    left, top, across = (
        (0.09, head + _height(words), width - 0.09) if phone else (_COLUMN + _EDGE, head, width - _COLUMN - 2 * _EDGE)
    )
    swept, panel = curves.panel(bench, row.batch, article=row.family == "article"), _panel(bench, row)
    picture = swept.height(_AXES) if swept else panel.height(across - 2 * _EDGE) + 0.62
    height = max(top + picture, head + _height(words)) + 0.13 * len(foot) + 0.28
    figure.set_figheight(height)
    _frame(figure)
    _text(figure, _EDGE, 0.16, bench.server, 14, bold=True)
    if phone or not indicative(row):
        _text(figure, width - _EDGE, 0.2, "" if phone else "queue_db", 10, colour=SOFT, right=True)
    y = head
    for text, size, colour in words:
        _text(figure, _EDGE, y, text, size, colour=colour, bold=size == _NUMBER)
        y += _step(size)
    if indicative(row):
        _text(figure, width - _EDGE, 0.2, "indicative", 10, colour=VERMILION, bold=True, right=True)
    if swept:
        curves.draw(figure, swept, left, top, across, _AXES)
    else:
        bars.draw(figure, panel, left + _EDGE, top, across - 2 * _EDGE)
    for at, line in enumerate(foot):
        _text(figure, _EDGE, height - 0.12 - 0.13 * (len(foot) - at), line, _SMALL, colour=SOFT)
    return figure


def _panel(bench: Bench, row: Row) -> bars.Panel:
    """Return the rows beside the chosen one; the article's are compared with each other only."""
    article = row.family == "article"
    beside = [one for one in bench.rows if one.batch == row.batch and one.rate and (one.family == "article") is article]
    rows = sorted(beside, key=median, reverse=True)
    rest = len(rows) - _MOST
    title = f"{several(row.batch, 'job')} per claim: jobs/s" + (f", without {several(rest, 'slower row')}" if rest > 0 else "")
    return bars.Panel(title, tuple(rows[:_MOST]))


def _words(bench: Bench, row: Row, choice: Choice | None, width: float) -> list[tuple[str, float, str]]:
    """Return the lines beside the picture: text, size, colour."""
    assert row.rate is not None  # noqa: S101 - callers check
    found = [(number(round(row.rate.median)), _NUMBER, BLUE)]
    if choice is None:
        texts = [(f"jobs/s with {row.name}, the fastest row. {Advice.of(bench).sentence}", VERMILION)]
    else:
        texts = [(f"jobs/s with {row.name}, {row.batch} per claim and {several(row.workers, 'worker')}", INK)]
    texts.append((_interval(row), INK))
    if choice is not None and choice.ties_with_default:
        texts.append((f"a tie with {DEFAULT}, the default", INK))
    texts.append((f"{errors(row)}, {repeats(row)}", SOFT))
    if (wait := arrival_finding(bench)) is not None:
        texts.append((wait.partition(" (")[0].rstrip(".") + ".", SOFT))
    for text, colour in texts:
        together = text.replace(" %", "\N{NO-BREAK SPACE}%")
        found += [(line, _WORDS, colour) for line in drawing.wrapped(together, width, _WORDS)]
        found.append(("", 4.0, colour))
    return found


def _interval(row: Row) -> str:
    words = between_runs(row.rate, len(row.rates))
    return f"bootstrap interval {words}" if row.rate and row.rate.interval else f"{words}: no interval"


def _foot(bench: Bench, row: Row, origin: Origin) -> str:
    """Return the line of the server."""
    machine = [f"{name} {origin.machine[name]}" for name in ("cores", "memory", "system", "python") if name in origin.machine]
    facts = [f"{name} {value}" for name, value in bench.facts.items()]
    plan = [f"{row.runs[0].jobs:,} jobs per run, work {origin.plan.get('work-ms', '0')} ms"]
    when = [f"queue_db {origin.version}, {origin.began[:10]}"] if origin.began else [f"queue_db {origin.version}"]
    busy = [one.rstrip(".") for one in caveats([], origin.machine)]
    return " · ".join([*machine, *facts, *plan, *when, *busy]) + "."


def _step(size: float) -> float:
    return size * 1.38 / 72


def _height(words: list[tuple[str, float, str]]) -> float:
    return sum(_step(size) for _, size, _ in words)


def _text(
    figure: Figure, x: float, y: float, text: str, size: float, *, colour: str = INK, bold: bool = False, right: bool = False
) -> None:
    """Write at a place, inches from the upper left corner."""
    width, height = figure.get_figwidth(), figure.get_figheight()
    figure.text(
        x / width,
        1 - y / height,
        drawing.shown(text),
        fontsize=size,
        color=colour,
        fontweight="bold" if bold else None,
        ha="right" if right else "left",
        va="top",
    )


def _frame(figure: Figure) -> None:
    width, height = figure.get_figwidth(), figure.get_figheight()
    box = FancyBboxPatch(
        (0.02 / width, 0.02 / height),
        1 - 0.04 / width,
        1 - 0.04 / height,
        boxstyle="square,pad=0",
        transform=figure.transFigure,
        facecolor="none",
        edgecolor=GRID,
        linewidth=1.2,
    )
    figure.add_artist(box)
