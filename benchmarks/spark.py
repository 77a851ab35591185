"""``python -m benchmarks spark``: the Spark data source and ``drain`` compared with Spark's JDBC and a plain Python process."""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import statistics
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from string import ascii_uppercase
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from benchmarks import spark_rivals as rivals
from benchmarks.figures import FEWEST_REPEATS, Line
from benchmarks.lab import Pools, lab_at
from benchmarks.report import WIDTH
from benchmarks.running import addresses, ended, exit_on_sigterm, say
from benchmarks.spark_lab import (
    MEGABYTE,
    QUEUE,
    SIZE,
    Row,
    Run,
    Sessions,
    Spent,
    Tables,
    alone,
    measured,
    new_folder,
    sessions,
)
from queue_db.compare.machine import machine
from queue_db.compare.measures import Spread
from queue_db.compare.results import Bench
from queue_db.errors import QueueDBError

#: Jobs at full size.
JOBS = 1_000_000

#: Task slots, and partitions of written data.
SLOTS = 2

#: Most tasks of a drain.
MANY = 8

#: Rows of a small write.
SMALL = 1000

#: Characters of a large payload, and number of such jobs: more than one Arrow batch.
LARGE = MEGABYTE
LARGE_JOBS = 160

# Measured batches of a stream with a backlog, and unmeasured ones before them.
_BATCHES = 10
_FIRST = 2

# Time limit for these batches, seconds.
_LIMIT = 600.0

_JDBC = "JDBC append, defaults"
_EXACTLY, _AT_LEAST = "exactly_once", "at_least_once"

# Settings that make JDBC fast; they are off by default.
_TUNING = ("batchsize", "fetchsize", "reWriteBatchedInserts", "rewriteBatchedStatements", "useBulkStmts", "useCursorFetch")

# Columns that both ways of reading return.
_COLUMNS = ("id", "queue", "kind", "payload", "headers", "priority", "attempts", "created_at", "version")

_EPILOG = """\
sections:
{sections}

how it measures:
  Everything in one run on one server: the rows of a section take turns (A B C A B C …), each into tables that were emptied (or
  filled anew) and analyzed before, which is not timed; on PostgreSQL after a CHECKPOINT. A ratio is that of the medians. Spark's
  start and one smaller run of each row come before. Spark has {slots} slots (the drain: {many}) and a bounded heap.
  After each run the rows are counted: lost are those that should be there and are not, twice those that are there more than once.
  CPU is that of all client processes (this one, the JVM, the Python workers) and of the server, if it is on this machine, in
  microseconds for each job; memory is the peak of the largest Python worker and of the JVM.
  Everything happens in a schema (a database, on MySQL and MariaDB; a file beside yours, on SQLite) of its own, which is gone
  afterwards, also after Ctrl-C.

what it needs:
  pip install "queue-db[all]", Java 17 or later (JAVA_HOME, or it is looked for), and the JDBC drivers, which are unpacked from
  Debian's or Ubuntu's packages the first time. A quiet machine: at full size ten minutes for PostgreSQL, half an hour for MariaDB.
  --jobs 20000 shows whether everything works; its ratios mean little, since what a job of Spark costs is then most of it.

examples:
  python -m benchmarks spark --url postgresql://me@localhost/test
  python -m benchmarks spark --url mariadb://me@localhost/test --jobs 200000 --only enqueue,stream --json mariadb.json
"""


# --- one database ---------------------------------------------------------------------------------------------------


