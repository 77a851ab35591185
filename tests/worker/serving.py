"""Workers for the tests."""

from __future__ import annotations

from queue_db import Queue
from queue_db.worker import Worker


def serving(queue: Queue, handler: object, **options: object) -> Worker:
    """A worker of one queue with one handler for all kinds, or with one for each of a mapping."""
    worker = Worker(queue.db, queue.name, **options)
    for kind, function in handler.items() if isinstance(handler, dict) else [(None, handler)]:
        worker.handles(kind)(function)
    return worker
