"""The runner of others' suites: what fails a run, and that the page shows the stored results."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.others import kombu, page, suite
from tests.others.suite import Outcome, SuiteFailed, dependencies, read_report
from tests.patience import PATIENCE

REPORT = """<testsuites><testsuite name="pytest">
<testcase classname="t.one" name="good"/>
<testcase classname="t.one" name="bad"><failure message="no"/></testcase>
<testcase classname="t.one" name="broken"><error message="no"/></testcase>
<testcase classname="t.one" name="left"><skipped message="no Redis"/></testcase>
<testcase classname="t.one" name="ends badly"/>
<testcase classname="t.one" name="ends badly"><error message="teardown"/></testcase>
</testsuite></testsuites>"""


def test_a_report_is_read(tmp_path):
    report = tmp_path / "report.xml"
    report.write_text(REPORT)
    found = read_report(report)
    assert found.passed == {"t.one::good"}
    assert found.failed == {"t.one::bad", "t.one::broken", "t.one::ends badly"}
    assert found.skipped == {"t.one::left": "no Redis"}


@pytest.mark.parametrize("text", [None, "", "<testsuites><testsuite>"])
def test_a_run_without_a_whole_report_fails(tmp_path, text):
    report = tmp_path / "report.xml"
    if text is not None:
        report.write_text(text)
    with pytest.raises(SuiteFailed, match="wrote no report"):
        read_report(report)


@pytest.mark.parametrize(
    ("passed", "failed", "expected", "surprises"),
    [
        ({"a"}, {"b"}, {"b": "why"}, []),
        ({"a"}, {"b"}, {}, ["failed, and no difference is known: b"]),
        ({"a", "b"}, set(), {"b": "why"}, ["passed, but a difference is known: b"]),
        ({"a"}, set(), {"b": "why"}, ["a difference is known, but there is no such test: b"]),
        (set(), set(), {}, ["no test ran"]),
    ],
)
def test_what_fails_a_run(passed, failed, expected, surprises):
    assert Outcome(frozenset(passed), frozenset(failed), {}).surprises(expected) == surprises


def test_the_page_shows_the_stored_results():
    assert page.PAGE.read_text(encoding="utf-8") == page.page(page.stored()), "run: python -m tests.others --page"


def result(database, differences, **others):
    counts = {"version": "1", "date": "2026-01-02", "passed": 1, "failed": len(differences), "skipped": 0}
    return {"suite": "theirs", "database": database, "differences": differences, **counts, **others}


def test_the_page_says_what_is_adapted_and_where_a_test_fails():
    text = page.page(
        [result("SQLite 3", {"t::one": "why", "t::two": "why"}, adapted="no tasks"), result("MySQL 9", {"t::one": "why"})]
    )
    assert text.count("- theirs: no tasks\n") == 1
    assert "- theirs: why (`one`; `two` on SQLite)\n" in text


def test_an_extra_that_names_others_has_their_requirements():
    found = dependencies(["celery"])
    assert {name.split(">")[0] for name in found} >= {"sqlalchemy", "celery", "kombu", "jmespath"}


def test_two_runs_at_once_make_an_environment_once(monkeypatch, tmp_path):
    made: list[Path] = []
    second = threading.Event()

    def install(python, *_):
        made.append(Path(python))
        second.wait(0.2)  # the other run would come here, too
        second.set()

    monkeypatch.setattr(suite, "cache_folder", lambda: tmp_path / "servers")
    monkeypatch.setattr(suite, "_pip", install)
    monkeypatch.setattr(suite.subprocess, "run", lambda command, **_: Path(command[-1]).mkdir(exist_ok=True))
    with ThreadPoolExecutor(2) as pool:
        begun = [pool.submit(suite._environment, kombu.SUITE) for _ in range(2)]
        (python,) = {run.result(PATIENCE) for run in begun}
    assert made == [Path(python)]
