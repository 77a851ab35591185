"""``queue-db compare`` that is ended before its end, or does not begin."""

import re
import signal

import pytest

from queue_db.compare.laboratory import _Runner
from queue_db.compare.results import Comparison


@pytest.fixture
def unimpressed():
    """A SIGTERM that the command does not handle has no effect, instead of ending the tests."""
    before = signal.signal(signal.SIGTERM, lambda *_: None)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.mark.usefixtures("unimpressed")
def test_a_comparison_that_is_terminated_drops_its_schema(ask_at, tmp_path, monkeypatch):
    seen = []

    def be_terminated(*_):
        seen.extend(path.name for path in tmp_path.iterdir())
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(_Runner, "run_bench", be_terminated)
    ask_at(None, "compare", "--url", f"sqlite:///{tmp_path / 'queue.db'}", "--quick", "--report", tmp_path / "report", status=130)
    assert any(name.startswith("queue_db_compare_") for name in seen)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("unimpressed")
def test_a_comparison_that_is_terminated_reports_what_it_has_measured(ask_at, tmp_path, monkeypatch):
    measured = []
    run_turn = _Runner._run_turn

    def be_terminated(*arguments):
        if len(measured) == 2:
            signal.raise_signal(signal.SIGTERM)
        measured.append(run_turn(*arguments))
        return measured[-1]

    monkeypatch.setattr(_Runner, "_run_turn", be_terminated)
    report = tmp_path / "report"
    plan = ("--strategies", "adaptive,optimistic,DBO-1", "--jobs", 20, "--batch", 1, "--workers", 2, "--repeat", 1, "--threads")
    told = ask_at(None, "compare", "--url", f"sqlite:///{tmp_path}/queue.db", *plan, "--report", report, status=130)
    assert "interrupted" in told.err
    assert "Interrupted: rows lack runs" in (report / "index.html").read_text()
    (bench,) = Comparison.load(report / "results.json").benches
    assert [len(row.runs) for row in bench.rows] == [1, 1, 0]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report"]


@pytest.mark.parametrize(
    ("option", "place", "says"),
    [
        ("--report", "file", "--report .*file: .*file is not a folder"),
        ("--report", "file/deeper", "--report .*file/deeper: .*file is not a folder"),
        ("--json", "nowhere/results.json", "--json .*nowhere/results.json: must be a file that can be written to"),
        ("--json", ".", "--json .*: must be a file that can be written to"),
    ],
)
def test_a_place_that_cannot_be_written_to_is_refused_before_anything_is_measured(
    ask_at, tmp_path, monkeypatch, option, place, says
):
    (tmp_path / "file").touch()
    measured = []
    monkeypatch.setattr(_Runner, "run_bench", lambda *_: measured.append(1))
    url = f"sqlite:///{tmp_path / 'queue.db'}"
    told = ask_at(None, "compare", "--url", url, "--quick", option, tmp_path / place, status=2)
    assert re.search(says, " ".join(told.err.split()))
    assert not measured
