"""Operations on groups."""

from __future__ import annotations

from queue_db.db import QueueDB
from queue_db.operations.actor import Actor
from queue_db.operations.entry import entry


def repair(db: QueueDB, actor: Actor, queue: str) -> int:
    """Unblock the groups of the queue whose next job waits for no other job; return the number of groups."""
    actor.check("manage", queue)
    with entry(db, actor, "repair", f"groups of queue {queue}", of="groups.repair"):
        return db.queue(queue).repair_groups()
