"""The HTML page, a single file: its content is computed here, its layout is in the template."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import jinja2
from markupsafe import Markup

from queue_db.compare.report.advice import Advice
from queue_db.compare.report.findings import findings
from queue_db.compare.report.table import COLUMNS, problems
from queue_db.compare.report.wording import indicative, unfinished
from queue_db.compare.results import Bench, Comparison, Row


@dataclass(frozen=True)
class Line:
    """A line of the table."""

    row: Row
    cells: list[str]
    problems: str
    wrong: bool
    chosen: str | None  #: the mark of the row that the advice names


@dataclass(frozen=True)
class Section:
    """One database."""

    slug: str
    bench: Bench
    advice: Advice
    findings: list[str]
    lines: list[Line]
    charts: list[Markup]  #: each for a desk and for a phone; empty without a finished run


def section(bench: Bench, slug: str, drawn: Sequence[str], machine: Mapping[str, str]) -> Section:
    """Return the content of the page for one database. ``drawn``: its charts, whose texts are escaped."""
    advice = Advice.of(bench, machine)
    chosen = None if advice.choice is None else advice.choice.row
    mark = "named above, indicative" if chosen is not None and indicative(chosen) else "recommended"
    lines = [
        Line(
            row,
            [column.cell(bench, row) for column in COLUMNS],
            problems(row),
            bool(unfinished(row) or row.repeats),
            mark if row is chosen else None,
        )
        for row in bench.rows
    ]
    return Section(slug, bench, advice, findings(bench), lines, [Markup(one) for one in drawn])  # noqa: S704


def page_html(comparison: Comparison, sections: list[Section]) -> str:
    """Return the HTML of the whole comparison."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("queue_db.compare.report", "."),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("page.html.jinja").render(
        comparison=comparison, sections=sections, columns=[column.heading for column in COLUMNS]
    )
