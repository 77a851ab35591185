"""Reading jobs: by a stream that claims and completes, by plain reads, and by micro-batches with a backlog."""

from __future__ import annotations

import statistics
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.spark.lab import SIZE, Row, Run, Spent, measured, new_folder
from benchmarks.spark.setting import JDBC, SMALL, Chart, Setting, milliseconds, missing
from queue_db.spark.tables import spark_tables

# Measured batches of a stream with a backlog, and unmeasured ones before them.
_BATCHES = 10
_FIRST = 2

# Time limit for these batches, seconds.
_LIMIT = 600.0

# Columns that both ways of reading return.
_COLUMNS = ("id", "queue", "kind", "payload", "headers", "priority", "attempts", "created_at", "version")


def stream(setting: Setting) -> Iterator[Chart]:
    """Measure reading the table into Parquet: by a stream that claims and completes, and by plain reads."""
    tables, jobs = setting.tables, setting.jobs
    five, one = "stream, 5 batches", "stream, 1 batch"
    rows = [
        Row(five, lambda count: run_stream(setting, chart.row(five), count, -(-count // 5)), ours=True),
        Row(one, lambda count: run_stream(setting, chart.row(one), count, count), ours=True),
        Row("spark.read, data source", partial(_read, setting), ours=True),
    ]
    if tables.family != "sqlite":
        rows.append(Row("spark.read.jdbc, 8 partitions", partial(_read_jdbc, setting)))
    chart = Chart("stream", f"{jobs:,} jobs of {SIZE} bytes into Parquet, completion included", rows)
    chart.rivals = tuple(row.name for row in rows[2:])
    warm = max(SMALL, jobs // 10)

    def before(row: Row) -> None:
        wanted = jobs if row in warmed else warm
        if tables.count(distinct=False)[0] != wanted or tables.held():
            tables.fill(wanted)
        warmed.append(row)

    warmed: list[Row] = []
    setting.turns(chart, jobs, before, partial(files_of, setting), [row.name for row in rows])
    if tables.family != "sqlite":
        rival = rows[-1].name
        if (bound := {"PostgreSQL": 0.18, "MariaDB": 0.12}.get(setting.title)) is not None:
            chart.bar("stream into Parquet in 5 batches, against JDBC's read", five, rival, bound)
    yield chart


def run_stream(setting: Setting, row: Row, jobs: int, most: int) -> Spent:
    """Run until the queue is empty, including the completion of the last batch."""
    out, checkpoint = new_folder(setting.folder, "out"), new_folder(setting.folder, "checkpoint")
    with measured() as spent:
        query = _available(setting, out, checkpoint, most)
        again = 0
        while any(allocated > acked for allocated, acked in setting.tables.ask(_behind(setting))):
            # Spark commits the last batch when it asks for the next one.
            again += 1
            _available(setting, out, checkpoint, most)
    parts = [f"{name} {seconds:.2f} s" for name, seconds in _durations(query.recentProgress).items()]
    row.notes.append(", ".join(parts) + (f"; {again} more runs to complete the last batch" if again else ""))
    return spent()


def _behind(setting: Setting) -> str:
    return f"SELECT allocated, acked FROM {spark_tables(setting.tables.db.store.tables).streams.fullname}"  # noqa: S608


def _available(setting: Setting, out: Path, checkpoint: Path, most: int) -> Any:
    options = setting.options(stream="bench", maxJobsPerTrigger=str(most))
    source = setting.spark.readStream.format("queue_db").options(**options).load()
    sink = source.writeStream.format("parquet").option("path", str(out)).option("checkpointLocation", str(checkpoint))
    query = sink.trigger(availableNow=True).start()
    query.awaitTermination()
    return query


def _durations(progress: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return the seconds of each part of the batches, the longest first."""
    total: dict[str, float] = {}
    for one in progress:
        for name, took in one["durationMs"].items():
            total[name] = total.get(name, 0.0) + took / 1000
    return dict(sorted(total.items(), key=lambda item: -item[1]))


def _read(setting: Setting, jobs: int) -> Spent:
    out = new_folder(setting.folder, "out")
    with measured() as spent:
        setting.spark.read.format("queue_db").options(**setting.options()).load().write.mode("overwrite").parquet(str(out))
    return spent()


def _read_jdbc(setting: Setting, jobs: int) -> Spent:
    out = new_folder(setting.folder, "out")
    url, ways = setting.jdbc()
    low, high = setting.tables.bounds()
    properties = {**ways[JDBC], "fetchsize": "10000"}
    with measured() as spent:
        table = setting.spark.read.jdbc(
            url, setting.tables.jobs, column="id", lowerBound=low, upperBound=high + 1, numPartitions=8, properties=properties
        )
        table.select(*_COLUMNS).write.mode("overwrite").parquet(str(out))
    return spent()


def files_of(setting: Setting, row: Row, jobs: int, column: str = "id") -> tuple[int, int]:
    """Return the numbers of lost and of duplicate rows by a column of the files; jobs that a stream has left count as lost."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    files = [file for file in (setting.folder / "out").glob("*.parquet") if not file.name.startswith((".", "_"))]
    tables = [pq.ParquetFile(file).read(columns=[column]) for file in files]
    ids = pa.concat_tables(tables)[column] if tables else pa.chunked_array([], pa.int64())
    lost, twice = missing(jobs, len(ids), pc.count_distinct(ids).as_py())
    return lost + (setting.tables.rest() if column == "id" and "read" not in row.name else 0), twice


def depth(setting: Setting) -> Iterator[Chart]:
    """Measure a micro-batch with backlogs of three sizes."""
    jobs = setting.jobs
    batch = max(100, jobs // 100)
    depths = [batch, 10 * batch, 100 * batch]
    rows = [Row(f"{number:,} waiting", ours=True, figure=milliseconds) for number in depths]
    chart = Chart("depth", f"a micro-batch of {batch:,} jobs into nothing, and what waits behind it", rows, "ms", (rows[0].name,))
    parts: dict[str, list[Mapping[str, float]]] = {row.name: [] for row in rows}
    for turn in range(setting.repeat):
        for number, row in zip(depths, rows, strict=True):
            if row.failed is not None:
                continue
            setting.say(f"depth: {row.name}, {turn + 1} of {setting.repeat}")
            try:
                batches, lost = _batches(setting, number, batch)
            except Exception as error:  # noqa: BLE001 - reported
                setting.say(traceback.format_exc())
                row.failed = f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0]:.200}"
                continue
            row.runs += [Run(batch, Spent(one["triggerExecution"] / 1000, None), None, lost) for one in batches]
            parts[row.name] += batches
            setting.say(f"    {statistics.median(one['triggerExecution'] for one in batches):,.0f} ms")
    for row in rows:
        names = sorted({name for one in parts[row.name] for name in one})
        medians = {name: statistics.median(one.get(name, 0.0) for one in parts[row.name]) for name in names}
        listed = ", ".join(f"{name} {took:,.0f}" for name, took in sorted(medians.items(), key=lambda item: -item[1]))
        if listed:
            row.notes.append(f"ms: {listed}")
    for row in rows[1:]:
        chart.bar(f"a micro-batch with {row.name}, against {rows[0].name}", row.name, rows[0].name, 1.2, at_most=True)
    yield chart


def _batches(setting: Setting, waiting: int, batch: int) -> tuple[list[Mapping[str, float]], int]:
    """Return the durations of the measured batches and the number of missing jobs."""
    needed = _FIRST + _BATCHES
    total = waiting + needed * batch
    setting.tables.fill(total)
    options = setting.options(stream="bench", maxJobsPerTrigger=str(batch))
    checkpoint = new_folder(setting.folder, "checkpoint")
    source = setting.spark.readStream.format("queue_db").options(**options).load()
    query = source.writeStream.format("noop").option("checkpointLocation", str(checkpoint)).start()
    try:
        end = time.monotonic() + _LIMIT
        while len(done := [one for one in query.recentProgress if one["numInputRows"]]) < needed:
            if not query.isActive or time.monotonic() > end:
                raise RuntimeError(f"{len(done)} of {needed} micro-batches came: {query.exception()}")
            time.sleep(0.05)
    finally:
        query.stop()
    ((allocated, _),) = setting.tables.ask(_behind(setting))
    left = setting.tables.count(distinct=False)[0]
    return [one["durationMs"] for one in done[_FIRST:needed]], abs(total - left - allocated * batch)
