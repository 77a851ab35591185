"""The sections, the options, and the run."""

from __future__ import annotations

import argparse
import importlib.metadata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.lab import Pools, lab_at
from benchmarks.running import addresses, ended, exit_on_sigterm, say
from benchmarks.spark.draining import drain
from benchmarks.spark.feeds import feed
from benchmarks.spark.lab import Sessions, Tables, sessions
from benchmarks.spark.memory import memory
from benchmarks.spark.reads import depth, stream
from benchmarks.spark.report import Sheet, print_sheets
from benchmarks.spark.setting import MANY, SLOTS, SMALL, Chart, Setting
from benchmarks.spark.writes import enqueue, small
from queue_db.compare.machine import machine
from queue_db.errors import QueueDBError

#: Jobs at full size.
JOBS = 1_000_000

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


@dataclass(frozen=True)
class Section:
    """A part of the benchmark, selectable by name."""

    name: str
    asks: str
    measure: Callable[[Setting], Iterator[Chart]]


SECTIONS = (
    Section(
        "enqueue", "PostgreSQL: exactly once ≥ 0.65 × COPY, ≥ 1.3 × JDBC; MariaDB: ≥ 2.5 × JDBC; at least once: tuned JDBC", enqueue
    ),
    Section("stream", "into Parquet, completed: ≥ 0.18 × JDBC's read on PostgreSQL, ≥ 0.12 × on MariaDB", stream),
    Section("feed", "a feed into Parquet: ≥ 0.6 × JDBC's read of the same messages", feed),
    Section("depth", "a micro-batch with 100 times the backlog: ≤ 1.2 × the time", depth),
    Section("drain", "PostgreSQL: 2 tasks ≥ 1 × one Python process, 8 tasks ≥ 1.25 ×", drain),
    Section("small", f"{SMALL:,} rows: ≤ 1.3 × the time of JDBC", small),
    Section("memory", "the largest Python worker, with payloads of 100 bytes and of 1 MB: ≤ 300 MB", memory),
)


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
        print_sheets(sheets, facts, asked)
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
