"""How many functions of the package a worker calls for each job that does nothing, in all its threads: figures without time."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from types import FrameType
from typing import Any, Self

from queue_db import QueueDB
from queue_db.leased_job import LeasedJob
from queue_db.worker import Worker

#: Jobs before the count begins, and jobs that are counted.
WARM, COUNTED = 200, 1000


class Calls:
    """Counts calls in the threads that start while it is installed. Comprehensions and generator expressions do not count."""

    def __init__(self) -> None:
        self.on = False
        self.by_thread: dict[str, Counter[str]] = {}

    def __enter__(self) -> Self:
        threading.setprofile(self._begin)
        return self

    def __exit__(self, *exc: object) -> None:
        threading.setprofile(None)  # type: ignore[arg-type]

    def _begin(self, frame: FrameType, event: str, argument: Any) -> None:
        """The first event of a thread: from now on its own counter notes them, without a lock."""
        mine = self.by_thread.setdefault(threading.current_thread().name, Counter())

        def note(frame: FrameType, event: str, _: Any) -> None:
            if event == "call" and self.on and str(frame.f_globals.get("__name__", "")).startswith("queue_db."):
                code = frame.f_code
                if not code.co_name.startswith("<") or code.co_name == "<lambda>":
                    mine[f"{frame.f_globals['__name__'].removeprefix('queue_db.')} {code.co_qualname}"] += 1

        sys.setprofile(note)

    def total(self) -> int:
        return sum(sum(counter.values()) for counter in self.by_thread.values())

    def text(self, jobs: int) -> str:
        lines = []
        for thread, counter in self.by_thread.items():
            lines.append(f"{thread}: {sum(counter.values()) / jobs:.2f}")
            lines += [f"  {number / jobs:7.3f} {name}" for name, number in counter.most_common() if number > jobs / 100]
        return "\n".join(lines)


def calls_per_job(db: QueueDB, queue: str, **options: Any) -> tuple[float, str]:
    """Functions called per job, and which."""
    db.queue(queue).enqueue_many([("work", None) for _ in range(WARM + COUNTED + WARM)])
    worker = Worker(db, queue, schedules=False, **options)
    calls, begun = Calls(), 0

    @worker.handles("work")
    def work(job: LeasedJob) -> None:
        nonlocal begun
        begun += 1
        if begun == WARM:
            calls.on = True
        elif begun == WARM + COUNTED:
            calls.on = False

    with calls, worker:
        while begun < WARM + COUNTED:
            threading.Event().wait(0.01)
    return calls.total() / COUNTED, calls.text(COUNTED)
