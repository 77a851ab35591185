from __future__ import annotations

import io
import math
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from rich.console import Console

from queue_db.compare.report import page as pages
from queue_db.compare.report import show, text, write
from queue_db.compare.report.advice import Advice
from queue_db.compare.report.findings import findings
from queue_db.compare.report.ratios import Ratio, between
from queue_db.compare.report.wording import errors, label, milliseconds, number, percent, unfinished
from queue_db.compare.results import Bench, Comparison, Row
from tests.compare.hand_made import arriving, article, bench, comparison, peer, row, run

SLOW, FAST, FASTER = (990.0, 1000.0, 1010.0), (1990.0, 2000.0, 2010.0), (3990.0, 4000.0, 4010.0)


def advised(*rows: Row) -> str:
    return Advice.of(bench(*rows)).sentence


def everything() -> Comparison:
    """Each kind of row on one database, and a second one that could run nothing."""
    full = bench(
        row("pessimistic", SLOW, faults={"deadlock": 3, "lock timeout": 1}),
        row("skip_locked", FAST),
        row("optimistic", FAST, window=4.0, candidates=1300, displacement={1: 500, 7: 500}),
        row("adaptive", FASTER, batch=10, displacement={0: 400, 30: 600}),
        row("at_most_once", FASTER),
        *article(),
        row("late", (500.0,), left=400),
        peer('redis <lists> & "BLMOVE" $x_1$', FASTER),
        row("refused_here", (), refused="needs <SKIP LOCKED> & more"),
        title="MariaDB",
        arrivals=[arriving("adaptive"), arriving("skip_locked", p99=0.004)],
    )
    return comparison(full, bench(row("skip_locked", (), refused="no server"), title="SQLite"))


# What is recommended


def test_skip_locked_wins_beyond_the_noise_and_is_recommended():
    sentence = advised(row("skip_locked", FAST), row("optimistic", SLOW), row("adaptive", SLOW))
    assert sentence.startswith("Use skip_locked: 2,000 jobs/s (1,990–2,010 over 3 runs)")
    assert "It wins beyond the noise: 2.00 × (1.97–2.03) the jobs/s of" in sentence


def test_the_sentence_has_the_figures_that_a_throughput_may_not_stand_without():
    sentence = advised(row("skip_locked", FAST, faults={"lock timeout": 2}), row("adaptive", SLOW))
    for part in ("0 % misses", "displacement 0.03 on average, 3 at most", "6 lock timeouts", "no repeated executions"):
        assert part in sentence


def test_of_a_tie_the_simpler_and_better_ordered_is_recommended():
    ours = row("skip_locked", (1000.0, 1010.0, 1020.0))
    disordered = row("optimistic", (1050.0, 1060.0, 1070.0), displacement={40: 1000})
    sentence = advised(disordered, ours)
    assert sentence.startswith("Use skip_locked: ")
    assert "It ties with optimistic (0.95 × (0.93–0.97) its jobs/s)" in sentence
    assert "differences under 10 % or within the interval count as ties" in sentence
    assert "keeps jobs closest to their order (mean displacement 0.03 against 40 with optimistic)" in sentence


def test_a_large_difference_within_the_interval_is_a_tie():
    sentence = advised(row("skip_locked", (600.0, 1000.0, 1400.0)), row("adaptive", (1000.0, 1400.0, 1800.0)))
    assert sentence.startswith("Use skip_locked: ")
    assert "It ties with adaptive" in sentence
    assert "You may keep adaptive, the default: it is no slower beyond the noise." in sentence


def test_of_a_tie_the_one_without_errors_is_recommended():
    sentence = advised(row("pessimistic", FAST, faults={"deadlock": 4}), row("adaptive", FAST))
    assert sentence.startswith("Use adaptive: ")
    assert "preferred because it had no errors (pessimistic: 12 deadlocks)" in sentence


