"""The speed bars at a tiny size: every benchmark gives figures, runs each job once and leaves nothing. No ratio is asserted."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import make_url

from benchmarks import __main__ as program
from benchmarks.bars import BARS, bars
from benchmarks.checkout import Checkout, CheckoutError
from benchmarks.claims import Rival, against
from benchmarks.depth import bloat, depth
from benchmarks.enqueue import enqueue, threads
from benchmarks.figures import Line, Side
from benchmarks.lab import Lab, Pools, lab_at
from benchmarks.memory import memory
from benchmarks.raw import overhead
from benchmarks.recording import Spot, Template, record
from benchmarks.sqlite_peers import BulkDelete
from benchmarks.steady import steady
from queue_db.compare.laboratory import contestants
from tests.compare.house import House
from tests.patience import PATIENCE

#: A benchmark is no part of the package: it calls verbs that tests/conformance proves.
measures = pytest.mark.rest("the program runs a bar below, and tests of figures and of arguments are there too")

#: Two consumers and a producer are the largest pool.
WORKERS = 2


@pytest.fixture(scope="module")
def pools() -> Iterator[Pools]:
    """Processes that all tests of this file share: starting them takes longer than what they do."""
    kept = Pools()
    yield kept
    kept.close()


@pytest.fixture
def lab(kind: str, fresh_url: str, pools: Pools) -> Iterator[Lab]:
    before = House(kind, fresh_url).places()
    with lab_at(fresh_url, repeat=1, scale=0.001, workers=WORKERS, limit=PATIENCE, pools=pools) as lab:
        yield lab
    # Other tests may run on the same server: only what is new since then, and still there, is ours.
    mine = lab.target.schema or make_url(lab.target.url).database
    assert Path(str(mine)).name not in House(kind, fresh_url).places()
    if kind == "sqlite":
        assert House(kind, fresh_url).places() == before


def assert_sound(lines: list[Line], number: int) -> None:
    assert len(lines) == number
    for line in lines:
        assert line.missing is None
        assert not line.failed
        for side in filter(None, (line.ours, line.theirs)):
            assert side.finished
            assert side.values
            assert all(math.isfinite(value) and value > 0 for value in side.values)
            assert not sum(side.errors.values())
            assert not side.duplicates
            assert side.misses is None or 0 <= side.misses < 1


@measures
def test_our_strategies_take_turns_with_rivals_and_one_that_cannot_run_is_reported(lab: Lab, kind: str):
    rival = "skip_locked" if kind != "sqlite" else "pessimistic"
    *lines, absent = against(lab, 1, [Rival(rival, 0.95), Rival("unknown", 4.0, peer=True)])
    assert_sound(lines, 3)
    assert [line.bound for line in lines] == [0.95, None, None]
    assert (absent.missing, absent.bound, absent.met) == ("unknown: no such row in benchmarks.peers", 4.0, None)


#: Run at the start of a process whose ``PYTHONPATH`` has it: every second claim returns its jobs twice, and a deadlock is counted.
TAMPERED = """
import itertools
from queue_db import Queue
genuine, calls = Queue.claim, itertools.count()
def claim(self, *arguments):
    jobs = genuine(self, *arguments)
    if self.name == "race" and jobs and next(calls) % 2 == 0:
        self.core.database.counters.deadlocks += 1
        self.core.database.counters.missed += 3
        return [*jobs, *jobs]
    return jobs
