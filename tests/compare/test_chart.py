"""The chart of a database: what it says, and that no text is cut or lies on another."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from itertools import combinations
from xml.etree import ElementTree as ET

import pytest

from queue_db.compare.report import drawing
from queue_db.compare.report.chart import chart, description, panels
from queue_db.compare.results import Bench
from tests.compare.hand_made import article, bench, comparison, peer, row

ORIGIN = replace(comparison(), machine={"cores": "2", "memory": "8 GiB", "load before": "9 9 9"})


def texts(one: Bench) -> str:
    figure = chart(one, ORIGIN)
    assert figure is not None
    found = [*figure.texts, *(text for axes in figure.axes for text in axes.texts)]
    return " ".join(" ".join(text.get_text() for text in found).split())


def test_the_bars_are_sorted_in_a_panel_for_each_batch_size():
    one = bench(
        row("adaptive", (10.0,)),
        row("skip_locked", (30.0,)),
        peer("theirs", (20.0,)),
        row("adaptive", (5.0,), batch=10),
        *article(),
    )
    found = panels(one)
    assert [panel.title for panel in found] == [
        "1 job per claim",
        "10 jobs per claim",
        "The article's rows: own table, 1 per claim",
    ]
    assert [each.name for each in found[0].rows] == ["skip_locked", "theirs", "adaptive"]
    figure = chart(one, ORIGIN)
    assert figure is not None
    assert len(figure.axes) == 3
    for axes in figure.axes:
        assert axes.get_xscale() == "linear"
        assert axes.get_xlim()[0] == 0
        assert all(0 <= patch.get_width() <= axes.get_xlim()[1] for patch in axes.patches)


@pytest.mark.parametrize("width", [drawing.WIDE, drawing.NARROW])
def test_no_text_is_cut_by_wider_letters_or_lies_on_another(width):
    """A browser's letters are about 3 % wider."""
    long = peer("a peer with a rather long name", (39_000.0, 39_500.0, 41_000.0))
    ours = [
        row(name, (30_000.0, 39_999.0, 45_000.0), batch=batch) for batch in (1, 10, 100) for name in ("adaptive", "at_most_once")
    ]
    figure = chart(bench(*ours, long, row("skip_locked", faults={"deadlock": 12, "lock timeout": 7}), *article()), ORIGIN, width)
    assert figure is not None
    figure.draw_without_rendering()
    found = [*figure.texts, *(text for axes in figure.axes for text in axes.texts)]
    boxes = [(text.get_text(), text.get_window_extent()) for text in found if text.get_text()]
    for words, box in boxes:
        assert box.x0 >= 0, words
        assert box.x1 + 0.03 * box.width <= figure.bbox.x1, words
        assert 0 <= box.y0 <= box.y1 <= figure.bbox.y1, words
    for (words, box), (beside, other) in combinations(boxes, 2):
        across = min(box.x1, other.x1) - max(box.x0, other.x0)
        down = min(box.y1, other.y1) - max(box.y0, other.y0)
        assert across < 1 or down < 0.3 * min(box.height, other.height), (words, beside)


def test_it_has_the_recommendation_its_interval_and_the_line_of_the_server():
    one = bench(row("adaptive", (1990.0, 2000.0, 2010.0)), row("skip_locked"))
    said = texts(one)
    for words in ("2,000", "1,990–2,010 over 3 runs", "PostgreSQL 18.1", "cores 2", "fsync on", "read committed", "2026-11-21"):
        assert words in said
    assert "This machine was busy before the comparison began" in said
    assert "indicative" not in said
    assert description(one) == (
        "PostgreSQL 18.1: adaptive, 1 per claim, 2,000 jobs/s (bootstrap interval 1,990–2,010 over 3 runs)."
    )


def test_a_quick_one_is_indicative_and_has_no_interval():
    said = texts(bench(replace(row("adaptive", (1000.0,)), quick=True), replace(row("skip_locked", (900.0,)), quick=True)))
    assert "indicative, one run: no interval" in said
    assert "bootstrap" not in said


def test_nothing_wrong_is_recommended_and_without_a_run_there_is_no_chart():
    for nothing in (bench(), bench(row("adaptive", ())), bench(row("adaptive", (), refused="no"))):
        assert chart(nothing, ORIGIN) is None
    wrong = bench(row("adaptive", twice=3))
    assert "no recommendation" in texts(wrong)
    assert description(wrong) == "PostgreSQL 18.1: no recommendation."


def test_colours_differ_on_a_dark_background_too():
    ours = (drawing.BLUE, drawing.PALE, drawing.ORANGE, drawing.GREEN, drawing.VERMILION)
    for colours in (ours, [drawing.DARK.get(one.lower(), ("", one))[1] for one in ours]):
        values = [tuple(int(one[at : at + 2], 16) for at in (1, 3, 5)) for one in colours]
        assert all(math.dist(*both) > 60 for both in combinations(values, 2)), colours


def test_its_file_needs_nothing_but_itself():
    figure = chart(bench(row("adaptive")), ORIGIN)
    assert figure is not None
    element = drawing.alone(figure, "a <number> & more")
    names = [one.tag.rpartition("}")[2] for one in ET.fromstring(element).iter()]  # noqa: S314 - drawn above
    assert ET.fromstring(element)[0].text == "a <number> & more"  # noqa: S314 - drawn above
    assert not {"text", "image", "script", "foreignObject"} & set(names)
    assert not re.search(r'(href|src)="[^#]', element)
    assert "url(http" not in element
    assert "prefers-color-scheme: dark" in element
    plain = re.sub(r"fill: var\([^)]*\)", "", element)
    assert "fill: #222222" in plain, "also without variables"