@pytest.mark.parametrize(
    "spoilt",
    [
        pytest.param({"twice": 1}, id="duplicates"),
        pytest.param({"left": 999}, id="unfinished"),
        pytest.param({"unique": 999, "executions": 999}, id="a job without an execution"),
    ],
)
def test_a_spoilt_row_is_never_recommended(spoilt):
    bad = row("optimistic", FASTER, **spoilt)
    advice = Advice.of(bench(bad, row("skip_locked", SLOW)))
    assert advice.choice is not None
    assert advice.choice.row.name == "skip_locked"
    assert "optimistic" not in advice.sentence
    assert Advice.of(bench(bad)).choice is None
    assert advised(bad).startswith("No recommendation: none of the product's rows executed every job exactly once")


def test_one_unfinished_run_spoils_a_row():
    half = replace(row("optimistic", FASTER), runs=[run(4000.0), run(4000.0, left=3)])
    assert advised(half, row("skip_locked", SLOW)).startswith("Use skip_locked")


def test_another_promise_is_not_recommended_for_its_speed():
    at_most_once, ours = row("at_most_once", FASTER), row("skip_locked", SLOW)
    assert advised(at_most_once, ours).startswith("Use skip_locked")
    assert any(one.startswith("At most once (jobs of a worker that dies are lost") for one in findings(bench(at_most_once, ours)))


def test_the_batch_is_recommended_with_a_strategy_for_single_claims():
    sentence = advised(row("skip_locked", SLOW), row("adaptive", FASTER, batch=10), row("skip_locked", SLOW, batch=10))
    assert sentence.startswith("Use adaptive, batches of 10: ")
    assert "For workers that hold one job at a time, use skip_locked: 1,000 jobs/s" in sentence
    assert "batches bring 4.00 ×" in sentence
    faster = row("adaptive", tuple(10 * rate for rate in FASTER), batch=10)
    assert "batches bring 40 × (" in advised(row("skip_locked", SLOW), faster), "no digits that were not measured"


def test_no_larger_batch_than_the_throughput_is_worth():
    assert advised(row("skip_locked", FAST, batch=100), row("skip_locked", FAST, batch=10)).startswith(
        "Use skip_locked, batches of 10"
    )


def test_one_run_has_no_spread_and_wins_nothing_beyond_the_noise():
    once = bench(
        row("skip_locked", (2067.0,)),
        row("adaptive", (1000.0,)),
        row("skip_locked", (28_333.0,), batch=100),
        peer("theirs", (9999.0,)),
    )
    advice = Advice.of(once)
    assert advice.sentence.startswith(
        "Indicative: skip_locked, batches of 100, was the fastest of queue_db's at-least-once strategies in a single run: "
        "28,333 jobs/s"
    )
    assert "batches bring 14 × that throughput" in advice.sentence  # no digits that were not measured
    assert "2.1 × the jobs/s of adaptive, the next fastest of queue_db's at-least-once strategies." in advice.choices[0].reason
    assert advice.caveats == (
        "Each row ran only once: the spread is unknown, and any difference may be chance. Measure again with --repeat 3.",
    )
    output = [advice.sentence, *findings(once), *(choice.reason for choice in advice.choices)]
    assert any("theirs was faster in a single run" in one for one in output)
    for shown in (*output, page_of(once).partition("How to read it")[0], printed(once)):
        assert "sd 0" not in shown
        assert "beyond the noise" not in shown


def test_one_run_names_no_tie_within_a_spread_and_no_order_to_use_it():
    at_most_once = row("at_most_once", (4000.0,))
    sentence = advised(row("skip_locked", (1000.0,)), row("adaptive", (1050.0,)), row("optimistic", (500.0,)), at_most_once)
    assert sentence.startswith(
        "Indicative: skip_locked was among the fastest of queue_db's at-least-once strategies in a single run: 1,000 jobs/s"
    )
    assert "Within 10 % of adaptive (0.95 × its jobs/s); named because it is the simplest of them." in sentence
    for word in ("Use ", ", use ", "tie", "spread", "It was the fastest"):
        assert word not in sentence
    repeated = advised(row("skip_locked", FAST), row("adaptive", SLOW), row("at_most_once", FASTER))
    assert "the jobs/s of adaptive, the next fastest of queue_db's at-least-once strategies." in repeated


def page_of(one, machine=None):
    """The page without pictures."""
    whole = replace(comparison(one), machine=machine or {})
    return pages.page_html(whole, [pages.section(each, each.title.lower(), [], whole.machine) for each in whole.benches])


