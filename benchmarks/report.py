"""The results for people: one table per database."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from benchmarks.figures import FEWEST_REPEATS, Line, Side
from queue_db.compare.results import Bench

#: Width of a table in a file or a pipe.
WIDTH = 150


@dataclass
class Sheet:
    """The results of one database."""

    bench: Bench
    lines: list[tuple[str, Line]] = field(default_factory=list)

    def record(self) -> dict[str, Any]:
        """Return the results for JSON."""
        return {
            "server": self.bench.server,
            "url": self.bench.url,
            "facts": self.bench.facts,
            "lines": [{"bar": name} | line.record() for name, line in self.lines],
        }


def show(sheet: Sheet, machine: Mapping[str, str], repeat: int, scale: float, console: Console) -> None:
    """Print the table."""
    console.rule(sheet.bench.server)
    for facts in (machine, sheet.bench.facts):
        console.print(", ".join(f"{name} {value}" for name, value in facts.items()), highlight=False, markup=False)
    console.print(f"{repeat} repeats of each side, taking turns, at scale {scale:g}; median (min–max)", highlight=False)
    if repeat < FEWEST_REPEATS:
        console.print(f"fewer than {FEWEST_REPEATS} repeats: a first impression, not a measurement", style="yellow")
    table = Table(show_lines=True)
    table.add_column("bar", overflow="fold")
    table.add_column("what", overflow="fold", ratio=2)
    table.add_column("ours", overflow="fold", ratio=3)
    table.add_column("the other side", overflow="fold", ratio=3)
    table.add_column("ratio", justify="right", no_wrap=True)
    table.add_column("asked", justify="right", no_wrap=True)
    table.add_column("met", no_wrap=True)
    for name, line in sheet.lines:
        asked = "" if line.bound is None else f"{'≤' if line.at_most else '≥'} {line.bound:g}"
        ratio = "" if line.ratio is None else f"{line.ratio:.2f}"
        ours = Text(line.missing, style="yellow") if line.missing is not None else _side(line.ours)
        table.add_row(name, Text(line.what), ours, _side(line.theirs), ratio, asked, _met(line))
    console.print(table)


def _met(line: Line) -> Text:
    if line.met is None:
        return Text("not here", style="yellow") if line.missing is not None else Text("shown")
    return Text("yes", style="green") if line.met else Text("NO", style="bold red")


def _side(side: Side | None) -> Text:
    """Return name, figure and errors."""
    if side is None:
        return Text("")
    spread = side.spread
    digits = 3 if side.unit == "ms" else 0
    parts = [side.name]
    if spread is None:
        parts.append("no repeat finished")
    else:
        parts.append(f"{spread.median:,.{digits}f} {side.unit} ({spread.min:,.{digits}f}–{spread.max:,.{digits}f})")
    if not side.finished:
        parts.append("did not come to its end")
    wrong = [f"{number} {kind}" for kind, number in side.errors.items() if number]
    problems = [", ".join(wrong) or "0 errors"]
    if side.misses is not None:
        problems.append(f"{side.misses:.1%} missed")
    if side.duplicates is not None:
        problems.append(f"{side.duplicates} twice")
    parts.append(", ".join(problems))
    spent = [f"{name} {used:,.0f}" for name, used in (("client", side.client_cpu), ("server", side.server_cpu)) if used is not None]
    if spent:
        parts.append(f"CPU µs/job: {', '.join(spent)}")
    if side.per_server_second is not None:
        parts.append(f"{side.per_server_second:,.0f} jobs/s of server CPU")
    if side.skip_locked is not None:
        parts.append("with SKIP LOCKED" if side.skip_locked else "from windows")
    return Text("\n".join(parts))
