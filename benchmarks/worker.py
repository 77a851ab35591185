"""``python -m benchmarks worker``: a worker process on your own database, compared with Jiggler's published figures."""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.running import add_options, own_tables, parsed, run, say
from queue_db import QueueDB
from queue_db.compare.dialects import Laboratory

_EPILOG = """\
how it measures:
  Each row is a new worker process with its handlers, on a queue that is filled before. "run" is the duration of Worker.run(), until
  everything is reported; "process" includes the start of Python and its imports, as Jiggler's figures include Ruby's. CPU and peak
  resident memory are those of the worker process. After each run the queue is counted: remaining jobs count as lost.
  Jiggler's figures are from its README (i7-6700HQ, Redis): another machine and language, so only ratios of its rows are comparable.
  "transactions" are those of the worker, its polls and heartbeats too.
  The wait of a job is the time from due to claimed, by the database's clock; "to start" is the time from the call of enqueue, in
  another process, to the start of the handler.
  --against measures each row in turns with the package of another checkout, whose tables must be the same.
  Everything happens in tables of its own, which are dropped afterwards, also after Ctrl-C.

examples:
  python -m benchmarks worker --url postgresql://me@localhost/test
  python -m benchmarks worker --only noop,pickup --scale 0.1
  python -m benchmarks worker --only noop,pickup --repeat 5 --against ../older    (git worktree add ../older <commit>)
"""

#: Seconds.
_LONGEST = 1800.0

#: This checkout.
_HERE = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Scene:
    """One row: the configuration of the worker."""

    section: str
    work: str
    jobs: int
    mode: str = "at_least_once"
    concurrency: int = 10
    prefetch: int = 0
    #: Jiggler's seconds for the whole process.
    jiggler: float | None = None
    #: Number of groups of the jobs, in turns.
    groups: int = 0
    executor: str = "thread"
    #: Number of empty queues of higher priority.
    before: int = 0
    #: Concurrency limit of the queue, over all workers.
    limit: int | None = None
    #: Number of worker processes.
    workers: int = 1

    @property
    def name(self) -> str:
        ahead = f", {self.prefetch} ahead" if self.prefetch else ""
        grouped = f", {self.groups:,} groups" if self.groups else ""
        where = ", in processes" if self.executor == "process" else ""
        grouped += f", after {self.before} empty queues" if self.before else ""
        grouped += f", limit {self.limit}" if self.limit else ""
        grouped += f", {self.workers} workers" if self.workers > 1 else ""
        return f"{self.work}, {self.mode.replace('_', ' ')}, {self.concurrency} at once{ahead}{grouped}{where}"


_AMO = "at_most_once"

SCENES = (
    Scene("noop", "nothing", 100_000, _AMO, 10, 0, 14.17),
    Scene("noop", "nothing", 100_000, concurrency=10, jiggler=26.56),
    Scene("noop", "nothing", 100_000, _AMO, 50, 0, 13.96),
    Scene("noop", "nothing", 100_000, concurrency=50, jiggler=26.19),
    Scene("noop", "nothing", 100_000, prefetch=500),
    Scene("sleep", "0.2 s asleep", 1000, _AMO, 10, 0, 23.25),
    Scene("sleep", "0.2 s asleep", 1000, concurrency=10, jiggler=22.86),
    Scene("sleep", "0.2 s asleep", 1000, concurrency=50, jiggler=6.45),
    Scene("file", "a line into a file", 50_000, _AMO, 10, 0, 11.95),
    Scene("file", "a line into a file", 50_000, concurrency=10, jiggler=18.07),
    Scene("file", "a line into a file", 50_000, prefetch=500),
    Scene("fib", "fib(25)", 1000, _AMO, 10, 0, 35.48),
    Scene("fib", "fib(25)", 1000, concurrency=10, jiggler=35.45),
    Scene("fib", "fib(25)", 1000, concurrency=2, executor="process"),
    Scene("groups", "nothing", 20_000, prefetch=500),
    Scene("groups", "nothing", 20_000, prefetch=500, groups=20_000),
    Scene("groups", "nothing", 20_000, prefetch=500, groups=1000),
    Scene("groups", "nothing", 20_000, prefetch=500, groups=20),
    Scene("order", "nothing", 20_000),
    Scene("order", "nothing", 20_000, before=1),
    Scene("order", "nothing", 20_000, before=5),
    Scene("order", "nothing", 20_000, prefetch=500),
    Scene("order", "nothing", 20_000, prefetch=500, before=1),
    Scene("order", "nothing", 5_000, concurrency=1),
    Scene("order", "nothing", 5_000, concurrency=1, before=1),
    Scene("limits", "10 ms asleep", 3_000, concurrency=7),
    Scene("limits", "10 ms asleep", 3_000, concurrency=7, limit=7),
    Scene("limits", "10 ms asleep", 3_000, concurrency=20, limit=7),
    Scene("limits", "10 ms asleep", 3_000, concurrency=20, limit=7, workers=3),
    Scene("limits", "10 ms asleep", 3_000, concurrency=3, limit=7, workers=3),
)
OTHERS = ("idle", "pickup", "delays")
SECTIONS = (*dict.fromkeys(scene.section for scene in SCENES), *OTHERS)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    return run(_measure, _parse(arguments))


