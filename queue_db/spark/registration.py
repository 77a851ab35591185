"""What Spark adds to the queue."""

import logging

from queue_db.db import QueueDB
from queue_db.slices import Slice, Task
from queue_db.spark import tables
from queue_db.spark.streams.store import holding

log = logging.getLogger("queue_db.worker")

# Seconds between two looks of a worker for streams without readers.
_EXPIRE_EVERY = 60.0


def _tasks(db: QueueDB) -> list[Task]:
    def expire() -> bool:
        for name in db.streams.expire():
            log.warning("stream %r has expired without a reader: its jobs are back in their queue", name)
        return False

    return [Task("expiring streams", _EXPIRE_EVERY, expire)]


SLICE = Slice(tables=tables.described, holder=holding, tasks=_tasks)
