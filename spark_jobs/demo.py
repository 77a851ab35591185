"""The queue at work: one job for every file of a folder, drained by parallel Spark tasks, and checked.

make demo [DIR=folder] [URL=database] [TASKS=number]

What is written lies in ./demo-output: the SQLite database when no URL is given, a folder of Parquet for each run, Spark's log.
A run that was interrupted leaves its jobs in the queue; the next run of the same folder works them off too, once the leases
of the vanished tasks have ended.
"""

from __future__ import annotations

import argparse
import hashlib
import logging
import os
import sys
import sysconfig
import threading
import time
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from drain_files import SCHEMA, drain_files
from enqueue_files import enqueue_files, file_path, file_uri
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table
from sqlalchemy import URL

from queue_db import Capability, Optimistic, QueueDB, QueueDBError, QueueStats
from queue_db.spark import Drained, read_results

LEASE = 30.0  #: seconds; after an interrupted run the next one waits at most so long for its jobs

#: What pip installed beside the standard library is not part of it.
NOT_STANDARD = frozenset({"site-packages", "dist-packages"})

_LOOK_EVERY = 0.2
_SHOWN = 5

#: What is seen of a file without reading it: it changed when this did.
Sight = tuple[int, int]
#: ``size, lines, sha256`` of a file; Nones where it cannot be read.
Facts = tuple[int | None, int | None, str | None]


# --- the check: on its own, without the code that it checks ------------------------------------------------------------


@dataclass
class Check:
    """What the comparison of results and folder found."""

    files: int = 0  #: compared
    changed: int = 0  #: left out: they came, went or changed during the run
    problems: list[str] = field(default_factory=list)


def look(folder: Path, skip: frozenset[str] = frozenset()) -> dict[str, Sight]:
    """URI → size and time of change of every regular file below ``folder``; ``skip``: subfolders to leave out, by name."""
    seen: dict[str, Sight] = {}
    waiting = [str(folder)]
    left_out = {str(folder / name) for name in skip}
    while waiting:
        try:
            entries = list(os.scandir(waiting.pop()))
        except OSError:
            continue  # closed to us, or gone
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                if entry.path not in left_out:
                    waiting.append(entry.path)
            elif entry.is_file(follow_symlinks=False):
                state = entry.stat(follow_symlinks=False)
                seen[file_uri(entry.path)] = (state.st_size, state.st_ctime_ns)
    return seen


def facts(uri: str) -> Facts:
    """Read the file again."""
    try:
        with file_path(uri).open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            file.seek(0)
            lines = sum(line.endswith(b"\n") for line in file)
            return file.tell(), lines, digest
    except OSError:
        return None, None, None


def compare(
    results: Iterable[tuple[str, Facts]], before: Mapping[str, Sight], after: Mapping[str, Sight], progress: Progress | None = None
) -> Check:
    """Every file exactly once, none lost, none twice, each with its facts; files that changed meanwhile are left out."""
    check = Check()
    rows = list(results)
    found = dict(rows)
    stable = {uri for uri, sight in before.items() if after.get(uri) == sight}
    check.files, check.changed = len(stable), len(before.keys() | after.keys()) - len(stable)
    _report(check, "lost: no result for", stable - found.keys())
    _report(check, "twice in the results:", (uri for uri, times in Counter(uri for uri, _ in rows).items() if times > 1))
    # A job of an interrupted run whose file is gone by now has a result without facts.
    unknown = found.keys() - before.keys() - after.keys()
    _report(check, "not in the folder:", (uri for uri in unknown if found[uri] != (None, None, None)))
    same = sorted(stable & found.keys())
    line = None if progress is None else progress.add_task("check", total=len(same))
    for uri in same:
        if facts(uri) != found[uri]:
            _report(check, "wrong size, lines or SHA-256:", [uri])
        if progress is not None and line is not None:
            progress.advance(line)
    return check


def _report(check: Check, what: str, uris: Iterable[str]) -> None:
    check.problems += [f"{what} {uri}" for uri in sorted(uris)]


# --- the model ---------------------------------------------------------------------------------------------------------


def predicted_attempts(workers: int, window: int) -> float:
    """Attempts per claim of ``workers`` that race in lock-step for a window of ``window`` jobs: N / (W (1 − (1 − 1/W)^N))."""
    return workers / (window * (1.0 - (1.0 - 1.0 / window) ** workers))


