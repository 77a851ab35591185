"""Curves over the number of workers, and the card: where they cross, what they say, and that nothing is cut."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from itertools import combinations
from xml.etree import ElementTree as ET

import pytest
from matplotlib.text import Text

from queue_db.compare.report import bars, drawing, sweep
from queue_db.compare.report.arrival_plot import arrivals
from queue_db.compare.report.card import Origin, card, description
from queue_db.compare.report.curves import workers
from queue_db.compare.report.findings import findings
from queue_db.compare.report.plots import PLOTS
from queue_db.compare.results import Bench
from tests.compare.hand_made import arriving, article, bench, feeds, peer, row, swept

NUMBERS = (1, 2, 4, 8)


def crossed(ours: tuple[float, ...], theirs: tuple[float, ...], name: str = "skip_locked") -> Bench:
    """A bench with the default and a rival at 1, 2, 4 and 8 workers."""
    rows = swept("adaptive", dict(zip(NUMBERS, ours, strict=True))) + swept(name, dict(zip(NUMBERS, theirs, strict=True)))
    return bench(*(one for one in rows if one.workers == NUMBERS[-1]), sweep=[one for one in rows if one.workers != NUMBERS[-1]])


def test_a_crossing_lies_between_the_numbers_of_workers_where_the_other_one_is_faster():
    one = crossed((1000.0, 2000.0, 3000.0, 4000.0), (2000.0, 3000.0, 2000.0, 1000.0))
    (crossing,) = sweep.crossings(one, 1)
    assert (crossing.before, crossing.after) == ("skip_locked", "adaptive")
    assert crossing.workers == pytest.approx(2 * 2**0.5), "halfway between 2 and 4 on a logarithmic axis"
    (text,) = sweep.findings(one)
    assert text == (
        "With 1 per claim, adaptive is faster at 4 and 8 workers; skip_locked is faster at 1 and 2; "
        "the curves cross at about 2.8 workers."
    )


def test_one_worker_is_no_workers():
    rows = swept("adaptive", {1: 1000.0, 2: 1000.0}) + swept("skip_locked", {1: 1050.0, 2: 1300.0})
    one = bench(*rows[1::2], sweep=rows[::2])
    assert sweep.findings(one) == ["With 1 per claim, skip_locked is faster at 2 workers; adaptive and skip_locked tie at 1."]
    lone = bench(row("adaptive", workers=1), arrivals=[arriving("adaptive", consumers=1)])
    assert "1 worker ·" in drawing.subtitle(lone)
    (waits,) = [text for text in findings(lone) if "arrive" in text]
    assert "1 worker claims," in waits


def test_a_tie_in_between_is_no_crossing_and_two_are_two():
    level = crossed((1000.0, 2000.0, 2010.0, 3000.0), (1000.0, 2010.0, 2000.0, 2000.0))
    assert sweep.crossings(level, 1) == []
    assert sweep.findings(level) == [
        "With 1 per claim, adaptive is faster at 8 workers; adaptive and skip_locked tie at 1, 2 and 4."
    ]
    through = crossed((1000.0, 2000.0, 2000.0, 3000.0), (2000.0, 2010.0, 2000.0, 2000.0))
    assert [2 <= found.workers <= 4 or found.workers < 8 for found in sweep.crossings(through, 1)] == [True]
    twice = crossed((2000.0, 1000.0, 1000.0, 2000.0), (1000.0, 2000.0, 2000.0, 1000.0))
    assert [found.after for found in sweep.crossings(twice, 1)] == ["skip_locked", "adaptive"]


def test_the_rival_is_the_next_one_where_skip_locked_is_missing():
    one = crossed((1000.0,) * 4, (2000.0,) * 4, name="pessimistic")
    assert sweep.findings(one) == ["With 1 per claim, pessimistic is faster at 1, 2, 4 and 8 workers."]


def test_a_row_with_repeated_executions_is_no_part_of_a_curve():
    one = crossed((1000.0,) * 4, (2000.0,) * 4)
    wrong = replace(one, sweep=[*one.sweep[:3], *(row("skip_locked", workers=count, twice=1) for count in NUMBERS[:3])])
    assert [curve.name for curve in sweep.curves(wrong, 1)] == ["adaptive"]
    assert sweep.findings(wrong) == []


def test_few_runs_make_an_indication():
    one = crossed((1000.0,) * 4, (2000.0,) * 4)
    once = replace(one, rows=[replace(each, runs=each.runs[:1]) for each in one.rows])
    assert sweep.findings(once)[0].startswith("Indicative: with 1 per claim")


def test_without_other_numbers_of_workers_there_is_no_curve():
    assert sweep.batches(bench(row("adaptive"))) == []
    assert workers(bench(row("adaptive"))) is None


def test_the_bars_are_sorted_in_a_panel_for_each_batch_size():
    one = bench(
        row("adaptive", (10.0,)),
        row("skip_locked", (30.0,)),
        peer("theirs", (20.0,)),
        row("adaptive", (5.0,), batch=10),
        *article(),
    )
    found = bars.panels(one)
    assert [panel.title for panel in found] == [
        "1 job per claim",
        "10 jobs per claim",
        "The article's rows: own table, 1 per claim",
    ]
    assert [each.name for each in found[0].rows] == ["skip_locked", "theirs", "adaptive"]
    figure = bars.throughput(one)
    assert figure is not None
    for axes in figure.axes:
        assert axes.get_xscale() == "linear"
        assert axes.get_xlim()[0] == 0
        assert all(0 <= patch.get_width() <= axes.get_xlim()[1] for patch in axes.patches)


ORIGIN = Origin({"cores": "2", "memory": "8 GiB", "load before": "9 9 9"}, {"work-ms": "0"}, "2026-11-21T12:00:00+00:00")


@pytest.mark.parametrize("width", [drawing.WIDE, drawing.NARROW])
@pytest.mark.parametrize("swept_too", [True, False])
def test_every_text_of_the_card_and_of_the_bars_lies_inside_the_picture(width, swept_too):
    one = crossed((1000.0, 2000.0, 30_000.0, 40_000.0), (2000.0, 3000.0, 20_000.0, 10_000.0))
    one = replace(
        one if swept_too else replace(one, sweep=[]),
        rows=[*one.rows, peer("a peer with a rather long name", (39_000.0, 39_500.0, 41_000.0)), *article()],
        arrivals=[arriving("adaptive"), arriving("skip_locked")],
    )
    for draw in (bars.throughput, workers, lambda bench, width: card(bench, ORIGIN, width)):
        figure = draw(one, width)
        if figure is None:
            assert not swept_too
            continue
        figure.draw_without_rendering()
        right, top = figure.bbox.x1, figure.bbox.y1
        for words in [*figure.texts, *(text for axes in figure.axes for text in axes.texts)]:
            box = words.get_window_extent()
            assert 0 <= box.x0 <= box.x1 <= right, words.get_text()
            assert 0 <= box.y0 <= box.y1 <= top, words.get_text()


@pytest.mark.parametrize("width", [drawing.WIDE, drawing.NARROW])
def test_no_text_of_a_plot_is_cut_by_wider_letters_or_lies_on_another(width):
    """All rows of a sweep, two crossings, and each legend. A browser's letters are about 3 % wider."""
    twice = crossed((2000.0, 1000.0, 1000.0, 2000.0), (1000.0, 2000.0, 2000.0, 1000.0))
    largest = [*article(), *(row(f"DBO-mariadb-{number}", family="article") for number in range(11, 20))]
    others = [one for each in largest for one in swept(each.name, dict.fromkeys(NUMBERS[:-1], 500.0), family="article")]
    one = replace(
        twice,
        rows=[*twice.rows, *(replace(each, workers=NUMBERS[-1]) for each in largest)],
        sweep=[*twice.sweep, *others],
        arrivals=[arriving("adaptive"), arriving("skip_locked")],
        feeds=feeds(),
    )
    drawn = [draw(one, width) for draw, _ in PLOTS.values()] + [card(one, ORIGIN, width)]
    assert None not in drawn
    for figure in filter(None, drawn):
        figure.draw_without_rendering()
        texts = [*figure.texts, *(text for axes in figure.axes for text in axes.texts)]
        texts += [text for legend in figure.legends for text in legend.get_texts()]
        # Without the line from an annotation to its point.
        boxes = [(text.get_text(), Text.get_window_extent(text), text.get_ha()) for text in texts if text.get_text()]
        for words, box, side in boxes:
            assert 0 <= box.y0 <= box.y1 <= figure.bbox.y1, words
            assert box.x0 - (0.03 * box.width if side == "right" else 0) >= 0, words
            assert box.x1 + (0.03 * box.width if side == "left" else 0) <= figure.bbox.x1, words
        for (words, box, _), (beside, other, _) in combinations(boxes, 2):
            across = min(box.x1, other.x1) - max(box.x0, other.x0)
            down = min(box.y1, other.y1) - max(box.y0, other.y0)
            assert across < 1 or down < 0.3 * min(box.height, other.height), (words, beside)