def _measure(url: str, asked: argparse.Namespace) -> None:
    table = f"bench_worker_{os.getpid()}"
    with own_tables(url, table) as db:
        sheet = Table(
            "worker",
            "jobs/s",
            "run s",
            "process s",
            "Jiggler s",
            "CPU µs/job",
            "transactions/job",
            "RSS MB",
            "left",
            title=db.database.server,
        )
        packages = [_HERE, *([] if asked.against is None else [asked.against])]
        for scene in SCENES:
            if scene.section in asked.only:
                say(f"{db.database.server}: {scene.name}")
                for number in range(asked.repeat):
                    for package in packages if number % 2 == 0 else packages[::-1]:
                        sheet.add_row(*_row(url, table, db, scene, asked.scale, package))
        console = Console(width=None if sys.stdout.isatty() else 140)
        if sheet.row_count:
            console.print(sheet)
        for section in OTHERS:
            if section in asked.only:
                say(f"{db.database.server}: {section}")
                for package in packages:
                    result = _OTHERS[section](url, table, db, asked.scale, package)
                    line = ", ".join(f"{name} {value}" for name, value in result.items())
                    console.print(f"{db.database.server}: {section}{_of(package)}: {line}")


def _of(package: Path) -> str:
    """What a row of another checkout shows."""
    return "" if package == _HERE else f" ({package.name})"


def _row(url: str, table: str, db: QueueDB, scene: Scene, scale: float, package: Path) -> list[str]:
    jobs = max(1, round(scene.jobs * scale))
    queue = db.queue("race")
    queue.purge()
    queue.limit(concurrency=scene.limit)
    options = ({"group": f"g{number % scene.groups}"} if scene.groups else {} for number in range(jobs))
    queue.enqueue_many(("job", None, given) for given in options)
    with db.database.engine.connect() as connection:
        Laboratory.of(db.database.dialect).analyze(connection, db.store.tables.jobs)
        connection.commit()
    began = time.monotonic()
    wishes = {name: getattr(scene, name) for name in ("work", "mode", "concurrency", "prefetch", "executor", "before")}
    with ThreadPoolExecutor(scene.workers) as pool:
        many = list(pool.map(lambda _: _run(url, table, wishes, package), range(scene.workers)))
    # The slowest worker's time, and the sum of the resources.
    sums = {name: sum(one[name] for one in many) for name in ("cpu", "peak", "sent")}
    result = {"seconds": max(one["seconds"] for one in many), **sums}
    whole = time.monotonic() - began
    stats = queue.stats()
    left = stats.available + stats.running + stats.scheduled + stats.blocked + stats.dead
    jiggler = "" if scene.jiggler is None or scale != 1 else f"{scene.jiggler:.2f}"
    figures = [f"{jobs / result['seconds']:,.0f}", f"{result['seconds']:.2f}", f"{whole:.2f}", jiggler]
    costs = [f"{result['cpu'] / jobs * 1e6:.0f}", f"{result['sent'] / jobs:.3f}", f"{result['peak'] / 1e6:.0f}"]
    return [scene.name + _of(package), *figures, *costs, str(left)]


def _process(package: Path) -> dict[str, Any]:
    """How to start the worker that is measured, with the package of this checkout or another."""
    command = [sys.executable, "-P", str(_HERE / "benchmarks" / "working.py")]
    return {"args": command, "env": {**os.environ, "PYTHONPATH": str(package)}, "stdout": subprocess.PIPE, "text": True}


