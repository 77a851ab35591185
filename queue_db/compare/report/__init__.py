"""The report of a comparison: an HTML page, a chart and data in a folder, and a table for the terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from queue_db.compare.results import Bench, Comparison

__all__ = ["show", "write"]


def write(comparison: Comparison, folder: Path) -> list[Path]:
    """Write ``index.html``, ``results.json`` and each database's chart as ``.png`` and ``.svg``; return the paths.

    A missing folder is created; files of these names are replaced.

    :raises OSError: the folder cannot be written to.
    """
    # Imported here: Matplotlib loads slowly, and the table in the terminal does not need it.
    from queue_db.compare.report import drawing
    from queue_db.compare.report.chart import chart, description
    from queue_db.compare.report.page import page_html, section

    folder.mkdir(parents=True, exist_ok=True)
    index, data = folder / "index.html", folder / "results.json"
    comparison.save(data)
    paths, sections = [index, data], []
    seen: Counter[str] = Counter()
    for bench in comparison.benches:
        name = "".join(letter if letter.isalnum() else "-" for letter in bench.title.lower()) or "database"
        seen[name] += 1
        slug = name if seen[name] == 1 else f"{name}-{seen[name]}"
        wide, narrow = (chart(bench, comparison, width) for width in (drawing.WIDE, drawing.NARROW))
        drawn = []
        if wide is not None and narrow is not None:
            drawn = [drawing.svg(wide, f"{slug}-chart"), drawing.svg(narrow, f"{slug}-narrow")]
            # The file is pasted elsewhere: it must look the same without the fonts of this machine.
            alone = drawing.alone(wide, description(bench)).encode()
            for suffix, content in (("png", drawing.png(wide)), ("svg", alone)):
                path = folder / f"{slug}-chart.{suffix}"
                path.write_bytes(content)
                paths.append(path)
        sections.append(section(bench, slug, drawn, comparison.machine))
    index.write_text(page_html(comparison, sections), encoding="utf-8")
    return paths


def show(bench: Bench, machine: Mapping[str, str] | None = None) -> None:
    """Print the table of a finished bench, the recommendation and the findings at the width of the terminal.

    :param machine: facts about the machine; if it was busy, a warning is printed with the recommendation.
    """
    from rich.console import Console

    from queue_db.compare.report.text import Summary

    Console().print(Summary(bench, machine or {}))