def test_colours_differ_on_a_dark_background_too():
    for colours in (drawing.PALETTE, [drawing.DARK.get(one.lower(), ("", one))[1] for one in drawing.PALETTE]):
        values = [tuple(int(one[at : at + 2], 16) for at in (1, 3, 5)) for one in colours]
        assert all(math.dist(*both) > 60 for both in combinations(values, 2)), colours


def test_the_articles_rows_have_curves_of_their_own_each_of_another_kind():
    rows = [one for name in ("DBO-1", "DBO-2", "DBP-0-1-1") for one in swept(name, dict.fromkeys(NUMBERS, 500.0), family="article")]
    one = crossed((1000.0,) * 4, (2000.0,) * 4)
    one = replace(one, rows=[*one.rows, rows[3], rows[7], rows[11]], sweep=[*one.sweep, *rows[:3], *rows[4:7], *rows[8:11]])
    figure = workers(one)
    assert figure is not None
    ours, theirs = figure.axes
    assert [text.get_text().split()[0] for text in ours.texts] == ["adaptive", "skip_locked"]
    assert [text.get_text().split()[0] for text in theirs.texts] == ["DBO-1", "DBO-2", "DBP-0-1-1"]
    assert len({line.get_color() for line in theirs.lines}) == 3


def test_a_card_of_the_articles_rows_shows_them_and_says_why_nothing_is_recommended():
    figure = card(bench(*article()), ORIGIN)
    assert figure is not None
    (axes,) = figure.axes
    assert {"DBO-mariadb-9", "DBP-mariadb-0-1-1"} <= {text.get_text() for text in axes.texts}
    texts = " ".join(" ".join(text.get_text() for text in figure.texts).split())
    assert "none of the product's strategies ran here" in texts


