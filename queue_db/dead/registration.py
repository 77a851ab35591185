"""What the operations on dead jobs add to the queue: a worker deletes old ones."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

from queue_db.db import QueueDB
from queue_db.slices import AGAIN, Slice, Task

if TYPE_CHECKING:
    from queue_db.worker.options import Options

log = logging.getLogger("queue_db.worker")

# Seconds between two runs.
_EVERY = 60.0

#: The most dead jobs of a queue deleted at a time.
PRUNE_LIMIT = 1000


def prune(db: QueueDB, queues: Iterable[str], dead_for: float | None, dead_at_most: int | None) -> float | None:
    """Delete jobs of these queues that died more than ``dead_for`` seconds ago, and the oldest above ``dead_at_most``."""
    more = False
    for queue in queues:
        for limit in ({"older_than": dead_for}, {"keep": dead_at_most}):
            if None in limit.values():
                continue
            deleted = db.dead.purge(queue, limit=PRUNE_LIMIT, **limit)
            more = more or deleted == PRUNE_LIMIT
            if deleted:
                log.info("deleted %d dead jobs of %r", deleted, queue)
    return AGAIN if more else None


def _tasks(db: QueueDB, options: Options) -> list[Task]:
    if options.dead_for is None and options.dead_at_most is None:
        return []
    run = partial(prune, db, options.limits, options.dead_for, options.dead_at_most)
    return [Task("deleting dead jobs", _EVERY, run, at_start=True)]


SLICE = Slice(tasks=_tasks)
