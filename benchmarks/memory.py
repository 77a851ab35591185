"""Peak memory of a process that drains a million jobs."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from benchmarks.figures import Line, Side
from benchmarks.filling import fill, tidy
from benchmarks.lab import Lab

_QUEUE = "long"
_MEGABYTE = 2**20

#: Megabytes.
BOUND = 150.0

#: Time limit, seconds: a million single jobs on a slow machine.
_LIMIT = 3600.0


def memory(lab: Lab, jobs: int | None = None, worker_jobs: int | None = None) -> Iterator[Line]:
    """Measure the peak resident memory of a new process: with claim and complete_many, and with a Worker."""
    # One measurement each: peaks vary less than times.
    for worker, count, what in (
        (False, jobs or lab.sized(1_000_000, 100), "claim(100), complete_many"),
        (True, worker_jobs or lab.sized(100_000, 100), "Worker, prefetch 100"),
    ):
        lab.say(f"filling {count:,} jobs")
        with lab.tables("jobs") as (db,):
            fill(db, _QUEUE, count, due_ago=3600, say=lab.say)
            tidy(db)
            lab.say(f"draining {count:,} jobs in one process: {what}")
            result = _measure(lab, worker=worker)
        side = Side(
            what, "MB", [result["peak"] / _MEGABYTE], errors={"lost": result["lost"]}, finished=result["completed"] == count
        )
        yield Line(f"peak memory of a process draining {count:,} jobs: {what}", side, bound=BOUND, at_most=True)


def _measure(lab: Lab, *, worker: bool) -> dict[str, Any]:
    asked = {"url": lab.target.url, "schema": lab.target.schema, "queue_name": _QUEUE, "batch": 100, "worker": worker}
    command = [sys.executable, "-m", "benchmarks.draining"]
    done = subprocess.run(  # noqa: S603 - ourselves
        command, input=json.dumps(asked), capture_output=True, text=True, timeout=_LIMIT, check=False
    )
    if done.returncode:
        raise RuntimeError(f"the process that drains has failed:\n{done.stderr}")
    result: dict[str, Any] = json.loads(done.stdout)
    return result
