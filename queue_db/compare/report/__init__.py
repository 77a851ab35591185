"""The report of a comparison: an HTML page, plots and data in a folder, and a table for the terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from queue_db.compare.results import Bench, Comparison

__all__ = ["show", "write"]


def write(comparison: Comparison, folder: Path) -> list[Path]:
    """Write ``index.html``, ``results.json``, ``{database}-card`` and each plot as ``.png`` and ``.svg``; return the paths.

    A missing folder is created; files of these names are replaced.

    :raises OSError: the folder cannot be written to.
    """
    # Imported here: Matplotlib loads slowly, and the table in the terminal does not need it.
    from queue_db.compare.report.card import Origin
    from queue_db.compare.report.page import page_html, section
    from queue_db.compare.report.pictures import pictures

    folder.mkdir(parents=True, exist_ok=True)
    index, data = folder / "index.html", folder / "results.json"
    comparison.save(data)
    paths, sections = [index, data], []
    origin = Origin(comparison.machine, comparison.plan, comparison.began, comparison.version)
    seen: Counter[str] = Counter()
    for bench in comparison.benches:
        name = "".join(letter if letter.isalnum() else "-" for letter in bench.title.lower()) or "database"
        seen[name] += 1
        slug = name if seen[name] == 1 else f"{name}-{seen[name]}"
        drawn = pictures(bench, origin, slug)
        for picture in drawn:
            for suffix, content in (("png", picture.png), ("svg", picture.svg.encode())):
                path = folder / f"{slug}-{picture.name}.{suffix}"
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
