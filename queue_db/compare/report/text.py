"""A finished bench for the terminal: the table, the recommendation and the findings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rich import box
from rich.console import Console, ConsoleOptions, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from queue_db.compare.report.advice import Advice
from queue_db.compare.report.findings import findings
from queue_db.compare.report.table import COLUMNS, problems
from queue_db.compare.report.wording import NOTHING, unfinished
from queue_db.compare.results import Bench


@dataclass(frozen=True)
class Summary:
    """The table, the recommendation and the findings, for ``console.print``."""

    bench: Bench
    machine: Mapping[str, str] = field(default_factory=dict)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield table(self.bench, options.max_width)
        if self.bench.facts:
            yield _text(", ".join(f"{name} {value}" for name, value in self.bench.facts.items()), "dim")
        advice = Advice.of(self.bench, self.machine)
        yield _text(f"→ {advice.sentence}", "bold")
        for caveat in advice.caveats:
            yield Padding(_text(f"! {caveat}", "yellow"), (0, 0, 0, 2))
        for finding in findings(self.bench):
            yield Padding(_text(f"· {finding}"), (0, 0, 0, 2))


def table(bench: Bench, width: int) -> Table:
    """Return a table with one line per row: throughput, errors and repeated executions, and on a wide terminal the costs."""
    drawn = Table(title=_text(f"{bench.server} · jobs/s: median of the finished runs"), title_justify="left", box=box.SIMPLE_HEAD)
    drawn.add_column("row", overflow="fold", min_width=18)
    columns = [one for one in COLUMNS if width >= one.least]
    for one in columns:
        drawn.add_column(one.heading.replace(": ", "\n").replace("\N{SOFT HYPHEN}", "").replace(" per", "\nper"), justify="right")
    drawn.add_column("errors and repeats", overflow="fold", min_width=18)
    for row in bench.rows:
        numbers = [Text(NOTHING if row.refused is not None else one.cell(bench, row), no_wrap=True) for one in columns]
        style = "red" if unfinished(row) or row.repeats else "dim" if row.refused is not None else ""
        drawn.add_row(
            _text(row.name if row.batch == 1 else f"{row.name} ×{row.batch}"), *numbers, _text(problems(row)), style=style
        )
    return drawn


def _text(text: str, style: str = "") -> Text:
    # Names from a loaded file must not contain markup or control characters.
    return Text("".join(letter if letter.isprintable() else "�" for letter in text), style=style)
