"""Operations on workers."""

from __future__ import annotations

from queue_db.db import QueueDB
from queue_db.operations.actor import Actor
from queue_db.operations.entry import entry


def rescue(db: QueueDB, actor: Actor, worker: str) -> int:
    """Release the jobs of a dead worker, and its spans of shared cursors; return how many.

    :param worker: the name that jobs show, or that of the worker in ``db.workers``, which is the same with a number.
    """
    actor.check_all("manage")
    if any(one.name == worker for one in db.workers()):
        worker = worker.rpartition("#")[0] or worker
    with entry(db, actor, "rescue", f"worker {worker}"):
        return db.rescue(worker)