@pytest.mark.parametrize(("runs", "found"), [(1, "ran only once"), (2, "only 2 runs per row"), (3, None)])
def test_few_runs_are_a_warning_with_the_recommendation(runs, found):
    advice = Advice.of(bench(row("skip_locked", FAST[:runs]), row("adaptive", SLOW[:runs])))
    assert [found in caveat for caveat in advice.caveats] == ([] if found is None else [True])


@pytest.mark.parametrize(
    ("load", "cores", "busy"),
    [("1.1 0 0", "2", True), ("1.0 9 9", "2", False), ("23.34 20.1 9.0", "2", True), ("4 4 4", "16", False), ("", "2", False)],
)
def test_a_busy_machine_is_a_warning_with_the_recommendation(load, cores, busy):
    machine = {"load before": load, "cores": cores}
    one = bench(row("skip_locked", FAST), row("adaptive", SLOW))
    words = f"busy before the comparison began (load {load.split()[0] if load else ''} on {cores} cores)"
    assert [words in caveat for caveat in Advice.of(one, machine).caveats] == ([True] if busy else [])
    assert (words in page_of(one, machine)) is busy


def test_the_report_states_where_and_by_what_the_default_is_beaten():
    rows = [row("adaptive", SLOW), row("skip_locked", FAST), row("optimistic", FASTER), row("pessimistic", SLOW)]
    rows += [row("adaptive", FASTER, batch=10), row("skip_locked", FAST, batch=10), row("adaptive", FAST, batch=100)]
    first, second, *_ = findings(bench(*rows))
    assert first == (
        "The default, adaptive, is beaten beyond the noise at 1 per claim by optimistic (4.00 × (3.95–4.05) its jobs/s) and "
        "skip_locked (2.00 × (1.97–2.03) its jobs/s)."
    )
    assert second == "The default, adaptive, is beaten by no other strategy beyond the noise at 10 per claim."
    assert findings(bench(row("adaptive", (1000.0,)), row("skip_locked", (1770.0,))))[0] == (
        "Indicative: in a single run the default, adaptive, was slower than skip_locked (1.77 × its jobs/s) at 1 per claim."
    )
    wrong = bench(row("adaptive", SLOW), row("skip_locked", FAST, twice=1), row("at_most_once", FASTER))
    assert not any("The default" in one for one in findings(wrong)), "no row to be compared with"


@pytest.mark.parametrize("rows", [(), (row("skip_locked", (), refused="cannot"),)])
def test_nothing_ran(rows):
    assert advised(*rows) == "No recommendation: none of the product's strategies ran here."


# What else is found


def test_a_peer_that_wins_is_named_as_winning():
    found = findings(bench(row("skip_locked", SLOW), peer("pgqueuer", FAST), peer("procrastinate", (100.0, 101.0))))
    assert any(
        one.startswith("The peer pgqueuer wins: 2.00 × (1.97–2.03) the jobs/s of queue_db's fastest row, skip_locked")
        for one in found
    )
    assert any(
        one.startswith("Slower than queue_db's fastest row with the same batch size: procrastinate (0.10 ×") for one in found
    )


def test_a_peer_is_compared_with_rows_of_its_batch():
    found = findings(bench(row("skip_locked", SLOW), row("skip_locked", FASTER, batch=10), peer("pgqueuer", FAST, batch=10)))
    assert not any("wins" in one for one in found)


def test_peers_tie_or_stand_alone():
    found = " ".join(findings(bench(row("skip_locked", SLOW), peer("near", SLOW), peer("alone", FAST, batch=7))))
    assert "The peer near ties with queue_db's fastest row" in found
    assert "alone, batches of 7 has no queue_db row of the same batch size" in found


def test_broken_and_unsupported_rows_are_reported():
    found = " ".join(findings(everything().benches[0]))
    assert "late did not finish: 1 of 1 run, 400 of 1,000 jobs left the queue." in found
    assert "Not supported on this database: refused_here (needs <SKIP LOCKED> & more)." in found
    assert "Errors in the product's rows: pessimistic: 9 deadlocks, 3 lock timeouts" in found


# Ratios


