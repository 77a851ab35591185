"""A finished bench for the terminal: a compact table, the recommendation and the findings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from rich import box
from rich.console import Console, ConsoleOptions, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from queue_db.compare.report.advice import Advice
from queue_db.compare.report.feed_figures import columns, problems
from queue_db.compare.report.feed_figures import finding as feed_finding
from queue_db.compare.report.feed_figures import lines as feed_lines
from queue_db.compare.report.findings import findings
from queue_db.compare.report.wording import NOTHING, errors, milliseconds, number, percent, several, unfinished
from queue_db.compare.results import Bench, Row

#: Width of the terminal from which the table has columns for displacement and latency.
_WIDE = 110

# Columns of the table of feeds on a narrower one.
_NARROW = ("messages/s", "publish: p99", "visible: p99")


@dataclass(frozen=True)
class Summary:
    """The table, the recommendation and the findings, for ``console.print``."""

    bench: Bench
    machine: Mapping[str, str] = field(default_factory=dict)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield table(self.bench, wide=options.max_width >= _WIDE)
        if self.bench.facts:
            yield _text(", ".join(f"{name} {value}" for name, value in self.bench.facts.items()), "dim")
        advice = Advice.of(self.bench, self.machine)
        yield _text(f"→ {advice.sentence}", "bold")
        for caveat in advice.caveats:
            yield Padding(_text(f"! {caveat}", "yellow"), (0, 0, 0, 2))
        for finding in findings(self.bench):
            yield Padding(_text(f"· {finding}"), (0, 0, 0, 2))
        if self.bench.feeds:
            yield feed_table(self.bench, wide=options.max_width >= _WIDE)
            step = feed_finding(self.bench)
            if step is not None:
                yield Padding(_text(f"· {step}"), (0, 0, 0, 2))


def table(bench: Bench, *, wide: bool = True) -> Table:
    """Return a table with one line per row: throughput, errors and repeated executions."""
    drawn = Table(title=_text(f"{bench.server} · jobs/s: median of the finished runs"), title_justify="left", box=box.SIMPLE_HEAD)
    drawn.add_column("row", overflow="fold", min_width=14)
    for heading, _ in _NUMBERS + (_MORE if wide else ()):
        drawn.add_column(heading, justify="right", no_wrap=True)
    drawn.add_column("errors and repeats", overflow="fold", min_width=18)
    for row in bench.rows:
        numbers = [Text(NOTHING if row.refused is not None else cell(row)) for _, cell in _NUMBERS + (_MORE if wide else ())]
        style = "red" if unfinished(row) or row.repeats else "dim" if row.refused is not None else ""
        drawn.add_row(
            _text(row.name if row.batch == 1 else f"{row.name} ×{row.batch}"), *numbers, _text(_problems(row)), style=style
        )
    return drawn


def feed_table(bench: Bench, *, wide: bool = True) -> Table:
    """Return a table with one line per ordering of feeds."""
    drawn = Table(title=_text(f"{bench.server} · feeds, times in ms"), title_justify="left", box=box.SIMPLE_HEAD)
    drawn.add_column("ordering", overflow="fold", min_width=14)
    names = [name for name, _ in columns()]
    counted = ("errors", "gaps", "duplicates")
    shown = [at for at, name in enumerate(names) if (name not in counted if wide else name in _NARROW)]
    for at in shown:
        drawn.add_column(names[at].replace(": ", "\n"), justify="right", no_wrap=True)
    drawn.add_column("errors, gaps and duplicates", overflow="fold", min_width=18)
    for line in feed_lines(bench):
        cells = [Text(NOTHING if line.problem else line.cells[at]) for at in shown]
        problem = _text(line.problem or problems(line.row))
        drawn.add_row(_text(line.row.name), *cells, problem, style="red" if line.problem or line.wrong else "")
    return drawn


def _text(text: str, style: str = "") -> Text:
    # Names from a loaded file must not contain markup or control characters.
    return Text("".join(letter if letter.isprintable() else "�" for letter in text), style=style)


def _problems(row: Row) -> str:
    if row.refused is not None:
        return f"not supported: {row.refused}"
    repeated = several(row.repeats, "repeated execution") if row.repeats else None
    return "; ".join(part for part in (unfinished(row), errors(row) if row.faults else None, repeated) if part) or "none"


def _claims(row: Row) -> str:
    middle = []
    for which in ("p50", "p99"):
        values = sorted(getattr(run.latency, which) for run in row.runs if run.latency)
        middle.append(milliseconds(values[len(values) // 2]) if values else NOTHING)
    return " / ".join(middle)


def _interval(row: Row) -> str:
    return "–".join(number(round(bound)) for bound in row.rate.interval) if row.rate and row.rate.interval else NOTHING


_Column = tuple[str, Callable[[Row], str]]

_NUMBERS: tuple[_Column, ...] = (
    ("jobs/s", lambda row: number(row.rate.median) if row.rate else NOTHING),
    ("interval", _interval),
    ("misses", lambda row: percent(row.miss_ratio) if row.total("candidates") else NOTHING),
)
_MORE: tuple[_Column, ...] = (
    (
        "displacement\nmean / max",
        lambda row: f"{number(row.diff.mean)} / {number(row.diff.max)}" if row.diff.histogram else NOTHING,
    ),
    ("claim, ms\np50 / p99", _claims),
)