@dataclass
class Chart:
    """The result of a section: rows, the rows to compare with, and the bars."""

    name: str
    title: str
    rows: list[Row]
    unit: str = "jobs/s"
    rivals: tuple[str, ...] = ()
    lines: list[Line] = field(default_factory=list)

    def row(self, name: str) -> Row:
        """Return the row of this name."""
        return next(row for row in self.rows if row.name == name)

    def bar(self, what: str, ours: str, theirs: str, bound: float, *, at_most: bool = False) -> None:
        """Add a bar: the ratio of two rows."""
        mine, other = self.row(ours), self.row(theirs)
        reason = next((f"{row.name}: {row.missing or row.failed}" for row in (mine, other) if row.missing or row.failed), None)
        if reason is not None:
            self.lines.append(Line(what, bound=bound, at_most=at_most, missing=reason, failed=bool(mine.failed or other.failed)))
            return
        sides = mine.side(self.unit), other.side(self.unit)
        self.lines.append(Line(what, *sides, bound, at_most=at_most, without=("lost", "error")))

    def record(self) -> dict[str, Any]:
        """Return the chart for JSON."""
        return {
            "section": self.name,
            "unit": self.unit,
            "rows": [
                {
                    "name": row.name,
                    "missing": row.missing,
                    "failed": row.failed,
                    "values": [row.figure(run) for run in row.runs],
                    "seconds": [run.spent.seconds for run in row.runs],
                    "client_cpu_s": [run.spent.cpu for run in row.runs],
                    "server_cpu_s": [run.server_cpu for run in row.runs],
                    "load": [run.load for run in row.runs],
                    "worker_peak_mb": round(row.workers / MEGABYTE),
                    "java_peak_mb": round(row.java / MEGABYTE),
                    "lost": sum(run.lost for run in row.runs),
                    "twice": sum(run.duplicates for run in row.runs),
                    "notes": row.notes,
                }
                for row in self.rows
            ],
            "bars": [line.record() for line in self.lines],
        }


@dataclass
class Setting:
    """One database during the measurement."""

    bench: Bench
    tables: Tables
    sessions: Sessions
    jobs: int
    repeat: int
    say: Callable[[str], None]
    slots: int = SLOTS

    @property
    def spark(self) -> Any:
        """The Spark session."""
        return self.sessions(self.slots)

    @property
    def folder(self) -> Path:
        """Folder for the output of runs."""
        return self.sessions.folder

    @property
    def title(self) -> str:
        """Name of the database."""
        return self.bench.title

    def options(self, **more: str) -> dict[str, str]:
        """Return the options of the data source."""
        given = {"url": self.tables.url, "queue": QUEUE, **more}
        return given if self.tables.schema is None else {**given, "tableSchema": self.tables.schema}

    def turns(
        self,
        chart: Chart,
        jobs: int,
        before: Callable[[Row], None],
        check: Callable[[Row, int], tuple[int, int]],
        warm: Sequence[str] = (),
    ) -> Chart:
        """Run the rows in turns; rows named in ``warm`` first run once with fewer jobs."""
        for row in chart.rows:
            if row.name in warm and row.missing is None:
                self.say(f"{chart.name}: {row.name}, to warm up")
                self.once(row, max(SMALL, jobs // 10), before, check)
                row.runs.clear()
                row.notes.clear()
        for turn in range(self.repeat):
            for row in chart.rows:
                if row.missing is None and row.failed is None:
                    self.say(f"{chart.name}: {row.name}, {jobs:,} jobs, {turn + 1} of {self.repeat}")
                    self.once(row, jobs, before, check)
        return chart

    def once(self, row: Row, jobs: int, before: Callable[[Row], None], check: Callable[[Row, int], tuple[int, int]]) -> None:
        """Run once; after an error, report it and continue with the other rows."""
        try:
            before(row)
            with self.tables.server() as used:
                assert row.work is not None  # noqa: S101 - its section would measure it otherwise
                spent = row.work(jobs)
                server = used()
            lost, twice = check(row, jobs)
        except Exception as error:  # noqa: BLE001 - reported; the bars of the row are not met
            self.say(traceback.format_exc())
            row.failed = f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0]:.200}"
            return
        row.runs.append(Run(jobs, spent, server, lost, twice))
        self.say(f"    {row.figure(row.runs[-1]):,.0f} in {spent.seconds:.2f} s" + (f", {lost} lost" if lost else ""))

    # --- ways of JDBC -----------------------------------------------------------------------------------------------

    def jdbc(self) -> tuple[str, dict[str, dict[str, str]]]:
        """Return the JDBC URL, and the properties of each way to append: Spark's default and the fast ones."""
        from queue_db.spark.jdbc import jdbc_options

        found = jdbc_options(self.tables.url)
        plain = {name: value for name, value in found.properties.items() if name not in _TUNING}
        ways = {_JDBC: plain}
        if self.tables.family == "postgresql":
            ways["JDBC append, reWriteBatchedInserts"] = {**plain, "batchsize": "10000", "reWriteBatchedInserts": "true"}
        else:
            if self.title == "MariaDB":  # unknown to MySQL
                ways["JDBC append, useBulkStmts"] = {**plain, "batchsize": "10000", "useBulkStmts": "true"}
            ways["JDBC append, rewriteBatchedStatements"] = {**plain, "batchsize": "10000", "rewriteBatchedStatements": "true"}
        return found.url, ways

    def tuned(self) -> str:
        """Return the name of the fast way."""
        return list(self.jdbc()[1])[1]

    # --- frames and work --------------------------------------------------------------------------------------------

    def frame(self, jobs: int, partitions: int = SLOTS) -> Any:
        """Return a DataFrame of jobs, generated by the JVM."""
        value = f"""concat(rpad(concat('{{"n":', id, ',"text":"'), {SIZE - 2}, 'x'), '"}}') AS payload"""
        return self.spark.range(0, jobs, 1, partitions).selectExpr(value)

    def large(self, jobs: int) -> Any:
        """Return a DataFrame of jobs with large payloads."""
        value = f"""concat('"', repeat(md5(cast(id AS string)), {LARGE // 32 - 1}), '"') AS payload"""
        return self.spark.range(0, jobs, 1, SLOTS).selectExpr(value)

    def write(self, frame: Any, **options: str) -> Spent:
        """Append with the data source."""
        with measured() as spent:
            frame.write.format("queue_db").options(**self.options(**options)).mode("append").save()
        return spent()

    def append(self, frame: Any, url: str, properties: Mapping[str, str]) -> Spent:
        """Append with Spark's JDBC."""
        from pyspark.sql import functions as f

        rows = frame.select(f.lit(QUEUE).alias("queue"), "payload")
        with measured() as spent:
            rows.write.jdbc(url, self.tables.jobs, mode="append", properties=dict(properties))
        return spent()