def test_a_ratio_is_of_the_medians_with_its_interval():
    ratio = Ratio.of((180.0, 210.0, 220.0), (90.0, 105.0, 110.0))
    assert ratio is not None
    assert (ratio.value, ratio.wins, ratio.tie) == (2.0, True, False)
    assert ratio.interval == (pytest.approx(180 / 110), pytest.approx(220 / 90))


@pytest.mark.parametrize(("over", "under"), [((), (1.0,)), ((1.0,), ()), ((1.0,), (0.0,))])
def test_no_ratio_without_both(over, under):
    assert Ratio.of(over, under) is None
    assert between(None, None) is None


def test_quick_and_fewer_than_three_runs_win_nothing():
    fast, slow = (4000.0, 4000.0, 4000.0), (1000.0, 1000.0, 1000.0)
    ratios = [Ratio.of(fast, slow), Ratio.of(fast, slow, quick=True), Ratio.of(fast[:2], slow)]
    assert [(ratio.faster, ratio.wins) for ratio in ratios if ratio] == [(True, True), (True, False), (True, False)]
    quick = bench(*(replace(one, quick=True) for one in (row("adaptive", slow), row("skip_locked", fast), peer("theirs", FASTER))))
    output = " ".join([Advice.of(quick).sentence, *findings(quick), *(choice.reason for choice in Advice.of(quick).choices)])
    assert "Indicative: skip_locked was the fastest" in output
    assert "in 3 short runs" in output
    assert "Indicative: in 3 short runs the default, adaptive, was slower than skip_locked" in output
    assert not re.search(r"\bwins\b|\bUse\b|\bbeaten\b|beyond the noise", output)
    level = bench(*(replace(row(name, slow), quick=True) for name in ("adaptive", "skip_locked")))
    assert findings(level)[0] == (
        "Indicative: in 3 short runs no other strategy was clearly faster than the default, adaptive, at 1 per claim."
    )
    assert '<span class="tag">named above, indicative</span>' in page_of(quick)
    assert "recommended</span>" not in page_of(quick)
    assert any("--quick" in caveat for caveat in Advice.of(quick).caveats)


# Words


@pytest.mark.parametrize(
    ("value", "words"),
    [(None, "–"), (math.nan, "–"), (0.0, "0"), (12345.6, "12,346"), (12.34, "12.3"), (0.123, "0.12"), (0.0012, "0.001")],
)
def test_numbers(value, words):
    assert number(value) == words


def test_other_words():
    assert [percent(share) for share in (0.0, 0.0001, 0.351, None)] == ["0 %", "<0.1 %", "35.1 %", "–"]
    assert (milliseconds(0.0123), milliseconds(None)) == ("12.3", "–")
    assert errors(row("a", SLOW, faults={"other": 2, "deadlock": 0})) == "6 other errors"
    assert label(row("a", batch=10)) == "a, batches of 10"
    assert unfinished(row("a", ())) == "did not run"
    assert unfinished(row("a", (), refused="no")) is None


# The page and its files