def test_curves_of_few_runs_are_indicative_and_have_no_interval():
    one = crossed((1000.0,) * 4, (2000.0,) * 4)
    once = replace(
        one,
        rows=[replace(each, runs=each.runs[:1], quick=True) for each in one.rows],
        sweep=[replace(each, runs=each.runs[:1], quick=True) for each in one.sweep],
    )
    for drawn, weak in ((workers(once), True), (workers(one), False)):
        assert drawn is not None
        texts = " ".join(" ".join(text.get_text() for text in drawn.texts).split())
        assert ("indicative" in texts, "bootstrap" in texts) == (weak, not weak)


def test_a_browser_with_wider_letters_cuts_no_figure_beside_a_row():
    figure = arrivals(bench(row("adaptive"), arrivals=[arriving("adaptive"), arriving("skip_locked", p99=0.123456)]))
    assert figure is not None
    figure.draw_without_rendering()
    boxes = [text.get_window_extent() for axes in figure.axes for text in axes.texts]
    assert boxes
    assert all(box.x1 + 0.03 * box.width <= figure.bbox.x1 for box in boxes)


def test_the_card_has_the_number_its_interval_and_the_line_of_the_server():
    one = bench(row("adaptive", (1990.0, 2000.0, 2010.0)), row("skip_locked"), arrivals=[arriving("adaptive")])
    figure = card(one, ORIGIN)
    assert figure is not None
    texts = " ".join(" ".join(text.get_text() for text in figure.texts).split())
    for words in ("2,000", "1,990–2,010 over 3 runs", "PostgreSQL 18.1", "cores 2", "fsync on", "read committed", "2026-11-21"):
        assert words in texts
    assert "This machine was busy before the comparison began" in texts
    assert "99 % of the jobs wait at most 9 ms with adaptive" in texts
    assert "indicative" not in texts
    assert description(one) == (
        "PostgreSQL 18.1: adaptive, 1 per claim, 2,000 jobs/s (bootstrap interval 1,990–2,010 over 3 runs)."
    )


def test_a_quick_card_is_indicative_and_has_no_interval():
    one = bench(replace(row("adaptive", (1000.0,)), quick=True), replace(row("skip_locked", (900.0,)), quick=True))
    figure = card(one, ORIGIN)
    assert figure is not None
    texts = " ".join(text.get_text() for text in figure.texts)
    assert "indicative" in texts
    assert "one run: no interval" in texts
    assert "wins" not in texts


def test_no_card_without_a_run_and_no_recommendation_of_what_is_wrong():
    assert card(bench(row("adaptive", ())), ORIGIN) is None
    figure = card(bench(row("adaptive", twice=3)), ORIGIN)
    assert figure is not None
    assert "No recommendation" in " ".join(text.get_text() for text in figure.texts)
    assert description(bench(row("adaptive", twice=3))) == "PostgreSQL 18.1: no recommendation."


def test_the_card_needs_nothing_but_itself():
    figure = card(bench(row("adaptive")), ORIGIN)
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
