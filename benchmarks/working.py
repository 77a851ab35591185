"""The worker process that is measured, started by ``benchmarks.worker``: reads its task from standard input, prints JSON."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from typing import Any

from benchmarks.busy import fib_of_25
from benchmarks.draining import peak_memory
from queue_db import QueueDB
from queue_db.database.transaction import OwnTransaction
from queue_db.worker import Worker
from queue_db.worker.events import EventType, JobEvent


def run(
    url: str,
    table: str,
    folder: str,
    work: str,
    mode: str = "at_least_once",
    concurrency: int = 10,
    prefetch: int = 0,
    executor: str = "thread",
    until_empty: bool = True,
    settle: float = 0.0,
    before: int = 0,
) -> dict[str, Any]:
    """Run until the queue is empty, or until a signal."""
    waits: list[float] = []
    starts: list[float] = []
    idle: dict[str, Any] = {}
    with QueueDB(url, table=table) as db:
        queues = [*(f"before-{number}" for number in range(before)), "race"]
        worker = Worker(db, queues, concurrency=concurrency, prefetch=prefetch, mode=mode, schedules=False)
        line = os.open(os.path.join(folder, "lines"), os.O_WRONLY | os.O_APPEND | os.O_CREAT)  # noqa: PTH118
        handlers = {
            "nothing": lambda job: None,
            "0.2 s asleep": lambda job: time.sleep(0.2),
            "10 ms asleep": lambda job: time.sleep(0.01),
            "a line into a file": lambda job: os.write(line, b"one more line\n") and None,
            "fib(25)": fib_of_25,
        }
        worker.handles(None, executor=executor)(handlers[work])
        if not until_empty:

            def started(event: JobEvent) -> None:
                if event.type is EventType.STARTED:
                    waits.append(event.job.waited or 0.0)
                    if event.job.payload is not None:
                        # When its enqueue was called, on the same machine.
                        starts.append(time.time() - event.job.payload)

            worker.on(started)
        sent = [0]
        enter = OwnTransaction.__enter__

        def counted(tx: OwnTransaction) -> OwnTransaction:
            sent[0] += 1
            return enter(tx)

        OwnTransaction.__enter__ = counted  # type: ignore[method-assign]

        def mark() -> None:
            idle["since"], idle["cpu_then"], idle["sent_then"] = time.monotonic(), time.process_time(), sent[0]

        timer = threading.Timer(settle, mark)
        timer.daemon = True
        timer.start()
        began = time.monotonic()
        worker.run(until_empty=until_empty)
        seconds = time.monotonic() - began
        timer.cancel()
        result = {
            "seconds": seconds,
            "cpu": time.process_time(),
            "peak": peak_memory(),
            "waits": waits,
            "starts": starts,
            "sent": sent[0],
        }
        if "since" in idle:
            result["idle_seconds"] = time.monotonic() - idle["since"]
            result["idle_cpu"] = time.process_time() - idle["cpu_then"]
            result["idle_statements"] = sent[0] - idle["sent_then"]
        return result


if __name__ == "__main__":
    print(json.dumps(run(**json.load(sys.stdin))))  # noqa: T201