class Reader(HTMLParser):
    """Collects what a browser would load, the texts, and whether each element was closed."""

    VOID = frozenset({"meta", "br", "link", "img", "input", "hr", "source"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.references: list[str] = []
        self.rows: list[str] = []
        self.texts: list[str] = []
        self.identifiers: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in self.VOID:
            self.open.append(tag)
        self._attributes(attrs)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._attributes(attrs)

    def _attributes(self, attrs: list[tuple[str, str | None]]) -> None:
        self.references += [
            str(value) for name, value in attrs if name in {"src", "href", "xlink:href", "data", "action", "srcset"}
        ]
        self.identifiers += [str(value) for name, value in attrs if name == "id"]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def read(page: str) -> Reader:
    reader = Reader()
    reader.feed(page)
    reader.close()
    assert reader.open == []
    return reader


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Comparison, list[Path], str]:
    whole = everything()
    folder = tmp_path_factory.mktemp("report") / "deep" / "folder"
    paths = write(whole, folder)
    return whole, paths, (folder / "index.html").read_text(encoding="utf-8")


def test_the_page_needs_no_network(written):
    _, _, page = written
    without_names = re.sub(r'xmlns(:\w+)?="[^"]*"', "", page)
    assert "http:" not in without_names
    assert "https:" not in without_names
    assert "//" not in "".join(re.findall(r"url\(([^)]*)\)", page))
    assert "@import" not in page
    assert "<script" not in page
    assert all(reference.startswith("#") for reference in read(page).references)


def test_every_row_is_in_the_page_with_what_it_is(written):
    whole, _, page = written
    texts = " ".join(read(page).texts)
    for one in whole.benches:
        assert one.server in texts
        for each in one.rows:
            assert each.name in texts
    for name, value in {**whole.plan, **whole.machine, **whole.benches[0].facts, "prefetch": "100"}.items():
        assert name in texts
        assert value in texts
    assert page.count("<tbody>") == len(whole.benches)


def test_names_are_escaped(written):
    _, _, page = written
    assert "redis &lt;lists&gt; &amp; &#34;BLMOVE&#34; $x_1$" in page
    assert "needs &lt;SKIP LOCKED&gt; &amp; more" in page
    assert "<lists>" not in page
    assert "<SKIP" not in page


def test_identifiers_are_those_of_one_page(written):
    identifiers = read(written[2]).identifiers
    sections = [one for one in identifiers if one in {"mariadb", "sqlite"}]
    assert sections == ["mariadb", "sqlite"]
    assert all(one.startswith(("mariadb", "sqlite")) for one in identifiers)


def test_unfinished_refused_and_recommended_rows_are_marked(written):
    _, _, page = written
    assert "did not finish: 1 of 1 run" in page
    assert "not supported: needs" in page
    assert page.count('<span class="tag">recommended</span>') == 1
    assert page.count('<tr class="wrong">') == 2


def test_a_throughput_stands_beside_its_errors_and_duplicates(written):
    page = written[2]
    line = next(part for part in page.split("<tr") if '<th scope="row" title="by hand">DBP-mariadb-0-1-1<' in part)
    assert re.findall(r'<td class="n">(.*?)</td>', line)[:2] == ["1", "245"]
    assert "320 deadlocks; 300 repeated executions" in line


def test_the_chart_is_there_as_png_and_svg_and_once_in_the_page(written):
    _, paths, page = written
    assert {path.name for path in paths[2:]} == {"mariadb-chart.png", "mariadb-chart.svg"}
    for path in paths[2:]:
        assert path.read_bytes().startswith(b"\x89PNG" if path.suffix == ".png" else b"<svg")
    assert page.count("<svg") == 2, "for a desk and for a phone"


def test_the_table_has_what_each_row_costs():
    late = arriving("skip_locked", p99=0.004)
    late = replace(late, turns=[replace(turn, left=999) for turn in late.turns])
    one = bench(
        row("adaptive", SLOW, candidates=1250, statements=2500),
        row("skip_locked", FAST, server_cpu=None),
        row("skip_locked", FASTER, batch=10),
        *article(),
        arrivals=[arriving("adaptive", p99=0.0091), late],
    )
    lines = {(line.row.name, line.row.batch): line.cells for line in pages.section(one, "x", [], {}).lines}
    assert lines["adaptive", 1] == ["1,000", "990–1,010", "–", "20.0 %", "0.03 / 3", "2 / 11", "9.10", "500 / 700", "2.50"]
    assert lines["skip_locked", 1][2] == "2.00"
    assert lines["skip_locked", 1][6:8] == ["4 (did not keep up)", "500 / –"]
    assert lines["skip_locked", 10][2] == "–", "no default of this batch size"
    assert lines["DBO-mariadb-1", 1][2] == "–", "another table is no strategy"


def test_the_saved_data_are_the_comparison(written):
    whole, paths, _ = written
    assert paths[0].name == "index.html"
    assert paths[1].name == "results.json"
    assert Comparison.load(paths[1]) == whole


def test_a_report_of_loaded_data_is_the_same(tmp_path):
    here, there = tmp_path / "here", tmp_path / "there"
    written = write(comparison(bench(row("adaptive", SLOW, server_cpu=None))), here)
    again = write(Comparison.load(here / "results.json"), there)
    assert [path.relative_to(there) for path in again] == [path.relative_to(here) for path in written]
    assert [path.read_bytes() for path in again if path.suffix != ".png"] == [
        path.read_bytes() for path in written if path.suffix != ".png"
    ]


def test_two_databases_of_one_kind_have_files_of_their_own(tmp_path):
    paths = write(comparison(bench(row("adaptive")), bench(row("adaptive"))), tmp_path)
    names = [path.name for path in paths]
    assert "postgresql-chart.png" in names
    assert "postgresql-2-chart.png" in names
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    "sparse",
    [
        pytest.param(comparison(), id="no database"),
        pytest.param(comparison(bench()), id="no rows"),
        pytest.param(comparison(bench(row("adaptive", ()))), id="no runs"),
        pytest.param(comparison(bench(row("adaptive", (), refused="no"))), id="all refused"),
        pytest.param(
            comparison(bench(row("adaptive", SLOW, latency=None, first=None, server_cpu=None, client_cpu=None))), id="unknown"
        ),
        pytest.param(comparison(bench(row("adaptive", SLOW, server_cpu=math.nan))), id="not a number"),
        pytest.param(
            comparison(
                bench(
                    row(
                        "adaptive",
                        (1000.0,),
                        left=0,
                        seconds=0.0,
                        executions=0,
                        unique=0,
                        displacement={},
                        per_worker=[],
                        candidates=0,
                        won=0,
                        statements=0,
                        peak_memory=0,
                        latency=None,
                    )
                )
            ),
            id="nothing happened",
        ),
        pytest.param(comparison(bench(title="Ωracle & <sons>/9", server="", url="", facts={})), id="a strange database"),
    ],
)
def test_sparse_data_still_make_a_page(sparse, tmp_path):
    paths = write(sparse, tmp_path)
    reader = read(paths[0].read_text(encoding="utf-8"))
    assert "nan" not in " ".join(reader.texts).lower().replace("finance", "")
    for one in sparse.benches:
        assert text.Summary(one)
    assert all(path.parent == tmp_path and urlsplit(path.name).path == path.name for path in paths)


