"""What monitoring adds to the queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

from queue_db.db import QueueDB
from queue_db.monitoring import tables
from queue_db.monitoring.store import actions
from queue_db.slices import Slice, Task

if TYPE_CHECKING:
    from queue_db.worker.options import Options

#: Seconds between two reports of what a process did.
METRICS_EVERY = 10.0


def _tasks(db: QueueDB, _: Options) -> list[Task]:
    def write() -> None:
        db.metrics.take()

    return [Task("writing metrics", METRICS_EVERY, write)]


SLICE = Slice(tables=tables.described, prune=actions.prune, tasks=_tasks)