# --- the sections ---------------------------------------------------------------------------------------------------


def enqueue(setting: Setting) -> Iterator[Chart]:
    """Measure writing a DataFrame into the empty jobs table."""
    tables, jobs = setting.tables, setting.jobs
    rows = [Row(f"data source, {way}", partial(_write, setting, way), ours=True) for way in (_EXACTLY, _AT_LEAST)]
    solo = _solo(setting)
    rows += solo
    if tables.family != "sqlite":
        url, ways = setting.jdbc()
        rows += [Row(name, partial(_append, setting, url, properties)) for name, properties in ways.items()]
    spark = [row.name for row in rows if row not in solo]
    chart = Chart("enqueue", f"a DataFrame of {jobs:,} rows of {SIZE} bytes into the jobs table", rows)
    chart.rivals = tuple(row.name for row in rows if not row.ours)
    setting.turns(chart, jobs, lambda row: tables.empty(), lambda row, count: _missing(count, *tables.count()), spark)
    ours = {way: f"data source, {way}" for way in (_EXACTLY, _AT_LEAST)}
    if setting.title == "PostgreSQL":
        chart.bar("exactly once, against one process's COPY", ours[_EXACTLY], solo[0].name, 0.65)
        chart.bar("exactly once, against JDBC at its defaults", ours[_EXACTLY], _JDBC, 1.2)
        chart.bar("at least once, against JDBC with reWriteBatchedInserts", ours[_AT_LEAST], setting.tuned(), 1.1)
    elif setting.title == "MariaDB":
        chart.bar("exactly once, against JDBC at its defaults", ours[_EXACTLY], _JDBC, 2.5)
        chart.bar("at least once, against JDBC with useBulkStmts", ours[_AT_LEAST], setting.tuned(), 0.85)
    yield chart


