"""One database during the measurement, and the chart of a section."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.figures import Line
from benchmarks.spark.lab import MEGABYTE, QUEUE, SIZE, Row, Run, Sessions, Spent, Tables, measured
from queue_db.compare.results import Bench

#: Task slots, and partitions of written data.
SLOTS = 2

#: Most tasks of a drain.
MANY = 8

#: Rows of a small write.
SMALL = 1000

#: Characters of a large payload, and number of such jobs: more than one Arrow batch.
LARGE = MEGABYTE
LARGE_JOBS = 160

#: The row of JDBC as Spark has it, and the guarantees of the data source.
JDBC = "JDBC append, defaults"
EXACTLY, AT_LEAST = "exactly_once", "at_least_once"

# Settings that make JDBC fast; they are off by default.
_TUNING = ("batchsize", "fetchsize", "reWriteBatchedInserts", "rewriteBatchedStatements", "useBulkStmts", "useCursorFetch")


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
        ways = {JDBC: plain}
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


def missing(expected: int, found: int, different: int) -> tuple[int, int]:
    """Return the numbers of lost and of duplicate jobs."""
    return max(0, expected - different), found - different


def milliseconds(run: Run) -> float:
    """Return how long the run took."""
    return run.spent.seconds * 1000
