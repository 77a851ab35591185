"""``python -m benchmarks spans``: consumers of a shared cursor on your own database, compared with consumers of a queue."""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.running import addresses, ended, exit_on_sigterm, say
from queue_db import QueueDB
from queue_db.errors import QueueDBError
from queue_db.worker import Worker

_EPILOG = """\
how it measures:
  Each row drains a backlog: of messages by spans, of jobs by claims of as many. All rows in turns; the figure is the median.
  The time begins when all processes are ready, and ends when all is done and gone: the messages are trimmed meanwhile, by one
  more process, and completed jobs are deleted. A row that loses or repeats something says so. "worker" is one process with a
  handler that does nothing: 4 slots of spans, or 4 threads with 400 jobs prefetched.
  Everything happens in tables of its own, which are dropped afterwards, also after Ctrl-C.

examples:
  python -m benchmarks spans --url postgresql://me@localhost/test
  python -m benchmarks spans --scale 0.05 --processes 2
"""

_FEED, _CURSOR = "race", "consumers"
#: Messages or jobs of a row, of a row of the worker, and published at once.
_SIZE, _WORKER_SIZE, _CHUNK = 1_000_000, 100_000, 10_000
_SLOTS, _AHEAD = 4, 400

#: Name of a row → what takes part, in claims of this size.
_ROWS: dict[str, tuple[str, int]] = {
    "spans of 100": ("spans", 100),
    "spans of 500": ("spans", 500),
    "jobs, 100 per claim": ("jobs", 100),
    "worker, spans of 100": ("worker spans", 100),
    "worker, jobs": ("worker jobs", 100),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    asked = _parse(arguments)
    exit_on_sigterm()
    try:
        with addresses(asked.url) as urls:
            for url in urls:
                _measure(url, asked)
    except (KeyboardInterrupt, QueueDBError) as error:
        return ended(error)
    return 0


def _measure(url: str, asked: argparse.Namespace) -> None:
    table = f"bench_spans_{os.getpid()}"
    with QueueDB(url, table=table) as db:
        db.migrate()
        try:
            rates: dict[str, list[float]] = {name: [] for name in _ROWS}
            wrong: dict[str, int] = dict.fromkeys(_ROWS, 0)
            for _ in range(asked.repeat):
                for name, (what, batch) in _ROWS.items():
                    say(f"{db.database.server}: {name}")
                    size = max(1, round((_WORKER_SIZE if "worker" in what else _SIZE) * asked.scale))
                    seconds, done = _drain(url, table, db, what, batch, size, 1 if "worker" in what else asked.processes)
                    rates[name].append(size / seconds)
                    wrong[name] += abs(done - size)
            sheet = Table("consumers", "per second", "lost or repeated", title=f"{db.database.server}, {asked.processes} processes")
            for name, found in rates.items():
                sheet.add_row(name, f"{statistics.median(found):,.0f}", str(wrong[name]))
            Console(width=None if sys.stdout.isatty() else 100).print(sheet)
        finally:
            db.migrate(revision="base")
            with suppress(Exception), db.database.begin("leave") as connection:
                connection.exec_driver_sql(f"DROP TABLE {db.store.tables.version}")


def _drain(url: str, table: str, db: QueueDB, what: str, batch: int, size: int, processes: int) -> tuple[float, int]:
    """Fill, drain and trim; return the seconds and how much was done."""
    _fill(db, size, feed="spans" in what)
    context = multiprocessing.get_context("spawn")
    trims = "spans" in what
    ready, counts, over = context.Barrier(processes + trims + 1), context.Queue(), context.Event()
    members = [
        context.Process(target=_consume, args=(url, table, what, batch, ready, counts), daemon=True) for _ in range(processes)
    ]
    trimmer = context.Process(target=_trim, args=(url, table, ready, over), daemon=True)
    for member in [*members, *([trimmer] if trims else [])]:
        member.start()
    ready.wait()
    began = time.monotonic()
    done = sum(counts.get() for _ in members)
    over.set()
    if trims:
        trimmer.join()
    seconds = time.monotonic() - began
    for member in members:
        member.join()
    return seconds, done


def _fill(db: QueueDB, size: int, *, feed: bool) -> None:
    if not feed:
        db.queue(_CURSOR).purge()
        db.queue(_CURSOR).enqueue_many(("job", None) for _ in range(size))
        tables = [db.store.tables.jobs]
    else:
        db.feeds.delete(_FEED)
        db.feeds.set(_FEED, keep_rows=1, keep_unread=2**40)
        messages = db.feed(_FEED)
        messages.shared(_CURSOR)
        for start in range(0, size, _CHUNK):
            messages.publish_many([("job", None)] * min(_CHUNK, size - start))
        messages.rank()
        tables = [db.store.tables.feeds.messages]
    with db.database.engine.connect() as connection:
        for table in tables:
            db.database.dialect.analyze(connection, table)
        connection.commit()


def _open(url: str, table: str) -> QueueDB:
    return QueueDB(url, table=table, strategy="adaptive" if url.startswith("sqlite") else "skip_locked")


def _consume(url: str, table: str, what: str, batch: int, ready: Any, counts: Any) -> None:
    """A process: consume until nothing is left, and report how much that was."""
    consumers: dict[str, Callable[[QueueDB, int, Callable[[], object]], int]] = {
        "spans": _spans,
        "jobs": _jobs,
        "worker spans": _worker_of_spans,
        "worker jobs": _worker_of_jobs,
    }
    with _open(url, table) as db:
        counts.put(consumers[what](db, batch, ready.wait))


def _spans(db: QueueDB, batch: int, go: Callable[[], object]) -> int:
    shared, done = db.feed(_FEED).shared(_CURSOR), 0
    go()
    while (span := shared.claim(batch)) is not None:
        done += len(span.messages) if span.complete() else 0
    return done


def _jobs(db: QueueDB, batch: int, go: Callable[[], object]) -> int:
    queue, done = db.queue(_CURSOR), 0
    go()
    while jobs := queue.claim(batch):
        done += sum(map(bool, queue.complete_many(jobs)))
    return done


def _worker_of_spans(db: QueueDB, batch: int, go: Callable[[], object]) -> int:
    return _worked(Worker(db, feeds={f"{_FEED}:{_CURSOR}": _SLOTS}, span=batch), go)


def _worker_of_jobs(db: QueueDB, batch: int, go: Callable[[], object]) -> int:
    return _worked(Worker(db, _CURSOR, concurrency=_SLOTS, prefetch=_AHEAD), go)


def _worked(worker: Worker, go: Callable[[], object]) -> int:
    worker.handles("job")(lambda job: None)
    go()
    return worker.run(until_empty=True).completed


def _trim(url: str, table: str, ready: Any, over: Any) -> None:
    """A process: trim what is done, until the consumers have ended and nothing is left to trim."""
    with _open(url, table) as db:
        feed = db.feed(_FEED)
        feed.start()
        ready.wait()
        while True:
            last = over.is_set()
            if not feed.trim() and last:
                return
            over.wait(0.01)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks spans",
        description="Measure consumers of a shared cursor, beside consumers of a queue.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--url", action="append", metavar="URL", help="database; more than once for several. Without: private ones")
    parser.add_argument("--processes", type=int, default=10, metavar="N", help="consumers (default 10)")
    parser.add_argument("--repeat", type=int, default=3, metavar="N", help="runs of each row (default 3)")
    parser.add_argument("--scale", type=float, default=1.0, metavar="X", help="multiply all sizes (default 1: a million)")
    asked = parser.parse_args(arguments)
    if asked.repeat < 1 or asked.processes < 1 or not asked.scale > 0:
        parser.error("--repeat and --processes must be 1 or more, --scale above 0")
    return asked
