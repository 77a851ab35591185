"""The charts and bars as tables for the terminal, and as JSON."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from string import ascii_uppercase

from rich.console import Console
from rich.table import Table
from rich.text import Text

from benchmarks.figures import FEWEST_REPEATS
from benchmarks.report import WIDTH
from benchmarks.spark.lab import MEGABYTE, Row
from benchmarks.spark.setting import MANY, SLOTS, Chart
from queue_db.compare.measures import Spread
from queue_db.compare.results import Bench


@dataclass
class Sheet:
    """The charts of one database."""

    bench: Bench
    charts: list[Chart] = field(default_factory=list)


def print_sheets(sheets: Sequence[Sheet], facts: Mapping[str, str], asked: argparse.Namespace) -> None:
    """Print the charts of each database; with ``--json`` write them to the file too."""
    if not any(sheet.charts for sheet in sheets):
        return
    console = Console()
    if not console.is_terminal:
        console = Console(width=WIDTH)
    for sheet in sheets:
        _show(sheet, facts, asked, console)
    if asked.json is not None:
        record = {
            "machine": dict(facts),
            "jobs": asked.jobs,
            "repeat": asked.repeat,
            "databases": [
                {"server": sheet.bench.server, "facts": sheet.bench.facts, "sections": [chart.record() for chart in sheet.charts]}
                for sheet in sheets
            ],
        }
        asked.json.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n")


def _show(sheet: Sheet, facts: Mapping[str, str], asked: argparse.Namespace, console: Console) -> None:
    console.rule(sheet.bench.server)
    for some in (facts, sheet.bench.facts):
        console.print(", ".join(f"{name} {value}" for name, value in some.items()), highlight=False, markup=False)
    slots = f"Spark with {SLOTS} slots (drain: {MANY}) and {asked.heap} of heap"
    console.print(f"{asked.repeat} repeats of each row, taking turns; median (min–max); {slots}", highlight=False)
    loads = sorted(run.load for chart in sheet.charts for row in chart.rows for run in row.runs)
    if loads:
        console.print(f"load of the machine after each run: {loads[0]:.1f}–{loads[-1]:.1f}", highlight=False)
    if asked.repeat < FEWEST_REPEATS:
        console.print(f"fewer than {FEWEST_REPEATS} repeats: a first impression, not a measurement", style="yellow")
    for chart in sheet.charts:
        console.print(_table(chart))
        for row in chart.rows:
            if row.notes:
                console.print(f"  {row.name}: {row.notes[-1]}", highlight=False, markup=False)
    console.print(_bars(sheet))


def _table(chart: Chart) -> Table:
    table = Table(title=f"{chart.name}: {chart.title}", title_justify="left", show_lines=False)
    table.add_column("row", overflow="fold", min_width=30)
    table.add_column(chart.unit, justify="right", no_wrap=True)
    medians: dict[str, float] = {}
    for row in chart.rows:
        spread = Spread.of([row.figure(run) for run in row.runs])
        if spread is not None:
            medians[row.name] = spread.median
    letters = dict(zip(chart.rivals, ascii_uppercase, strict=False))
    for letter in letters.values():
        table.add_column(f"× {letter}", justify="right", no_wrap=True)
    table.add_column("CPU µs/job,\nclient + server", justify="right", no_wrap=True)
    table.add_column("peak MB,\nPython + JVM", justify="right", no_wrap=True)
    table.add_column("lost;\ntwice", justify="right", no_wrap=True)
    for row in chart.rows:
        title = f"{letters[row.name]}  {row.name}" if row.name in letters else row.name
        if row.missing or row.failed:
            table.add_row(title, Text(row.missing or f"failed: {row.failed}", style="yellow" if row.missing else "bold red"))
            continue
        spread = Spread.of([row.figure(run) for run in row.runs])
        if spread is None:
            table.add_row(title, Text("not measured", style="yellow"))
            continue
        ratios = [f"{medians[row.name] / medians[name]:.2f}" if medians.get(name) else "" for name in chart.rivals]
        wrong = sum(run.lost for run in row.runs), sum(run.duplicates for run in row.runs)
        table.add_row(
            Text(title, style="bold" if row.ours else ""),
            f"{spread.median:,.0f} ({spread.min:,.0f}–{spread.max:,.0f})",
            *ratios,
            _processor(row),
            f"{row.workers / MEGABYTE:,.0f} + {row.java / MEGABYTE:,.0f}" if row.workers else "",
            Text("; ".join(map(str, wrong)), style="bold red" if any(wrong) else ""),
        )
    return table


def _processor(row: Row) -> str:
    return " + ".join(f"{spent:,.1f}" for spent in row.processor() if spent is not None)


def _bars(sheet: Sheet) -> Table:
    table = Table(title="bars", title_justify="left")
    table.add_column("section")
    table.add_column("what", overflow="fold")
    for name in ("asked", "seen", "met"):
        table.add_column(name, justify="right", overflow="fold")
    for chart in sheet.charts:
        for line in chart.lines:
            asked = "" if line.bound is None else f"{'≤' if line.at_most else '≥'} {line.bound:g}"
            seen = line.missing or ("" if line.figure is None else f"{line.figure:.2f}" if line.theirs else f"{line.figure:,.0f}")
            met = {True: Text("yes", style="green"), False: Text("NO", style="bold red"), None: Text("not here", style="yellow")}
            table.add_row(chart.name, line.what, asked, seen, met[line.met])
    return table
