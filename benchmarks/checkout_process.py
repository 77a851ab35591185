"""A process of ``benchmarks.checkout``: it fills or drains the tables of another checkout of this project, that in ``PYTHONPATH``.

It imports nothing of the project but the queue, since the other checkout may have another ``queue_db.compare``. Its task is a line
of JSON on standard input, because a URL with a password must not appear in the process list.
"""

from __future__ import annotations

import gc
import json
import mmap
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import queue_db
from queue_db import Optimistic, QueueDB

#: As in ``queue_db.compare.product``: the queue, seconds of a lease, claims before the start with each statement.
_QUEUE, _LEASE, _WARM_UP = "race", 7 * 86_400.0, 4


def fill(task: dict[str, Any]) -> None:
    """Create the tables by the migrations of the checkout and enqueue the jobs."""
    with QueueDB(task["url"], schema=task["schema"]) as db:
        db.migrate()
        db.queue(_QUEUE).enqueue_many(("job", number) for number in range(task["jobs"]))


def drain(task: dict[str, Any]) -> dict[str, Any]:
    """Claim and complete until all jobs have left the queue; return the record for the notes of a worker."""
    number, batch, one_verb = task["number"], task["batch"], task["one_verb"]
    jobs: list[int] = []
    times: list[float] = []
    latencies: list[float] = []
    empty = removed = lost = 0
    last = 0.0
    with (
        Path(task["tally"]).open("r+b") as file,
        mmap.mmap(file.fileno(), 0) as shared,
        memoryview(shared).cast("q") as tally,
        QueueDB(task["url"], schema=task["schema"], pool_size=1) as db,
    ):
        _warm_up(db, number, min(batch, 2), one_verb)
        queue = db.queue(_QUEUE)
        together = _together(queue)
        before = {name: getattr(db.counters, name) for name in task["counters"]}
        gc.collect()
        gc.freeze()
        print("ready", flush=True)  # noqa: T201
        sys.stdin.readline()
        cpu = time.process_time()

        def record(verdicts: Any) -> None:
            nonlocal removed, lost, last
            applied = sum(map(bool, verdicts))
            lost += len(verdicts) - applied
            removed += applied
            last = time.monotonic()
            tally[2 + number] = removed

        done: Any = []
        while not tally[1] and sum(tally[2:]) < tally[0]:
            asked = time.monotonic()
            if one_verb:
                verdicts, won = together(done, batch, _LEASE)
                if done:
                    record(verdicts)
            else:
                won = queue.claim(batch, _LEASE)
            done = won
            if not won:
                empty += 1
                time.sleep(0.001)
                continue
            now = time.monotonic()
            latencies.append(now - asked)
            jobs.extend([job.payload for job in won])
            times.extend([now] * len(won))
            if not one_verb:
                record(queue.complete_many(won))
        if one_verb and done:
            record(queue.complete_many(done))
        counted = {name: getattr(db.counters, name) - start for name, start in before.items()}
    return {
        "cpu": time.process_time() - cpu,
        "counters": counted,
        "notes": {
            "jobs": jobs,
            "times": times,
            "latencies": latencies,
            "empty": empty,
            "left": removed,
            "lost": lost,
            "last": last,
        },
    }


def _together(queue: Any) -> Callable[..., Any]:
    """The verb that completes jobs with the claim of the next ones, by the name that it has in this checkout."""
    verb: Callable[..., Any] = getattr(queue, "complete_and_claim", None) or queue.exchange  # its name in older checkouts
    return verb


def _warm_up(db: Any, number: int, batch: int, one_verb: bool) -> None:
    """Connect and compile the statements, those of a window too."""
    own = db.core.strategy
    for turn, strategy in enumerate((own, Optimistic(window=1), Optimistic(window=64))):
        db.core.strategy = strategy
        queue = db.queue(f"warm-up-{number}-{turn}")
        queue.enqueue_many([("job", 0)] * (_WARM_UP * batch))
        jobs: Any = []
        for _ in range(_WARM_UP):
            if one_verb:
                _, jobs = _together(queue)(jobs, batch, _LEASE)
            else:
                queue.complete_many(queue.claim(batch, _LEASE))
        queue.complete_many(jobs)
    db.core.strategy = own


def main() -> None:
    """Do the task."""
    task = json.loads(sys.stdin.readline())
    package = Path(queue_db.__file__).parent
    if package != Path(task["folder"]) / "queue_db":
        raise SystemExit(f"this is not the checkout that was asked for, but {package}")
    if "jobs" in task:
        fill(task)
        print("filled")  # noqa: T201
    else:
        print(json.dumps(drain(task)))  # noqa: T201


if __name__ == "__main__":
    main()
