"""Figures that stand on two pages are the same on both: those of the benchmarks' overview."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def table(page: str, name: str) -> dict[str, list[str]]:
    """Return the lines of a marked table by their first cells."""
    text = (ROOT / page).read_text().split(f"<!-- {name}: begin -->")[1].split(f"<!-- {name}: end -->")[0]
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.strip().splitlines()[2:]]
    return {line[0]: line[1:] for line in lines}


def test_choosing_has_the_figures_of_the_benchmarks() -> None:
    measured, told = table("benchmarks/README.md", "results"), table("docs/choosing.md", "figures")
    assert told
    assert {what: measured.get(what) for what in told} == told


def test_the_windows_beside_skip_locked_are_those_of_the_benchmarks() -> None:
    lines = re.findall(r"^\| (\d+) \|(.*)\|$", (ROOT / "docs" / "strategies.md").read_text(), re.MULTILINE)
    columns = zip(*(re.findall(r"(\d\.\d\d) \(", cells) for _, cells in lines), strict=True)
    measured = table("benchmarks/README.md", "results")
    batches = ", ".join(batch for batch, _ in lines)
    names = (f"windows; SKIP LOCKED, PostgreSQL, ×{batches}", "… MariaDB", "… MySQL")
    assert [", ".join(column) for column in columns] == [measured[name][-1] for name in names]
