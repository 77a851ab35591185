"""Operations on the database as a whole."""

from __future__ import annotations

from queue_db.db import QueueDB
from queue_db.operations.actor import Actor
from queue_db.operations.entry import entry


def prune(db: QueueDB, actor: Actor) -> int:
    """Delete what has expired: results, unique keys, old failed attempts, old entries of the action log; return how many rows."""
    actor.check_all("manage")
    with entry(db, actor, "prune", "expired rows"):
        return db.prune()
