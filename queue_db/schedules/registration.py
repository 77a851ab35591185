"""What schedules add to the queue."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from queue_db.db import QueueDB
from queue_db.schedules import store, tables
from queue_db.slices import Slice, Task

if TYPE_CHECKING:
    from queue_db.worker.options import Options

log = logging.getLogger("queue_db.worker")

# Seconds between two ticks of a worker: with schedules in the database, and without.
_EVERY, _WITHOUT = 1.0, 5.0


def _tasks(db: QueueDB, options: Options) -> list[Task]:
    def tick() -> float:
        enqueued, wait = db.schedules.tick()
        if enqueued:
            log.debug("enqueued %d jobs of schedules", enqueued)
        return _WITHOUT if wait is None else min(wait, _EVERY)

    task = Task("enqueueing the jobs of schedules", _EVERY, tick, at_start=True, enqueues=True)
    return [task] if options.schedules else []


SLICE = Slice(tables=tables.described, knows=store.knows, tasks=_tasks)