Queue.claim = claim
"""


def checkout_at(folder: Path) -> Path:
    """A checkout with the code of this one."""
    for name in ("queue_db", "migrations"):
        (folder / name).symlink_to(Path(__file__).parents[2] / name)
    return folder


@measures
def test_another_checkout_takes_turns_with_the_same_verbs_of_this_one(lab: Lab, tmp_path: Path):
    lab.old = checkout_at(tmp_path)
    lines = list(against(lab, 5, []))
    assert_sound(lines, 2)
    assert [line.what for line in lines] == ["adaptive ×5 against old ×5", "complete_and_claim ×5 against old exchange ×5"]


@measures
@pytest.mark.parametrize("kind", ["postgresql"], scope="session")
def test_errors_misses_and_repeated_jobs_of_another_checkout_are_counted(lab: Lab, tmp_path: Path):
    folder = checkout_at(tmp_path)
    (folder / "sitecustomize.py").write_text(TAMPERED)
    (side,) = lab.turns([(Checkout(folder=folder), 40)])
    assert side.finished
    assert side.duplicates == side.errors["deadlock"] >= 10
    assert side.misses is not None
    assert side.misses >= 1 - 40 / (40 + 3 * side.duplicates)
    assert side.client_cpu


@measures
@pytest.mark.parametrize("kind", ["sqlite"], scope="session")
def test_a_checkout_that_cannot_run_says_why(lab: Lab, tmp_path: Path):
    folder = checkout_at(tmp_path)
    (folder / "sitecustomize.py").write_text("import queue_db\ndel queue_db.Optimistic")
    with pytest.raises(CheckoutError, match="old: ImportError: cannot import name 'Optimistic'"):
        lab.turns([(Checkout(folder=folder), 4)])


@measures
@pytest.mark.parametrize("kind", ["sqlite"], scope="session")
def test_a_checkout_that_writes_more_than_a_pipe_holds_ends(lab: Lab, tmp_path: Path):
    folder = checkout_at(tmp_path)
    (folder / "sitecustomize.py").write_text("import sys, queue_db\nprint('x' * 2**20, file=sys.stderr)\ndel queue_db.Optimistic")
    with pytest.raises(CheckoutError, match="old: ImportError: cannot import name 'Optimistic'"):
        lab.turns([(Checkout(folder=folder), 4)])


@measures
def test_the_bare_loop_runs_every_job_once(lab: Lab):
    assert_sound(list(overhead(lab, [(1, 0.5), (5, 0.5)])), 2)


@measures
def test_what_the_bare_loop_sends_is_what_the_api_sends(lab: Lab, kind: str):
    recorded = record(replace(lab.target, workers=3), 5)
    assert len(recorded.claims) == 160
    # The head and a slice of the window; where one writer holds the database, too.
    assert len({claim.text for claim in recorded.claims}) == 2
    for claim in recorded.claims:
        assert Spot.QUEUE in claim.spots
        assert Spot.FLOOR in claim.spots
    assert set(recorded.completes) == {False, True}
    if kind in ("mysql", "mariadb"):
        assert set(recorded.take) == {False, True}
        assert recorded.read_back is not None
        assert Spot.TOKEN in recorded.read_back.values


def test_a_template_is_filled_for_any_number_of_jobs():
    template = Template("DELETE WHERE id IN (\0ids\0) AND (id, v) IN (\0pairs\0)", (7, Spot.IDS, Spot.PAIRS, Spot.TOKEN), "?")
    sent = template.filled({Spot.TOKEN: "t"}, [(1, 5), (2, 6)])
    assert sent == ("DELETE WHERE id IN (?, ?) AND (id, v) IN ((?, ?), (?, ?))", [7, 1, 2, 1, 5, 2, 6, "t"])


@measures
def test_steady_work_is_done_from_any_start(lab: Lab):
    assert_sound(list(steady(lab, jobs=60, consumers=2, batch=5)), 3)


@measures
def test_enqueue_many_and_the_fastest_way_leave_as_many_jobs(lab: Lab, kind: str):
    assert_sound(list(enqueue(lab, jobs=1200)), 3 if kind == "postgresql" else 1)


@measures
@pytest.mark.parametrize("kind", ["postgresql"], scope="session")
def test_jobs_of_many_threads_are_all_there_in_shared_and_own_inserts(lab: Lab):
    assert_sound(list(threads(lab)), 1)


@measures
def test_claims_at_two_depths(lab: Lab):
    lines = list(depth(lab, depths=(60, 300), batches=(1, 5), claims=3))
    assert_sound(lines[:2], 2)
    assert "only with --scale 1" in str(lines[2].missing)


@measures
def test_claims_under_an_old_snapshot(lab: Lab, kind: str):
    if kind != "sqlite":  # one writer, and a reader retains no dead rows in the index
        assert_sound(list(bloat(lab, churned=300, live=60, claims=3)), 2)


@measures
def test_the_memory_of_a_process_that_drains(lab: Lab):
    lines = list(memory(lab, jobs=150, worker_jobs=20))
    assert_sound(lines, 2)
    assert all(10 < line.figure < 1000 for line in lines if line.figure is not None)


@measures
def test_deleting_in_bulk_runs_every_job_once(lab: Lab, kind: str):
    (filler,) = contestants(["adaptive"], [5])
    limit = BulkDelete(like=filler)
    if kind == "sqlite":
        (side,) = lab.turns([(limit, 40)])
        assert_sound([Line("bulk", side)], 1)
    else:
        assert "SQLite" in str(limit.refused(lab.target))


# --- figures --------------------------------------------------------------------------------------------------------


def side(*values: float, **others: Any) -> Side:
    return Side("x", "jobs/s", list(values), **others)


@pytest.mark.parametrize(
    ("line", "met"),
    [
        (Line("faster", side(90.0, 110.0, 100.0), side(99.0, 1.0, 200.0), 1.0), True),
        (Line("slower", side(90.0), side(100.0), 0.95), False),
        (Line("short enough", side(1.1), side(1.0), 1.2, at_most=True), True),
        (Line("too long", side(1.3), side(1.0), 1.2, at_most=True), False),
        (Line("a figure", side(140.0), bound=150.0, at_most=True), True),
        (Line("runs jobs twice", side(200.0, duplicates=1), side(100.0), 1.0), False),
        (Line("deadlocks", side(200.0, errors={"deadlock": 1}), side(100.0), 1.0, without=("deadlock",)), False),
        (Line("deadlocks are allowed", side(200.0, errors={"deadlock": 1}), side(100.0), 1.0), True),
        (Line("not finished", side(200.0, finished=False), side(100.0), 1.0), False),
        (Line("never finished", side(), side(100.0), 1.0), False),
        (Line("no bar", side(90.0), side(100.0)), None),
        (Line("absent", bound=4.0, missing="install it"), None),
        (Line("broken", missing="failed", failed=True), False),
    ],
    ids=lambda value: value.what if isinstance(value, Line) else None,
)
def test_when_a_bar_is_met(line: Line, met: bool | None):
    assert line.met is met
    assert json.loads(json.dumps(line.record()))["met"] is met


def test_bars_are_chosen_by_name():
    assert [bar.name for bar in bars("enqueue, depth")] == ["enqueue", "depth"]
    assert bars(None) == list(BARS)
    with pytest.raises(ValueError, match="unknown bar .speed.; known: single"):
        bars("speed")


# --- the program ----------------------------------------------------------------------------------------------------


def test_the_help_teaches(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as left:
        program.main(["--help"])
    assert left.value.code == 0
    printed = capsys.readouterr().out
    assert all(bar.name in printed for bar in BARS)
    assert "--scale 0.01" in printed


def test_the_program_prints_a_table_and_writes_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    url, file = f"sqlite:///{tmp_path}/queue.db", tmp_path / "out.json"
    kept = signal.getsignal(signal.SIGTERM)
    try:
        left = program.main(["--url", url, "--only", "enqueue", "--scale", "0.002", "--repeat", "3", "--json", str(file)])
    finally:
        signal.signal(signal.SIGTERM, kept)
    printed = json.loads(file.read_text())
    (line,) = printed["databases"][0]["lines"]
    assert len(line["ours"]["values"]) == len(line["theirs"]["values"]) == 3
    assert left == (0 if line["met"] else 1)
    printed = capsys.readouterr()
    assert "enqueue_many" in printed.out
    assert "SQLite" in printed.out
    assert "3 of 3" in printed.err
    assert House("sqlite", url).places() == []


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (["--pgmq", "missing.sql"], "--pgmq: cannot read missing.sql: No such file"),
        (["--pgmq", "."], "--pgmq: cannot read .: Is a directory"),
        (["--pgmq", "binary.sql"], "--pgmq: cannot read binary.sql: it is not text"),
        (["--pgmq", "other.sql"], "--pgmq: other.sql is not the SQL of pgmq"),
        (["spans", "--pgque", "other.sql"], "--pgque: other.sql is not the SQL of pgque"),
        (["--old", "."], "--old: . is not a checkout of this project"),
        (["--json", "nowhere/out.json"], "--json nowhere/out.json: there is no folder nowhere"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_at_the_start(
    given: list[str], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    Path("binary.sql").write_bytes(b"\xff\x00")
    Path("other.sql").write_text("SELECT 1")
    with pytest.raises(SystemExit) as left:
        program.main(given)
    assert left.value.code == 2
    assert says in capsys.readouterr().err


def test_bars_of_other_databases_measure_nothing_and_it_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(program, "exit_on_sigterm", lambda: None)
    assert program.main(["--url", f"sqlite:///{tmp_path}/queue.db", "--only", "single,steady"]) == 2
    assert "nothing was measured: no database here has a bar of single, steady" in capsys.readouterr().err


def test_a_bar_that_fails_is_reported_and_not_met(pools: Pools, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    def broken(lab: Lab) -> Iterator[Line]:
        raise RuntimeError("no such thing\nat all")
        yield

    with lab_at(f"sqlite:///{tmp_path}/queue.db", repeat=1, scale=0.001, pools=pools) as lab:
        (line,) = program._lines(replace(BARS[0], measure=broken), lab, Pools())
    assert line.met is False
    assert line.missing == "failed: RuntimeError: no such thing"
    assert "RuntimeError" in capsys.readouterr().err


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_leaves_nothing_behind(number: int, tmp_path: Path):
    url = f"sqlite:///{tmp_path}/queue.db"
    command = [sys.executable, "-m", "benchmarks", "--url", url, "--only", "enqueue", "--repeat", "1000", "--scale", "0.01"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]) as run:
        try:
            until(lambda: bool(House("sqlite", url).places()), run)
            os.kill(run.pid, number)
            _, errors = run.communicate(timeout=PATIENCE)
        finally:
            run.kill()
    assert run.returncode == 130, errors
    assert "stopped" in errors
    assert House("sqlite", url).places() == []


def until(condition: Callable[[], bool], run: subprocess.Popen[str]) -> None:
    """Wait for it, and for no longer than the program lives."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert run.poll() is None
        assert time.monotonic() < end
        time.sleep(0.02)