def _write(setting: Setting, way: str, jobs: int) -> Spent:
    return setting.write(setting.frame(jobs), guarantee=way)


def _append(setting: Setting, url: str, properties: Mapping[str, str], jobs: int) -> Spent:
    return setting.append(setting.frame(jobs), url, properties)


def _solo(setting: Setting) -> list[Row]:
    """Return the rows of a single Python process."""
    tables = setting.tables
    if tables.family == "postgresql":
        return [Row("one process, COPY", partial(alone, rivals.copy, tables.url, tables.jobs))]
    many = Row("one process, executemany", partial(alone, rivals.insert_many, tables.url, tables.jobs))
    if tables.family == "sqlite":
        return [many]
    load = Row("one process, LOAD DATA LOCAL", partial(_load, setting))
    ((allowed,),) = tables.ask("SELECT @@local_infile")
    if not allowed:
        load.missing = "the server does not allow it (local_infile)"
    return [many, load]


def _load(setting: Setting, jobs: int) -> Spent:
    return alone(rivals.load_data, setting.tables.url, setting.tables.jobs, jobs, str(setting.folder))


def _missing(expected: int, found: int, different: int) -> tuple[int, int]:
    """Return the numbers of lost and of duplicate jobs."""
    return max(0, expected - different), found - different


