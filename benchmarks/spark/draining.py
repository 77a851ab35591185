"""Draining a queue in parallel tasks."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from benchmarks.spark import rivals
from benchmarks.spark.lab import QUEUE, SIZE, Row, Spent, alone, measured, new_folder
from benchmarks.spark.reads import files_of
from benchmarks.spark.setting import MANY, SLOTS, SMALL, Chart, Setting


def drain(setting: Setting) -> Iterator[Chart]:
    """Measure draining a queue in parallel tasks."""
    tables, jobs = setting.tables, setting.jobs
    solo = "one process"
    rows = [Row(f"drain, {number} tasks", partial(_drain, setting, number), ours=True) for number in (2, MANY)]
    rows.insert(1, Row(solo, lambda count: alone(rivals.drain, tables.url, tables.schema, str(new_folder(setting.folder, "out")))))
    what = f"{jobs:,} jobs of {SIZE} bytes worked off, {rivals.BATCH:,} in a claim, results in Parquet files"
    chart = Chart("drain", what, rows, rivals=(solo,))
    seen: list[Row] = []

    def before(row: Row) -> None:
        tables.fill(jobs if row in seen or row.name == solo else max(SMALL, jobs // 10))
        seen.append(row)

    ours = [row.name for row in rows if row.ours]
    setting.slots = MANY
    try:
        setting.turns(chart, jobs, before, partial(files_of, setting), ours)
    finally:
        setting.slots = SLOTS
    if setting.title == "PostgreSQL":
        chart.bar("drain in 2 tasks, against one process", ours[0], solo, 1.0)
        chart.bar(f"drain in {MANY} tasks, against one process", ours[1], solo, 1.25)
    yield chart


def _drain(setting: Setting, number: int, jobs: int) -> Spent:
    from queue_db.spark import drain_to

    out = new_folder(setting.folder, "out")
    settings = {} if setting.tables.schema is None else {"schema": setting.tables.schema}
    with measured() as spent:
        drain_to(
            setting.spark,
            setting.tables.url,
            QUEUE,
            rivals.look_at,
            rivals.RESULT,
            out,
            partitions=number,
            batch=rivals.BATCH,
            lease=600.0,
            database=settings,
        )
    return spent()
