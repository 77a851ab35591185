"""The process whose memory is measured, started by ``benchmarks.memory``: it imports only what a worker needs.

It reads its task from standard input, because a URL with a password must not appear in the process list, and prints JSON.
"""

from __future__ import annotations

import json
import resource
import sys
from pathlib import Path
from typing import Any

from queue_db import QueueDB
from queue_db.worker import Worker


def peak_memory() -> int:
    """Return the peak resident memory of this process, bytes."""
    status = Path("/proc/self/status")
    if status.exists():
        # On Linux getrusage includes the parent before the exec, if that was larger.
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def drain(url: str, schema: str | None, queue_name: str, batch: int, worker: bool) -> dict[str, Any]:
    """Drain the queue with claim and complete_many, or with a Worker."""
    with QueueDB(url, schema=schema) as db:
        queue = db.queue(queue_name)
        executed = lost = 0
        if worker:
            own = Worker(db, queue_name, concurrency=1, prefetch=batch, schedules=False)
            own.handles(None)(lambda job: None)
            summary = own.run(until_empty=True)
            executed, lost = summary.completed, summary.lost
        else:
            while jobs := queue.claim(batch):
                applied = sum(map(bool, queue.complete_many(jobs)))
                executed, lost = executed + applied, lost + len(jobs) - applied
        return {"completed": executed, "lost": lost, "missed": db.counters.missed, "peak": peak_memory()}


if __name__ == "__main__":
    print(json.dumps(drain(**json.load(sys.stdin))))  # noqa: T201
