"""A demo: one job per file of a folder, processed by parallel Spark tasks, with a check of the results.

make demo [DIR=folder] [URL=database] [TASKS=number]

The output is in ./demo-output: the SQLite database if no URL is given, a folder of Parquet per run, and Spark's log. An
interrupted run leaves its jobs in the queue; the next run of the same folder processes them too, after the leases of the
interrupted tasks have expired.
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

LEASE = 30.0  #: seconds; the next run after an interrupted one waits at most this long for its jobs

#: Folders of installed packages, which do not belong to the standard library.
NOT_STANDARD = frozenset({"site-packages", "dist-packages"})

_POLL_INTERVAL = 0.2
_SHOWN = 5

#: Size and time of change, ns: if they differ, the file has changed.
State = tuple[int, int]
#: ``size, lines, sha256`` of a file; None for each if it cannot be read.
Facts = tuple[int | None, int | None, str | None]


# --- the check, independent of the code that it checks -----------------------------------------------------------------


@dataclass
class Check:
    """The result of the comparison of results and folder."""

    files: int = 0  #: number of compared files
    changed: int = 0  #: files that were added, deleted or changed during the run
    problems: list[str] = field(default_factory=list)


def scan(folder: Path, skip: frozenset[str] = frozenset()) -> dict[str, State]:
    """Return the state of every regular file below ``folder`` by URI; ``skip``: names of subfolders to skip."""
    seen: dict[str, State] = {}
    waiting = [str(folder)]
    skipped = {str(folder / name) for name in skip}
    while waiting:
        try:
            entries = list(os.scandir(waiting.pop()))
        except OSError:
            continue  # unreadable or deleted
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                if entry.path not in skipped:
                    waiting.append(entry.path)
            elif entry.is_file(follow_symlinks=False):
                state = entry.stat(follow_symlinks=False)
                seen[file_uri(entry.path)] = (state.st_size, state.st_ctime_ns)
    return seen


def facts(uri: str) -> Facts:
    """Read the file."""
    try:
        with file_path(uri).open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            file.seek(0)
            lines = sum(line.endswith(b"\n") for line in file)
            return file.tell(), lines, digest
    except OSError:
        return None, None, None


def compare(
    results: Iterable[tuple[str, Facts]], before: Mapping[str, State], after: Mapping[str, State], progress: Progress | None = None
) -> Check:
    """Check that every file has exactly one result with the right facts; files that changed during the run are skipped."""
    check = Check()
    rows = list(results)
    found = dict(rows)
    stable = {uri for uri, state in before.items() if after.get(uri) == state}
    check.files, check.changed = len(stable), len(before.keys() | after.keys()) - len(stable)
    _report(check, "lost: no result for", stable - found.keys())
    _report(check, "twice in the results:", (uri for uri, times in Counter(uri for uri, _ in rows).items() if times > 1))
    # A job of an interrupted run whose file has been deleted since has a result without facts.
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
    """Return attempts per claim of ``workers`` workers in lock-step with a window of ``window`` jobs: N / (W (1 − (1 − 1/W)^N))."""
    return workers / (window * (1.0 - (1.0 - 1.0 / window) ** workers))


# --- Spark and the screen ----------------------------------------------------------------------------------------------


def start_spark(tasks: int, log: Path) -> SparkSession:
    """Start a local Spark with ``tasks`` slots and without network access, which writes its messages to ``log``."""
    # SPARK_HOME would select another installation.
    os.environ.pop("SPARK_HOME", None)
    os.environ.update(PYSPARK_PYTHON=sys.executable, PYSPARK_DRIVER_PYTHON=sys.executable, SPARK_LOCAL_IP="127.0.0.1")
    # Py4J would log the calls that Ctrl-C interrupts.
    logging.disable()
    warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas", category=FutureWarning)
    builder = (
        SparkSession.builder.master(f"local[{tasks},4]")  # up to 4 attempts per task
        .appName("queue_db demo")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", str(tasks))
        .config("spark.log.level", "WARN")
        # Java's second compiler does not pay off in so short a run: without it half the processor time.
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
    """Give processes started in the ``with`` block, the Java process, ``log`` as standard error."""
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
    """Update a progress bar with the number of live jobs: enqueued jobs, or with ``total`` the drained ones."""
    stop = threading.Event()

    def show(db: QueueDB) -> None:
        now = db.queue(queue).stats()
        progress.update(line, completed=live(now) if total is None else max(0, total - live(now)))
        if total is not None:
            held = now.running and not now.available
            progress.update(line, description="drain (waiting for the last leases)" if held else "drain")

    def follow() -> None:
        with QueueDB(url) as db:
            while not stop.wait(_POLL_INTERVAL):
                try:
                    show(db)
                except QueueDBError:
                    continue  # the tasks report such errors

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def live(stats: QueueStats) -> int:
    """Return the number of jobs that are not completed."""
    return stats.available + stats.running + stats.scheduled


# --- the run -----------------------------------------------------------------------------------------------------------


@dataclass
class Outcome:
    """The outcome of a run."""

    drained: Drained
    jobs: int
    seconds: float
    check: Check


def queue_name(folder: Path) -> str:
    """Return a queue name per folder, so that jobs of an interrupted run of another folder do not interfere."""
    return f"files-{hashlib.sha256(os.fsencode(folder)).hexdigest()[:12]}"


def run(folder: Path, url: str | URL, tasks: int, output: Path, skip: frozenset[str], console: Console) -> Outcome:
    """Migrate, enqueue, drain into ``output``, and check the results."""
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
            before = scan(folder, skip)
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
            check = compare(results, before, scan(folder, skip), progress)
            if live(left) or left.dead:
                check.problems.append(f"{live(left)} live and {left.dead} dead jobs are left in queue {queue!r}")
        finally:
            with suppress(Py4JError, ConnectionError):  # Java may have died; the first error is the better message
                spark.stop()
    return Outcome(drained, jobs, seconds, check)


def show(outcome: Outcome, url: str | URL, tasks: int, output: Path, console: Console) -> None:
    """Print the figures and the result of the check."""
    with QueueDB(url) as db:
        server, racing = db.database.server, Capability.CONCURRENT_WRITERS in db.database.capabilities
        masked = db.url
    window = Optimistic().window
    counters = outcome.drained.counters
    predicted = predicted_attempts(tasks, window) if racing else 1.0
    why = (
        f"{tasks} tasks in lock-step, window {window}; with work between claims fewer workers race"
        if racing
        else "one writer at a time"
    )
    table = Table(title=f"{server}, {tasks} tasks, optimistic", show_header=False, title_justify="left")
    table.add_column()
    table.add_column(overflow="fold")  # a truncated path could not be copied
    for name, value in (
        ("database", masked),
        ("jobs", f"{outcome.jobs:,}"),
        ("seconds", f"{outcome.seconds:.1f}"),
        ("jobs/s", f"{outcome.jobs / outcome.seconds:,.0f}"),
        ("claims", f"{counters.claims:,} (of up to 100 jobs; {counters.empty:,} found no due job)"),
        ("misses", f"{counters.missed:,} of {counters.candidates:,} candidates"),
        ("attempts per claim", f"{counters.attempts_per_claim:.3f}"),
        ("predicted by the model", f"{predicted:.3f} ({why})"),
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
        console.print(f"OK: {check.files:,} files, each exactly once{changed}", style="bold green")


def main() -> int:
    """Run the demo; return 0 if every check passed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dir", type=Path, help="folder whose files are processed (default: the standard library of this Python)")
    parser.add_argument("--url", help="database URL (default: a SQLite file in ./demo-output)")
    parser.add_argument("--tasks", type=int, default=4, help="number of parallel tasks (%(default)s)")
    options = parser.parse_args()
    if options.tasks < 1:
        parser.error("--tasks must be 1 or more")
    folder = (options.dir or Path(sysconfig.get_path("stdlib"))).resolve()
    if not folder.is_dir():
        parser.error(f"--dir {folder}: no such folder")
    home = Path("demo-output").absolute()
    output = home / f"results-{datetime.now().astimezone():%Y%m%d-%H%M%S}"
    output.mkdir(parents=True)
    url = options.url or URL.create("sqlite", database=str(home / "queue.db"))
    skip = frozenset() if options.dir else NOT_STANDARD
    console = Console()
    try:
        outcome = run(folder, url, options.tasks, output, skip, console)
        show(outcome, url, options.tasks, output, console)
    except KeyboardInterrupt:
        console.print("interrupted: the remaining jobs stay in the queue; run again to process them")
        return 130
    except (QueueDBError, PySparkException, Py4JError, ConnectionError) as error:
        log = home / "spark.log"
        with log.open("a") as file:
            file.write(f"{error}\n")
        first, _, more = str(error).strip().partition("\n")
        console.print(f"{type(error).__name__}: {first}", style="red", markup=False, highlight=False)
        if more or not isinstance(error, QueueDBError):
            console.print(f"Details are in {log}", highlight=False)
        return 1
    return 1 if outcome.check.problems else 0


if __name__ == "__main__":
    sys.exit(main())
