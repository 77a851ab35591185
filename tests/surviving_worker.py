"""A worker whose server fails: it goes on with the next one by itself."""

from __future__ import annotations

import threading
from collections.abc import Callable

from queue_db import LeasedJob, QueueDB
from queue_db.worker import Worker
from tests.patience import PATIENCE, wait_for


def works_before_and_after(db: QueueDB, name: str, fail: Callable[[], object], other: QueueDB) -> None:
    """A worker runs a job, its server fails, and it runs the job that ``other`` enqueues after that; then nothing runs."""
    done = {kind: threading.Event() for kind in ("before", "after")}
    worker = Worker(db, name)

    @worker.handles(None)
    def work(job: LeasedJob) -> None:
        done[job.kind].set()

    with worker:
        db.queue(name).enqueue("before")
        assert done["before"].wait(PATIENCE)
        fail()
        other.queue(name).enqueue("after")
        assert done["after"].wait(PATIENCE)
    wait_for(lambda: other.queue(name).stats().running == 0)  # another node of a cluster may see it a moment later
