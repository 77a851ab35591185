"""The memory of Spark's Python workers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from benchmarks.figures import Line
from benchmarks.spark.lab import MEGABYTE, SIZE, Row, Spent, measured
from benchmarks.spark.reads import run_stream
from benchmarks.spark.setting import (
    AT_LEAST,
    EXACTLY,
    LARGE,
    LARGE_JOBS,
    Chart,
    Setting,
)


def memory(setting: Setting) -> Iterator[Chart]:
    """Measure the memory of Spark's Python workers with ordinary and large payloads, with new workers per row."""
    rows = []
    for title, size, jobs in (("100-byte", SIZE, setting.jobs), ("1 MB", LARGE, LARGE_JOBS)):
        make = setting.frame if size == SIZE else setting.large
        for way in (EXACTLY, AT_LEAST):
            work = partial(_write_these, setting, make, jobs, way)
            rows.append(_sized(f"{title} payloads, write, {way}", work))
        rows.append(_sized(f"{title} payloads, read", partial(_read_jobs, setting, make, jobs)))
        rows.append(_sized(f"{title} payloads, stream", partial(_follow, setting, make, jobs)))
    chart = Chart("memory", "peak memory of the largest Python worker", rows, "MB")
    for row in rows:
        setting.say(f"memory: {row.name}")
        setting.sessions.stop()
        setting.once(row, setting.jobs if row.name.startswith("100") else LARGE_JOBS, lambda row: None, lambda row, count: (0, 0))
    for title in ("100-byte", "1 MB"):
        mine = [row for row in rows if row.name.startswith(title) and row.runs]
        if mine:
            largest = max(mine, key=lambda row: row.workers)
            side = largest.side("MB")
            chart.lines.append(Line(f"the largest Python worker with {title} payloads", side, bound=300.0, at_most=True))
    yield chart


def _sized(name: str, work: Callable[[int], Spent]) -> Row:
    return Row(name, work, ours=True, figure=lambda run: run.spent.workers / MEGABYTE)


def _write_these(setting: Setting, make: Callable[[int], Any], number: int, way: str, jobs: int) -> Spent:
    setting.tables.empty()
    spent = setting.write(make(number), guarantee=way)
    return _all_there(setting, number, spent)


def _all_there(setting: Setting, number: int, spent: Spent) -> Spent:
    found, _ = setting.tables.count(distinct=False)
    if found != number:
        raise AssertionError(f"{found} of {number} jobs are in the table")
    return spent


def _put(setting: Setting, make: Callable[[int], Any], number: int) -> None:
    """Prepare jobs to read and new workers."""
    if setting.tables.count(distinct=False)[0] != number:
        setting.tables.empty()
        setting.write(make(number), guarantee=EXACTLY)
        setting.sessions.stop()


def _read_jobs(setting: Setting, make: Callable[[int], Any], number: int, jobs: int) -> Spent:
    _put(setting, make, number)
    source = setting.spark.read.format("queue_db").options(**setting.options()).load()
    with measured() as spent:
        source.write.format("noop").mode("append").save()
    return spent()


def _follow(setting: Setting, make: Callable[[int], Any], number: int, jobs: int) -> Spent:
    _put(setting, make, number)
    return run_stream(setting, Row("", lambda count: Spent(0.0, 0.0)), number, -(-number // 2))