def stream(setting: Setting) -> Iterator[Chart]:
    """Measure reading the table into Parquet: by a stream that claims and completes, and by plain reads."""
    tables, jobs = setting.tables, setting.jobs
    five, one = "stream, 5 batches", "stream, 1 batch"
    rows = [
        Row(five, lambda count: _stream(setting, chart.row(five), count, -(-count // 5)), ours=True),
        Row(one, lambda count: _stream(setting, chart.row(one), count, count), ours=True),
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
    setting.turns(chart, jobs, before, partial(_files, setting), [row.name for row in rows])
    if tables.family != "sqlite":
        rival = rows[-1].name
        if (bound := {"PostgreSQL": 0.18, "MariaDB": 0.06}.get(setting.title)) is not None:
            chart.bar("stream into Parquet in 5 batches, against JDBC's read", five, rival, bound)
    yield chart


def _stream(setting: Setting, row: Row, jobs: int, most: int) -> Spent:
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
    return f"SELECT allocated, acked FROM {setting.tables.db.store.tables.streams.fullname}"  # noqa: S608


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


def feed(setting: Setting) -> Iterator[Chart]:
    """Measure reading a feed into Parquet: by the source, in batch and as a stream, and by JDBC."""
    tables, messages = setting.tables, setting.jobs
    batch, rival = "spark.read of a feed", "spark.read.jdbc of its messages, 8 partitions"
    memory = "spark.read of a Python source, from memory"
    rows = [
        Row(memory, partial(_read_nothing, setting)),
        Row(batch, partial(_read_feed, setting), ours=True),
        Row("stream of a feed, 5 batches", lambda count: _stream_feed(setting, -(-count // 5)), ours=True),
    ]
    if tables.family != "sqlite":
        rows.append(Row(rival, partial(_read_messages, setting)))
    chart = Chart("feed", f"{messages:,} messages of {SIZE} bytes into Parquet", rows, "messages/s")
    chart.rivals = tuple(row.name for row in rows if not row.ours)
    tables.fill_feed(messages)
    # A read takes nothing away: all turns read the same rows, and the first turn of each is to warm up.
    for row in rows:
        setting.once(row, messages, lambda row: None, partial(_files, setting, column="seq"))
        row.runs.clear()
    setting.turns(chart, messages, lambda row: None, partial(_files, setting, column="seq"))
    chart.bar("reading a feed, against a Python source that has the rows in memory", batch, memory, 0.75)
    if tables.family != "sqlite":
        chart.bar("reading a feed, against JDBC's read of the same rows", batch, rival, 0.6)
    yield chart


def _feed_options(setting: Setting, **more: str) -> dict[str, str]:
    options = setting.options(feed=QUEUE, **more)
    return {name: value for name, value in options.items() if name != "queue"}


def _read_feed(setting: Setting, messages: int) -> Spent:
    out = new_folder(setting.folder, "out")
    with measured() as spent:
        setting.spark.read.format("queue_db").options(**_feed_options(setting)).load().write.mode("overwrite").parquet(str(out))
    return spent()


def _read_nothing(setting: Setting, rows: int) -> Spent:
    out = new_folder(setting.folder, "out")
    with measured() as spent:
        setting.spark.read.format("nothing").option("rows", str(rows)).load().write.mode("overwrite").parquet(str(out))
    return spent()


def _stream_feed(setting: Setting, most: int) -> Spent:
    out, checkpoint = new_folder(setting.folder, "out"), new_folder(setting.folder, "checkpoint")
    options = _feed_options(setting, maxMessagesPerTrigger=str(most))
    with measured() as spent:
        source = setting.spark.readStream.format("queue_db").options(**options).load()
        sink = source.writeStream.format("parquet").option("path", str(out)).option("checkpointLocation", str(checkpoint))
        sink.trigger(availableNow=True).start().awaitTermination()
    return spent()


def _read_messages(setting: Setting, messages: int) -> Spent:
    out = new_folder(setting.folder, "out")
    url, ways = setting.jdbc()
    properties = {**ways[_JDBC], "fetchsize": "10000"}
    with measured() as spent:
        setting.spark.read.jdbc(
            url,
            setting.tables.messages,
            column="seq",
            lowerBound=1,
            upperBound=messages + 1,
            numPartitions=8,
            properties=properties,
        ).write.mode("overwrite").parquet(str(out))
    return spent()


def _read_jdbc(setting: Setting, jobs: int) -> Spent:
    out = new_folder(setting.folder, "out")
    url, ways = setting.jdbc()
    low, high = setting.tables.bounds()
    properties = {**ways[_JDBC], "fetchsize": "10000"}
    with measured() as spent:
        table = setting.spark.read.jdbc(
            url, setting.tables.jobs, column="id", lowerBound=low, upperBound=high + 1, numPartitions=8, properties=properties
        )
        table.select(*_COLUMNS).write.mode("overwrite").parquet(str(out))
    return spent()


def _files(setting: Setting, row: Row, jobs: int, column: str = "id") -> tuple[int, int]:
    """Return the numbers of lost and of duplicate rows by a column of the files; jobs that a stream has left count as lost."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    files = [file for file in (setting.folder / "out").glob("*.parquet") if not file.name.startswith((".", "_"))]
    tables = [pq.ParquetFile(file).read(columns=[column]) for file in files]
    ids = pa.concat_tables(tables)[column] if tables else pa.chunked_array([], pa.int64())
    lost, twice = _missing(jobs, len(ids), pc.count_distinct(ids).as_py())
    return lost + (setting.tables.rest() if column == "id" and "read" not in row.name else 0), twice


def depth(setting: Setting) -> Iterator[Chart]:
    """Measure a micro-batch with backlogs of three sizes."""
    jobs = setting.jobs
    batch = max(100, jobs // 100)
    depths = [batch, 10 * batch, 100 * batch]
    rows = [Row(f"{number:,} waiting", ours=True, figure=_milliseconds) for number in depths]
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
        setting.turns(chart, jobs, before, partial(_files, setting), ours)
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


def small(setting: Setting) -> Iterator[Chart]:
    """Measure small writes."""
    tables = setting.tables
    rows = [Row(f"data source, {way}", partial(_write, setting, way), ours=True) for way in (_EXACTLY, _AT_LEAST)]
    if tables.family != "sqlite":
        url, ways = setting.jdbc()
        rows += [Row(name, partial(_append, setting, url, ways[name])) for name in (_JDBC, setting.tuned())]
    # Spark's own share: for any sink, and for any Python sink.
    idle = [
        Row(title, partial(_noop, setting, form)) for title, form in (("Python sink, nothing", "nothing"), ("noop sink", "noop"))
    ]
    rows += idle
    for row in rows:
        row.figure = _milliseconds
    others = tuple(row.name for row in rows if not row.ours)
    chart = Chart("small", f"{SMALL:,} rows of {SIZE} bytes in one write", rows, "ms", others)
    expected = 0

    def before(row: Row) -> None:
        nonlocal expected
        if expected > 100 * SMALL:
            tables.empty()
            expected = 0

    def check(row: Row, jobs: int) -> tuple[int, int]:
        nonlocal expected
        expected += 0 if row in idle else jobs
        found, _ = tables.count(distinct=False)
        wrong = found - expected
        expected = found
        return max(0, -wrong), max(0, wrong)

    tables.empty()
    repeat, setting.repeat = setting.repeat, 10 * setting.repeat
    try:
        setting.turns(chart, SMALL, before, check, [row.name for row in rows])
    finally:
        setting.repeat = repeat
    if tables.family != "sqlite":
        chart.bar("a small write, exactly once, against JDBC at its defaults: time", rows[0].name, _JDBC, 1.3, at_most=True)
    yield chart


def _milliseconds(run: Run) -> float:
    return run.spent.seconds * 1000


def _noop(setting: Setting, form: str, jobs: int) -> Spent:
    frame = setting.frame(jobs)
    with measured() as spent:
        frame.write.format(form).mode("append").save()
    return spent()


def memory(setting: Setting) -> Iterator[Chart]:
    """Measure the memory of Spark's Python workers with ordinary and large payloads, with new workers per row."""
    rows = []
    for title, size, jobs in (("100-byte", SIZE, setting.jobs), ("1 MB", LARGE, LARGE_JOBS)):
        make = setting.frame if size == SIZE else setting.large
        for way in (_EXACTLY, _AT_LEAST):
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
        setting.write(make(number), guarantee=_EXACTLY)
        setting.sessions.stop()


def _read_jobs(setting: Setting, make: Callable[[int], Any], number: int, jobs: int) -> Spent:
    _put(setting, make, number)
    source = setting.spark.read.format("queue_db").options(**setting.options()).load()
    with measured() as spent:
        source.write.format("noop").mode("append").save()
    return spent()


def _follow(setting: Setting, make: Callable[[int], Any], number: int, jobs: int) -> Spent:
    _put(setting, make, number)
    return _stream(setting, Row("", lambda count: Spent(0.0, 0.0)), number, -(-number // 2))


@dataclass(frozen=True)
class Section:
    """A part of the benchmark, selectable by name."""

    name: str
    asks: str
    measure: Callable[[Setting], Iterator[Chart]]


SECTIONS = (
    Section(
        "enqueue", "PostgreSQL: exactly once ≥ 0.65 × COPY, ≥ 1.2 × JDBC; MariaDB: ≥ 2.5 × JDBC; at least once: tuned JDBC", enqueue
    ),
    Section("stream", "into Parquet, completed: ≥ 0.18 × JDBC's read on PostgreSQL, ≥ 0.06 × on MariaDB", stream),
    Section("feed", "a feed into Parquet: ≥ 0.6 × JDBC's read of the same messages", feed),
    Section("depth", "a micro-batch with 100 times the backlog: ≤ 1.2 × the time", depth),
    Section("drain", "PostgreSQL: 2 tasks ≥ 1 × one Python process, 8 tasks ≥ 1.25 ×", drain),
    Section("small", f"{SMALL:,} rows: ≤ 1.3 × the time of JDBC", small),
    Section("memory", "the largest Python worker, with payloads of 100 bytes and of 1 MB: ≤ 300 MB", memory),
)


# --- the program ----------------------------------------------------------------------------------------------------


@dataclass
class Sheet:
    """Return the charts of one database."""

    bench: Bench
    charts: list[Chart] = field(default_factory=list)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; return 0 if every measured bar is met, otherwise 1."""
    asked = _parse(arguments)
    exit_on_sigterm()
    sheets: list[Sheet] = []
    facts = machine() | {name: importlib.metadata.version(name) for name in ("pyspark", "pyarrow")}
    try:
        with sessions(asked.heap) as spark, addresses(asked.url) as urls:
            for url in urls:
                _measure(url, asked, spark, sheets)
    except (KeyboardInterrupt, QueueDBError) as error:
        return ended(error)
    finally:
        _print(sheets, facts, asked)
    lines = [line for sheet in sheets for chart in sheet.charts for line in chart.lines]
    return 1 if any(line.met is False for line in lines) else 0


def _measure(url: str, asked: argparse.Namespace, spark: Sessions, sheets: list[Sheet]) -> None:
    with (
        lab_at(url, repeat=asked.repeat, scale=asked.jobs / JOBS, pools=Pools(), say=say) as lab,
        lab.tables("jobs") as (db,),
    ):
        sheet = Sheet(lab.bench)
        sheets.append(sheet)
        setting = Setting(lab.bench, Tables(db, lab.target.url, lab.target.schema), spark, asked.jobs, asked.repeat, say)
        try:
            for section in asked.only:
                say(f"== {lab.bench.server}: {section.name}: {section.asks}")
                sheet.charts += section.measure(setting)
        finally:
            spark.stop()  # before the tables are dropped


def _print(sheets: Sequence[Sheet], facts: Mapping[str, str], asked: argparse.Namespace) -> None:
    if not any(sheet.charts for sheet in sheets):
        return
    console = Console()
    if not console.is_terminal:
        console = Console(width=WIDTH)
    for sheet in sheets:
        _show(sheet, facts, asked, console)
    if asked.json is not None:
        record = {
            "machine": dict(facts),
            "jobs": asked.jobs,
            "repeat": asked.repeat,
            "databases": [
                {"server": sheet.bench.server, "facts": sheet.bench.facts, "sections": [chart.record() for chart in sheet.charts]}
                for sheet in sheets
            ],
        }
        asked.json.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n")


def _show(sheet: Sheet, facts: Mapping[str, str], asked: argparse.Namespace, console: Console) -> None:
    console.rule(sheet.bench.server)
    for some in (facts, sheet.bench.facts):
        console.print(", ".join(f"{name} {value}" for name, value in some.items()), highlight=False, markup=False)
    slots = f"Spark with {SLOTS} slots (drain: {MANY}) and {asked.heap} of heap"
    console.print(f"{asked.repeat} repeats of each row, taking turns; median (min–max); {slots}", highlight=False)
    loads = sorted(run.load for chart in sheet.charts for row in chart.rows for run in row.runs)
    if loads:
        console.print(f"load of the machine after each run: {loads[0]:.1f}–{loads[-1]:.1f}", highlight=False)
    if asked.repeat < FEWEST_REPEATS:
        console.print(f"fewer than {FEWEST_REPEATS} repeats: a first impression, not a measurement", style="yellow")
    for chart in sheet.charts:
        console.print(_table(chart))
        for row in chart.rows:
            if row.notes:
                console.print(f"  {row.name}: {row.notes[-1]}", highlight=False, markup=False)
    console.print(_bars(sheet))


def _table(chart: Chart) -> Table:
    table = Table(title=f"{chart.name}: {chart.title}", title_justify="left", show_lines=False)
    table.add_column("row", overflow="fold", min_width=30)
    table.add_column(chart.unit, justify="right", no_wrap=True)
    medians: dict[str, float] = {}
    for row in chart.rows:
        spread = Spread.of([row.figure(run) for run in row.runs])
        if spread is not None:
            medians[row.name] = spread.median
    letters = dict(zip(chart.rivals, ascii_uppercase, strict=False))
    for letter in letters.values():
        table.add_column(f"× {letter}", justify="right", no_wrap=True)
    table.add_column("CPU µs/job,\nclient + server", justify="right", no_wrap=True)
    table.add_column("peak MB,\nPython + JVM", justify="right", no_wrap=True)
    table.add_column("lost;\ntwice", justify="right", no_wrap=True)
    for row in chart.rows:
        title = f"{letters[row.name]}  {row.name}" if row.name in letters else row.name
        if row.missing or row.failed:
            table.add_row(title, Text(row.missing or f"failed: {row.failed}", style="yellow" if row.missing else "bold red"))
            continue
        spread = Spread.of([row.figure(run) for run in row.runs])
        if spread is None:
            table.add_row(title, Text("not measured", style="yellow"))
            continue
        ratios = [f"{medians[row.name] / medians[name]:.2f}" if medians.get(name) else "" for name in chart.rivals]
        wrong = sum(run.lost for run in row.runs), sum(run.duplicates for run in row.runs)
        table.add_row(
            Text(title, style="bold" if row.ours else ""),
            f"{spread.median:,.0f} ({spread.min:,.0f}–{spread.max:,.0f})",
            *ratios,
            _processor(row),
            f"{row.workers / MEGABYTE:,.0f} + {row.java / MEGABYTE:,.0f}" if row.workers else "",
            Text("; ".join(map(str, wrong)), style="bold red" if any(wrong) else ""),
        )
    return table


def _processor(row: Row) -> str:
    return " + ".join(f"{spent:,.1f}" for spent in row.processor() if spent is not None)


def _bars(sheet: Sheet) -> Table:
    table = Table(title="bars", title_justify="left")
    table.add_column("section")
    table.add_column("what", overflow="fold")
    for name in ("asked", "seen", "met"):
        table.add_column(name, justify="right", overflow="fold")
    for chart in sheet.charts:
        for line in chart.lines:
            asked = "" if line.bound is None else f"{'≤' if line.at_most else '≥'} {line.bound:g}"
            seen = line.missing or ("" if line.figure is None else f"{line.figure:.2f}" if line.theirs else f"{line.figure:,.0f}")
            met = {True: Text("yes", style="green"), False: Text("NO", style="bold red"), None: Text("not here", style="yellow")}
            table.add_row(chart.name, line.what, asked, seen, met[line.met])
    return table


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    known = {section.name: section for section in SECTIONS}
    width = max(map(len, known))
    listed = "\n".join(f"  {section.name:{width}}  {section.asks}" for section in SECTIONS)
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks spark",
        description="Measure the Spark data source and drain against Spark's own JDBC and one plain Python process.",
        epilog=_EPILOG.format(sections=listed, slots=SLOTS, many=MANY),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--url",
        action="append",
        metavar="URL",
        help="database to measure on, as SQLAlchemy writes it; more than once for several. Its user must be allowed to create a "
        "schema. Without it: the private PostgreSQL and MariaDB that the test suite starts, and SQLite in a temporary folder",
    )
    parser.add_argument(
        "--jobs", type=_whole(SMALL, 100_000_000), default=JOBS, metavar="N", help=f"default {JOBS:,}; quick: 20000"
    )
    parser.add_argument("--repeat", type=_whole(1, 1000), default=3, metavar="N", help="runs of each row (default 3)")
    parser.add_argument("--only", metavar="NAME,…", help="measure these sections only")
    parser.add_argument("--heap", default="2g", metavar="SIZE", help="of Spark's JVM (default 2g)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything that was measured here too")
    asked = parser.parse_args(arguments)
    names = [name.strip() for name in asked.only.split(",") if name.strip()] if asked.only else list(known)
    if unknown := [name for name in names if name not in known]:
        parser.error(f"unknown section {', '.join(unknown)}; known: {', '.join(known)}")
    asked.only = [known[name] for name in names]
    return asked


def _whole(least: int, most: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        number = int(text.replace("_", ""))
        if not least <= number <= most:
            raise argparse.ArgumentTypeError(f"{text}: must be {least:,} to {most:,}")
        return number

    return parse


if __name__ == "__main__":
    sys.exit(main())