LOCKS = "With 10 per claim, adaptive claims with SKIP LOCKED here, which was measured to be faster."
WINDOWS = "With 1 per claim, adaptive claims from windows here; 10.0 % of the candidates were missed."


def test_the_report_says_how_adaptive_claims(tmp_path):
    rows = [
        row("adaptive", skip_locked=False, candidates=1000, won=900),
        row("adaptive", batch=10, skip_locked=True),
        row("skip_locked"),
    ]
    said = [text for text in findings(bench(*rows)) if " here" in text and "adaptive claims" in text]
    assert said == [WINDOWS, LOCKS]
    assert said[0] in page_of(bench(*rows))
    assert said[0] in " ".join(printed(bench(*rows)).split())
    path = tmp_path / "comparison.json"
    comparison(bench(*rows)).save(path)
    assert [one.skip_locked for one in Comparison.load(path).benches[0].rows] == [False, True, None]


# The terminal


def printed(one: Bench, width: int = 150) -> str:
    console = Console(width=width, color_system=None, force_terminal=False, file=io.StringIO())
    with console.capture() as output:
        console.print(text.Summary(one))
    return output.get()


def test_the_terminal_has_every_row_with_its_errors_and_the_advice():
    one = everything().benches[0]
    output = printed(replace(one, rows=[*one.rows, row("[red]not markup", SLOW)]))
    for each in one.rows:
        assert each.name in output
    assert "[red]not markup" in output
    assert "9 deadlocks, 3 lock timeouts" in output
    assert "not supported: needs <SKIP LOCKED> & more" in " ".join(output.split())
    assert "→ Use adaptive, batches of 10" in output


def test_a_narrow_terminal_still_has_the_errors_beside_the_throughput():
    output = printed(bench(*article()), width=80)
    line = next(line for line in output.splitlines() if "DBP-mariadb-0-1-1" in line)
    assert "245" in line
    assert "320 deadlocks; 300" in line
    assert max(map(len, output.splitlines())) <= 80


def test_a_saved_name_sends_the_terminal_no_orders():
    output = printed(bench(row("\x1b]0;mine\x07", SLOW)))
    assert "\x1b" not in output
    assert "mine" in output


def test_show_prints(capsys):
    show(bench(row("skip_locked", SLOW)))
    assert "→ Use skip_locked: 1,000 jobs/s" in capsys.readouterr().out