# --- Spark and the screen ----------------------------------------------------------------------------------------------


def start_spark(tasks: int, log: Path) -> SparkSession:
    """A Spark of our own on this machine, ``tasks`` wide, that talks to nobody and writes its messages to ``log``."""
    # Another Spark's home would start that one.
    os.environ.pop("SPARK_HOME", None)
    os.environ.update(PYSPARK_PYTHON=sys.executable, PYSPARK_DRIVER_PYTHON=sys.executable, SPARK_LOCAL_IP="127.0.0.1")
    # Py4J logs how a call ended that Ctrl-C broke off.
    logging.disable()
    warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas", category=FutureWarning)
    builder = (
        SparkSession.builder.master(f"local[{tasks},4]")  # a task that dies is tried again
        .appName("queue_db demo")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", str(tasks))
        .config("spark.log.level", "WARN")
        # A life this short does not pay for Java's second compiler: half the processor time without it.
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1")
    )
    with _errors_into(log):
        spark: SparkSession = builder.getOrCreate()
    here = Path(__file__).parent
    for script in ("enqueue_files.py", "drain_files.py"):
        spark.sparkContext.addPyFile(str(here / script))
    return spark


@contextmanager
def _errors_into(log: Path) -> Iterator[None]:
    """What is started in here, the Java process, keeps ``log`` as its standard error."""
    saved = os.dup(2)
    try:
        with log.open("ab") as file:
            os.dup2(file.fileno(), 2)
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)


@contextmanager
def _watched(url: str | URL, queue: str, progress: Progress, line: TaskID, total: int | None) -> Iterator[None]:
    """Move a bar with the number of live jobs: up to all of them while they are enqueued, down from ``total`` while drained."""
    over = threading.Event()

    def show(db: QueueDB) -> None:
        now = db.queue(queue).stats()
        progress.update(line, completed=live(now) if total is None else max(0, total - live(now)))
        if total is not None:
            held = now.running and not now.available
            progress.update(line, description="drain (waiting for the last leases)" if held else "drain")

    def follow() -> None:
        with QueueDB(url) as db:
            while not over.wait(_LOOK_EVERY):
                try:
                    show(db)
                except QueueDBError:
                    continue  # the tasks will tell

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def live(stats: QueueStats) -> int:
    """Jobs that are not done."""
    return stats.available + stats.running + stats.scheduled


# --- the run -----------------------------------------------------------------------------------------------------------


@dataclass
class Outcome:
    """What a run did."""

    drained: Drained
    jobs: int
    seconds: float
    check: Check


def queue_name(folder: Path) -> str:
    """A queue for each folder, so that what an interrupted run of another one left does not mix with this one."""
    return f"files-{hashlib.sha256(os.fsencode(folder)).hexdigest()[:12]}"


def run(folder: Path, url: str | URL, tasks: int, output: Path, skip: frozenset[str], console: Console) -> Outcome:
    """Migrate, enqueue, drain into ``output``, check."""
    queue = queue_name(folder)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress, QueueDB(url) as db:
        line = progress.add_task("migrate", total=1)
        db.migrate()
        progress.advance(line)

        line = progress.add_task("start Spark", total=1)
        spark = start_spark(tasks, output.parent / "spark.log")
        progress.advance(line)
        try:
            before = look(folder, skip)
            line = progress.add_task("enqueue", total=len(before))
            with _watched(url, queue, progress, line, None):
                enqueue_files(spark, url, queue, folder, tasks, skip)
            jobs = live(db.queue(queue).stats())
            progress.update(line, completed=jobs, total=jobs)

            line = progress.add_task("drain", total=jobs)
            began = time.monotonic()
            with _watched(url, queue, progress, line, jobs):
                drained = drain_files(spark, url, queue, output, tasks, LEASE)
            seconds = time.monotonic() - began
            left = db.queue(queue).stats()
            progress.update(line, completed=jobs - live(left), description="drain")

            rows = read_results(spark, output, SCHEMA).select("uri", "size", "lines", "sha256").collect()
            results = ((row.uri, (row.size, row.lines, row.sha256)) for row in rows)
            check = compare(results, before, look(folder, skip), progress)
            if live(left) or left.dead:
                check.problems.append(f"{live(left)} live and {left.dead} dead jobs are left in queue {queue!r}")
        finally:
            with suppress(Py4JError, ConnectionError):  # Java may be gone, and why is the better message
                spark.stop()
    return Outcome(drained, jobs, seconds, check)