def _run(url: str, table: str, wishes: dict[str, Any], package: Path) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        given = json.dumps({"url": url, "table": table, "folder": folder, **wishes})
        done = subprocess.run(**_process(package), input=given, stderr=subprocess.PIPE, timeout=_LONGEST, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def _start(url: str, table: str, wishes: dict[str, Any], package: Path) -> subprocess.Popen[str]:
    given = json.dumps({"url": url, "table": table, "folder": tempfile.gettempdir(), **wishes})
    process: subprocess.Popen[str] = subprocess.Popen(**_process(package), stdin=subprocess.PIPE)
    assert process.stdin is not None  # noqa: S101 - requested above
    process.stdin.write(given)
    process.stdin.close()
    return process


def _ended(process: subprocess.Popen[str]) -> dict[str, Any]:
    process.terminate()
    assert process.stdout is not None  # noqa: S101 - requested above
    printed = process.stdout.read()
    process.wait(60)
    result: dict[str, Any] = json.loads(printed)
    return result


def _idle(url: str, table: str, db: QueueDB, scale: float, package: Path) -> dict[str, str]:
    """Measure an idle worker."""
    seconds = max(5.0, 60.0 * scale)
    process = _start(url, table, {"work": "nothing", "until_empty": False, "settle": 15.0 * min(1.0, scale)}, package)
    time.sleep(seconds + 15.0 * min(1.0, scale))
    result = _ended(process)
    return {
        "CPU %": f"{100 * result['idle_cpu'] / result['idle_seconds']:.2f} (Jiggler 1.0)",
        "RSS MB": f"{result['peak'] / 1e6:.0f} (Jiggler 44)",
        "statements/s": f"{result['idle_statements'] / result['idle_seconds']:.1f}",
    }


def _pickup(url: str, table: str, db: QueueDB, scale: float, package: Path) -> dict[str, str]:
    """Measure the wait of single jobs, enqueued by another process on an idle queue."""
    process = _start(url, table, {"work": "nothing", "until_empty": False}, package)
    queue = db.queue("race")
    rng = random.Random(1)
    time.sleep(3.0)
    for _ in range(max(20, round(300 * scale))):
        queue.enqueue("job", time.time())
        time.sleep(rng.uniform(0.05, 0.15))
    result = _ended(process)
    cuts = statistics.quantiles(result["starts"], n=100)
    return {**_waits(result["waits"]), "to start p50 ms": f"{cuts[49] * 1000:.2f}", "p99 ms of it": f"{cuts[98] * 1000:.2f}"}


def _delays(url: str, table: str, db: QueueDB, scale: float, package: Path) -> dict[str, str]:
    """Measure the wait of jobs that become due one after the other, among many that do not."""
    queue = db.queue("race")
    rng = random.Random(1)
    queue.enqueue_many(("job", None, {"delay": 3600.0 + number / 1000}) for number in range(round(100_000 * scale)))
    process = _start(url, table, {"work": "nothing", "until_empty": False}, package)
    time.sleep(3.0)
    queue.enqueue_many(("job", None, {"delay": rng.uniform(1.0, 11.0)}) for _ in range(500))
    stop = threading.Event()
    stop.wait(13.0)
    result = _ended(process)
    queue.purge()
    return {"rows that wait": f"{round(100_000 * scale):,}", **_waits(result["waits"])}


def _waits(waits: list[float]) -> dict[str, str]:
    cuts = statistics.quantiles(waits, n=100)
    early = sum(1 for wait in waits if wait < 0)
    return {
        "jobs": str(len(waits)),
        "p50 ms": f"{cuts[49] * 1000:.2f}",
        "p99 ms": f"{cuts[98] * 1000:.2f}",
        "max ms": f"{max(waits) * 1000:.2f}",
        "early": str(early),
    }


_OTHERS = {"idle": _idle, "pickup": _pickup, "delays": _delays}


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks worker",
        description="Measure a whole worker process. Sections: " + ", ".join(SECTIONS) + ".",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_options(parser, 1)
    parser.add_argument("--against", type=Path, metavar="FOLDER", help="another checkout, measured in turns")
    asked = parsed(parser, arguments, SECTIONS)
    asked.against = asked.against and asked.against.resolve()
    return asked
