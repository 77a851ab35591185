"""The HTML page, a single file: its content is computed here, its layout is in the template."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import jinja2

from queue_db.compare.report import published
from queue_db.compare.report.advice import Advice, recommendable
from queue_db.compare.report.arrival_figures import COLUMNS as ARRIVAL_COLUMNS
from queue_db.compare.report.arrival_figures import ArrivalLine, claimers
from queue_db.compare.report.arrival_figures import lines as arrival_lines
from queue_db.compare.report.feed_figures import ARTICLE, FeedLine, columns, finding
from queue_db.compare.report.feed_figures import lines as feed_lines
from queue_db.compare.report.findings import findings
from queue_db.compare.report.pictures import CARD, Picture
from queue_db.compare.report.ratios import PRODUCT_PAIRS, Ratio, between, find_row
from queue_db.compare.report.table import GROUPS, cells, headings
from queue_db.compare.report.wording import NOTHING, errors, indicative, repeats, unfinished
from queue_db.compare.results import Bench, Comparison, Row


@dataclass(frozen=True)
class Line:
    """A line of the full table."""

    row: Row
    cells: list[str]
    unfinished: str | None
    chosen: str | None  #: the mark of the row that the advice names


@dataclass(frozen=True)
class RatioLine:
    """A line of the table of ratios."""

    over: str
    under: str
    meaning: str
    published: list[str]  #: one per host of the article
    measured: str
    tie: bool
    problems: str  #: errors and repeated executions of both rows


@dataclass(frozen=True)
class Section:
    """One database."""

    slug: str
    bench: Bench
    advice: Advice
    findings: list[str]
    lines: list[Line]
    ratios: list[RatioLine]
    card: Picture | None
    pictures: list[Picture]
    peers: list[Row]
    feeds: list[FeedLine]
    feed_finding: str | None
    arrivals: list[ArrivalLine]
    claimers: str  #: how many workers claim what arrives; empty if that was not measured


def section(bench: Bench, slug: str, drawn: Sequence[Picture], machine: Mapping[str, str]) -> Section:
    """Return the content of the page for one database."""
    advice = Advice.of(bench, machine)
    return Section(
        slug=slug,
        bench=bench,
        advice=advice,
        findings=findings(bench),
        lines=[
            Line(row, cells(row), unfinished(row), _mark(row) if advice.choice is not None and row is advice.choice.row else None)
            for row in bench.rows
        ],
        ratios=[*_article(bench), *_product(bench)],
        card=next((one for one in drawn if one.name == CARD), None),
        pictures=[one for one in drawn if one.name != CARD],
        peers=[row for row in bench.rows if row.configuration],
        feeds=feed_lines(bench),
        feed_finding=finding(bench),
        arrivals=arrival_lines(bench),
        claimers=claimers(bench.arrivals[0]) if bench.arrivals else "",
    )


def _mark(row: Row) -> str:
    return "named above, indicative" if indicative(row) else "recommended"


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
        comparison=comparison,
        sections=sections,
        headings=headings(),
        columns=[name for group in GROUPS for name, _ in group.columns],
        feed_columns=[name for name, _ in columns()],
        feed_article=ARTICLE,
        arrival_columns=ARRIVAL_COLUMNS,
        hosts=published.HOSTS,
        notes=published.NOTES,
    )


def _article(bench: Bench) -> list[RatioLine]:
    kind = published.kind_of(bench.title)
    lines = []
    for over, under, meaning in published.PAIRS:
        figures = [published.published_ratio(kind, host, over, under) for host in published.HOSTS]
        first, second = find_row(bench, over), find_row(bench, under)
        ours = between(first, second)
        if ours is not None or any(figures):
            texts = [f"{one.value:.2f} × (± {one.sd:.2f})" if one else NOTHING for one in figures]
            lines.append(_line(over, under, meaning, texts, ours, (first, second)))
    return lines


def _product(bench: Bench) -> list[RatioLine]:
    lines = []
    for batch in sorted({row.batch for row in bench.rows if recommendable(row)}):
        for over, under in PRODUCT_PAIRS:
            first, second = find_row(bench, over, batch), find_row(bench, under, batch)
            ours = between(first, second)
            if ours is not None:
                meaning = f"queue_db's rows, {batch} per claim"
                lines.append(_line(over, under, meaning, [NOTHING] * len(published.HOSTS), ours, (first, second)))
    return lines


def _line(
    over: str, under: str, meaning: str, figures: list[str], ours: Ratio | None, rows: tuple[Row | None, Row | None]
) -> RatioLine:
    both = all(row is not None and row.runs for row in rows)
    problems = {f"{name}: {errors(row)}, {repeats(row)}" for name, row in zip((over, under), rows, strict=True) if row and both}
    clean = all(row is None or not (row.faults or row.repeats) for row in rows)
    return RatioLine(
        over=over,
        under=under,
        meaning=meaning,
        published=figures,
        measured=str(ours) if ours else NOTHING,
        tie=ours is not None and ours.tie,
        problems=("no errors, no repeated executions" if clean else "; ".join(sorted(problems))) if problems else NOTHING,
    )