def show(outcome: Outcome, url: str | URL, tasks: int, output: Path, console: Console) -> None:
    """Print the table and the verdict."""
    with QueueDB(url) as db:
        server, racing = db.database.server, Capability.CONCURRENT_WRITERS in db.database.capabilities
        masked = db.url
    window = Optimistic().window
    counters = outcome.drained.counters
    predicted = predicted_attempts(tasks, window) if racing else 1.0
    why = f"{tasks} tasks in lock-step, window {window}; with work between claims fewer race" if racing else "one writer at a time"
    table = Table(title=f"{server}, {tasks} tasks, optimistic", show_header=False, title_justify="left")
    table.add_column()
    table.add_column(overflow="fold")  # a path that is cut off cannot be copied
    for name, value in (
        ("database", masked),
        ("jobs", f"{outcome.jobs:,}"),
        ("seconds", f"{outcome.seconds:.1f}"),
        ("jobs/s", f"{outcome.jobs / outcome.seconds:,.0f}"),
        ("claims", f"{counters.claims:,} (of up to 100 jobs; {counters.empty:,} found nothing due)"),
        ("misses", f"{counters.missed:,} of {counters.candidates:,} candidates"),
        ("attempts per claim", f"{counters.attempts_per_claim:.3f}"),
        ("the model's prediction", f"{predicted:.3f} ({why})"),
        ("leases lost", f"{counters.lost:,}"),
        ("Parquet", str(output)),
    ):
        table.add_row(name, value)
    console.print(table)
    check = outcome.check
    for problem in check.problems[:_SHOWN]:
        console.print(problem, style="red", markup=False, highlight=False)
    if len(check.problems) > _SHOWN:
        console.print(f"… and {len(check.problems) - _SHOWN} more", style="red")
    changed = f" ({check.changed} changed during the run and were not compared)" if check.changed else ""
    if check.problems:
        console.print(f"FAILED: {len(check.problems)} problems in {check.files:,} files{changed}", style="bold red")
    else:
        console.print(f"OK: {check.files:,} files, each exactly once, none lost, none twice{changed}", style="bold green")


def main() -> int:
    """Do what the command line says; 0 if every check held."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dir", type=Path, help="the folder (default: the standard library of this Python)")
    parser.add_argument("--url", help="the database (default: a SQLite file in ./demo-output)")
    parser.add_argument("--tasks", type=int, default=4, help="tasks that claim at the same time (%(default)s)")
    options = parser.parse_args()
    if options.tasks < 1:
        parser.error("--tasks must be 1 or more")
    folder = (options.dir or Path(sysconfig.get_path("stdlib"))).resolve()
    if not folder.is_dir():
        parser.error(f"--dir {folder}: there is no such folder")
    place = Path("demo-output").absolute()
    output = place / f"results-{datetime.now().astimezone():%Y%m%d-%H%M%S}"
    output.mkdir(parents=True)
    url = options.url or URL.create("sqlite", database=str(place / "queue.db"))
    skip = frozenset() if options.dir else NOT_STANDARD
    console = Console()
    try:
        outcome = run(folder, url, options.tasks, output, skip, console)
        show(outcome, url, options.tasks, output, console)
    except KeyboardInterrupt:
        console.print("interrupted: the jobs that are left stay in the queue, run again to work them off")
        return 130
    except (QueueDBError, PySparkException, Py4JError, ConnectionError) as error:
        log = place / "spark.log"
        with log.open("a") as file:
            file.write(f"{error}\n")
        first, _, more = str(error).strip().partition("\n")
        console.print(f"{type(error).__name__}: {first}", style="red", markup=False, highlight=False)
        if more or not isinstance(error, QueueDBError):
            console.print(f"The whole story is in {log}", highlight=False)
        return 1
    return 1 if outcome.check.problems else 0


if __name__ == "__main__":
    sys.exit(main())
