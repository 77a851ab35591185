"""Turns, and jobs that arrive at a fixed rate: what the laboratory measures of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import inspect

from queue_db.compare.arrivals import arriving_rows, offered_rate
from queue_db.compare.engines import autocommitting
from queue_db.compare.laboratory import compare, contestants
from queue_db.compare.plan import Plan, ProgressListener
from queue_db.compare.report.findings import findings
from queue_db.compare.report.wording import waiting
from queue_db.compare.scratch import scratch_target
from tests.compare.hand_made import arriving, bench, row

pytestmark = pytest.mark.rest("test_comparison.py has rows with arrivals")

#: Few jobs, threads: these tests are not about figures.
QUICK: dict[str, Any] = {"jobs": 8, "kind": "threads", "limit": 60.0, "batches": (1,)}


def plan(*strategies: str, **options: Any) -> Plan:
    return Plan(**(QUICK | {"strategies": strategies} | options))


class Turns(ProgressListener):
    """Notes the order of the runs."""

    def __init__(self) -> None:
        self.runs: list[str] = []
        self.announced = (0, 0)

    def bench_started(self, server: str, rows: int, runs: int) -> None:
        self.announced = (rows, runs)

    def run_started(self, name: str, batch: int, number: int, jobs: int) -> None:
        self.runs.append(f"{name} {number}")


def test_the_rows_take_turns(tmp_path: Path) -> None:
    listener = Turns()
    given = plan("adaptive", "DBO-0", workers=3, repeat=2)
    (bench,) = compare([f"sqlite:///{tmp_path}/queue.db"], given, listener=listener).benches
    assert listener.announced == (2, 4)
    assert listener.runs == ["adaptive 0", "DBO-sqlite-0 0", "adaptive 1", "DBO-sqlite-0 1"]
    names = ["adaptive", "DBO-sqlite-0"]
    assert [(one.name, one.workers, len(one.runs)) for one in bench.rows] == [(name, 3, 2) for name in names]
    assert [len(run.per_worker) for one in bench.rows for run in one.runs] == [3] * 4


def test_jobs_arrive_at_a_rate_and_each_is_executed_once(tmp_path: Path) -> None:
    given = plan("adaptive", "skip_locked", "DBO-0", workers=3, repeat=2, arrivals=0.3, rate=100.0)
    (bench,) = compare([f"sqlite:///{tmp_path}/queue.db"], given).benches
    assert [one.name for one in bench.arrivals] == ["adaptive", "skip_locked"]
    for one in bench.arrivals:
        assert (one.batch, one.consumers, one.arrivals, one.failed) == (1, 2, 100.0, None)
        assert (one.refused is not None) is (one.name == "skip_locked")
        assert [(turn.jobs, turn.left) for turn in one.turns] == ([] if one.refused else [(30, 30)] * 2)
        for turn in one.turns:
            assert turn.pickup is not None
            assert turn.pickup.count == 30
            assert 0 < turn.pickup.p50 <= turn.pickup.p99 <= turn.pickup.max < turn.seconds


def test_a_row_leaves_no_table_not_even_that_of_the_version(tmp_path: Path) -> None:
    """MariaDB refuses the migration after about 30 runs if that table stays."""
    (product,) = contestants(["adaptive"], [1])
    with scratch_target(f"sqlite:///{tmp_path}/queue.db", plan("adaptive")) as (target, _):
        product.set_up(target, 1)
        product.tear_down(target)
        with autocommitting(target.url) as engine:
            assert inspect(engine).get_table_names(schema=target.schema) == []


def test_without_a_rate_a_quarter_of_what_the_default_has_processed_arrives() -> None:
    rows = [row("adaptive", (840.0,)), row("adaptive", (9000.0,), batch=10), row("skip_locked", (400.0,))]
    assert [offered_rate(rows), offered_rate(rows[2:]), offered_rate([])] == [210.0, 100.0, None]
    assert [(one.name, one.batch) for one in arriving_rows(rows)] == [("adaptive", 1), ("skip_locked", 1)]


@pytest.mark.parametrize(("seconds", "left", "kept"), [(2.4, 1000, True), (2.6, 1000, False), (2.0, 999, False)])
def test_workers_that_end_long_after_the_last_arrival_have_not_kept_up(seconds: float, left: int, kept: bool) -> None:
    one = arriving("adaptive")
    late = replace(one, turns=[*one.turns, replace(one.turns[0], seconds=seconds, left=left)])
    assert late.kept_up is kept
    assert ("did not keep up" in waiting(late)) is not kept


def test_the_row_that_may_lose_jobs_is_not_named_first() -> None:
    rows = [arriving("at_most_once", p99=0.002), arriving("skip_locked", p99=0.004)]
    assert findings(bench(row("adaptive"), arrivals=rows))[0] == (
        "When 500 jobs/s arrive and 9 workers claim, 99 % of the jobs wait at most 4 ms with skip_locked (at_most_once 2)."
    )
