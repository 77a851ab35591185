"""The report of a comparison: an HTML page, a chart and data in a folder, and a table for the terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from queue_db.compare.report import growth
from queue_db.compare.results import Bench, Comparison

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["show", "show_clusters", "write"]


def write(comparison: Comparison, folder: Path) -> list[Path]:
    """Write ``index.html``, ``results.json`` and the charts of databases and clusters as ``.png`` and ``.svg``; return the paths.

    A missing folder is created; files of these names are replaced.

    :raises OSError: the folder cannot be written to.
    """
    # Imported here: Matplotlib loads slowly, and the table in the terminal does not need it.
    from queue_db.compare.report.chart import chart, description
    from queue_db.compare.report.growth_chart import chart as growth_chart
    from queue_db.compare.report.page import page_html, section

    folder.mkdir(parents=True, exist_ok=True)
    index, data = folder / "index.html", folder / "results.json"
    comparison.save(data)
    paths, sections = [index, data], []
    seen: Counter[str] = Counter()
    grown = {id(benches[-1]): benches for benches in growth.clusters(comparison.benches)}
    cluster = ""
    for bench in comparison.benches:
        name = "".join(letter if letter.isalnum() else "-" for letter in bench.title.lower()) or "database"
        seen[name] += 1
        slug = name if seen[name] == 1 else f"{name}-{seen[name]}"
        cluster = slug if bench.nodes < 2 else cluster
        files, drawn = _draw(partial(chart, bench, comparison), folder, slug, "chart", description(bench))
        if (benches := grown.get(id(bench))) is not None:
            more, figures = _draw(partial(growth_chart, benches), folder, cluster, "nodes", growth.words(benches))
            files, drawn = files + more, drawn + figures
        paths += files
        sections.append(section(bench, slug, drawn, comparison.machine))
    index.write_text(page_html(comparison, sections), encoding="utf-8")
    return paths


def _draw(drawer: Callable[[float], Figure | None], folder: Path, slug: str, name: str, words: str) -> tuple[list[Path], list[str]]:
    """Write a chart's files; return their paths, and the chart for the page: for a desk and for a phone. Both empty without one."""
    from queue_db.compare.report import drawing

    wide, narrow = (drawer(width) for width in (drawing.WIDE, drawing.NARROW))
    if wide is None or narrow is None:
        return [], []
    drawn = [drawing.svg(wide, f"{slug}-{name}"), drawing.svg(narrow, f"{slug}-{name}-narrow")]
    paths = []
    # The file is pasted elsewhere: it must look the same without the fonts of this machine.
    for suffix, content in (("png", drawing.png(wide)), ("svg", drawing.alone(wide, words).encode())):
        path = folder / f"{slug}-{name}.{suffix}"
        path.write_bytes(content)
        paths.append(path)
    return paths, drawn


def show(bench: Bench, machine: Mapping[str, str] | None = None) -> None:
    """Print the table of a finished bench, the recommendation and the findings at the width of the terminal.

    :param machine: facts about the machine; if it was busy, a warning is printed with the recommendation.
    """
    from rich.console import Console

    from queue_db.compare.report.text import Summary

    Console().print(Summary(bench, machine or {}))


def show_clusters(benches: Sequence[Bench]) -> None:
    """Print of each cluster where locks stop to pay."""
    from rich.console import Console

    for cluster in growth.clusters(benches):
        Console().print(f"→ {growth.words(cluster)}", style="bold", markup=False, highlight=False)
