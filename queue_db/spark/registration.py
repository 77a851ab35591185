"""What Spark adds to the queue."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from queue_db.db import QueueDB
from queue_db.slices import Slice, Task
from queue_db.spark import tables
from queue_db.spark.streams.store import holding

if TYPE_CHECKING:
    from queue_db.worker.options import Options

log = logging.getLogger("queue_db.worker")

# Seconds between two looks of a worker for streams without readers.
_EXPIRE_EVERY = 60.0


def _tasks(db: QueueDB, _: Options) -> list[Task]:
    def expire() -> None:
        for name in db.streams.expire():
            log.warning("stream %r has expired without a reader: its jobs are back in their queue", name)

    return [Task("expiring streams", _EXPIRE_EVERY, expire)]


SLICE = Slice(tables=tables.described, holder=holding, knows=holding.knows, tasks=_tasks)
