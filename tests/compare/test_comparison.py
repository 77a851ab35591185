"""A small comparison on every database; ``--compare-report DIR`` writes the report of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from queue_db.cli.app import app
from queue_db.compare import report
from queue_db.compare.laboratory import compare
from queue_db.compare.plan import Plan
from queue_db.compare.results import Bench, Comparison
from tests.compare import hand_made
from tests.patience import PATIENCE

#: Of the article's rows one of each kind: test_article_rows.py runs all.
OF_ARTICLE = ("DBP-0-1-1", "DBP-noindex", "DBO-0", "DBO-1")

#: Measured once for each database, looked at by several tests.
PLAN = Plan(
    strategies=("product", *OF_ARTICLE), jobs=12, workers=2, repeat=1, batches=(1, 10), limit=PATIENCE, lease=2.0, kind="threads"
)


MEASURED = pytest.mark.rest(
    "TestCommand measures some rows, test_article_rows.py runs each, test_laboratory.py has what is left behind"
)


@pytest.fixture(scope="session")
def benches() -> dict[str, Comparison]:
    return {}


@pytest.fixture
def bench(kind: str, fresh_url: str, benches: dict[str, Comparison]) -> Bench:
    if kind not in benches:
        benches[kind] = compare([fresh_url], PLAN)
    return benches[kind].benches[0]


@MEASURED
def test_every_row_runs_or_is_reported_as_unsupported(kind: str, bench: Bench) -> None:
    refused = {row.name: row.refused for row in bench.rows if row.refused}
    assert refused.keys() == ({"skip_locked"} if kind == "sqlite" else set())
    assert all("SKIP LOCKED" in str(why) for why in refused.values())
    assert all(row.runs for row in bench.rows if not row.refused)


@MEASURED
def test_every_job_is_executed_and_leaves(bench: Bench) -> None:
    for row in bench.rows:
        for run in row.runs:
            assert run.finished, row.name
            assert run.unique == run.jobs == run.left


@MEASURED
def test_every_product_row_executes_each_job_once(kind: str, bench: Bench) -> None:
    rows = [row for row in bench.rows if row.family == "product"]
    names = ["pessimistic", "skip_locked", "optimistic", "adaptive", "complete_and_claim", "at_most_once"]
    assert [(row.name, row.batch) for row in rows] == [(name, batch) for name in names for batch in PLAN.batches]
    for row in (row for row in rows if not row.refused):
        jobs = PLAN.jobs_for(row.batch)
        (run,) = row.runs
        assert (run.jobs, run.left, run.executions, run.unique) == (jobs, jobs, jobs, jobs), row.name
        assert (run.duplicates, run.lost, run.won) == ({}, 0, jobs), row.name
        assert run.candidates >= run.won
        assert run.latency is not None
        assert run.latency.count <= jobs
        tunes = row.name in ("adaptive", "complete_and_claim", "at_most_once")
        locks = tunes and kind == "postgresql" and row.batch in range(8, 32)
        assert run.skip_locked is (locks if tunes and kind != "sqlite" else None), row.name
        assert (run.window is not None) == (tunes and not locks), row.name
        assert row.window == (PLAN.workers * row.batch if row.name == "optimistic" else None)
        assert row.removal == ("with the claim" if row.name == "at_most_once" else "fenced DELETE")


@MEASURED
def test_what_was_measured_is_complete(kind: str, bench: Bench, benches: dict[str, Comparison], tmp_path: Path) -> None:
    for row in bench.rows:
        for run in row.runs:
            assert run.latency is not None
            assert run.latency.p50 <= run.latency.p99 <= run.latency.max
            assert run.first is not None
            assert 0 <= run.first <= run.seconds
            assert sum(run.per_worker) == run.executions
            assert sum(run.displacement.values()) == run.executions
            assert run.statements > 0
            assert run.client_cpu is not None
            # Without a server of its own there is nothing to see.
            assert (run.server_cpu is None) is (kind == "sqlite")
    assert bench.facts
    assert "***" in bench.url or kind == "sqlite"
    benches[kind].save(tmp_path / "results.json")
    assert Comparison.load(tmp_path / "results.json") == benches[kind]


@pytest.mark.rest("TestCommand draws a comparison that was measured, tests/compare/test_report.py all that can be in one")
def test_the_report(
    bench: Bench, kind: str, benches: dict[str, Comparison], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    folder = request.config.getoption("--compare-report") or tmp_path
    written = report.write(benches[kind], folder / kind)
    (page,) = [path for path in written if path.suffix == ".html"]
    text = page.read_text()
    assert all(row.name in text for row in bench.rows)
    assert bench.server in text
    assert Comparison.load(folder / kind / "results.json") == benches[kind]


class TestCommand:
    """``queue-db compare``, on SQLite: the rest is the same for all."""

    @staticmethod
    def run(*arguments: str) -> tuple[int, str]:
        result = CliRunner().invoke(app, ["compare", *arguments], env={"QUEUE_DB_URL": ""})
        return result.exit_code, result.output

    def test_measures_and_reports(self, tmp_path: Path) -> None:
        url = f"sqlite:///{tmp_path}/mine.db"
        names = "adaptive,skip_locked,DBO-1"
        status, output = self.run(
            "--url", url, "--strategies", names, "--jobs", "30", "--workers", "2", "--batch", "1,3", "--quick",
            "--threads",
            "--report", str(tmp_path / "report"), "--json", str(tmp_path / "saved.json"),
        )  # fmt: skip
        assert status == 0, output
        assert "DBO-sqlite-1" in output
        assert "SKIP LOCKED" in output
        assert (tmp_path / "report" / "index.html").exists()
        saved = json.loads((tmp_path / "saved.json").read_text())
        assert [(row["name"], row["batch"]) for row in saved["benches"][0]["rows"]] == [
            ("adaptive", 1),
            ("adaptive", 3),
            ("skip_locked", 1),
            ("skip_locked", 3),
            ("DBO-sqlite-1", 1),
        ]
        assert [row["name"] for row in saved["benches"][0]["arrivals"]] == ["adaptive", "skip_locked"]
        assert " wins" not in output
        assert "Indicative: adaptive" in output
        # The file that was named is not even opened: the comparison has one of its own beside it, for as long as it runs.
        assert sorted(path.name for path in tmp_path.iterdir()) == ["report", "saved.json"]

    def test_draws_what_was_saved(self, tmp_path: Path) -> None:
        saved = str(tmp_path / "saved.json")
        hand_made.comparison(hand_made.bench(hand_made.row("adaptive"))).save(Path(saved))
        status, output = self.run("--load", saved, "--report", str(tmp_path / "again"))
        assert status == 0, output
        assert (tmp_path / "again" / "results.json").read_bytes() == Path(saved).read_bytes()

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ((), "no database given: use --url or --profile, or set QUEUE_DB_URL"),
            (("--url", "sqlite:///x.db", "--strategies", "fastest"), "unknown strategy 'fastest'; known: "),
            (("--url", "sqlite:///x.db", "--strategies", ","), "give at least one name"),
            (("--url", "sqlite:///x.db", "--rate", "0"), "rate=0.0: must be more than 0 jobs per second"),
            (("--url", "sqlite:///x.db", "--batch", "many"), "--batch 'many': must be whole numbers"),
            (("--url", "sqlite:///x.db", "--clone", "1"), "clone=1.0: must be 0 to less than 1"),
            (("--url", "postgresql://me:hushhush@127.0.0.1:1/x"), "cannot open postgresql+psycopg2://me:***@127.0.0.1:1/x"),
            (("--load", "nothing.json"), "cannot read nothing.json"),
            (("--url", "sqlite:///x.db", "--with", "no_such_module"), "--with no_such_module: importing no_such_module failed"),
            (("--url", "sqlite:///x.db", "--with", "one_number"), "--with one_number: the module has no list CONTESTANTS"),
        ],
    )
    def test_says_what_is_wrong(
        self, arguments: tuple[str, ...], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        (tmp_path / "one_number.py").write_text("CONTESTANTS = 5")
        status, output = self.run(*arguments)
        assert status != 0
        assert message in output
        assert "hushhush" not in output
        assert "Traceback" not in output

    def test_a_file_that_is_no_comparison(self, tmp_path: Path) -> None:
        (tmp_path / "other.json").write_text('{"a": 1}')
        status, output = self.run("--load", str(tmp_path / "other.json"))
        assert status != 0
        assert "is not a saved comparison" in output
