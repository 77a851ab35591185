"""What monitoring adds to the queue."""

from queue_db.db import QueueDB
from queue_db.monitoring import tables
from queue_db.monitoring.store import actions
from queue_db.slices import Slice, Task

#: Seconds between two reports of what a process did.
METRICS_EVERY = 10.0


def _tasks(db: QueueDB) -> list[Task]:
    def write() -> bool:
        db.metrics.take()
        return False

    return [Task("writing metrics", METRICS_EVERY, write)]


SLICE = Slice(tables=tables.described, prune=actions.prune, tasks=_tasks)
