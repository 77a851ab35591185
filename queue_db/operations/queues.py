"""Operations on a queue as a whole."""

from __future__ import annotations

from queue_db.db import QueueDB
from queue_db.operations.actor import Actor
from queue_db.operations.entry import entry


def pause(db: QueueDB, actor: Actor, queue: str) -> None:
    """Stop all workers from claiming jobs of the queue until it is resumed."""
    actor.check("manage", queue)
    with entry(db, actor, "pause", f"queue {queue}"):
        db.queue(queue).pause()


def resume(db: QueueDB, actor: Actor, queue: str) -> None:
    """Let workers claim from the queue again."""
    actor.check("manage", queue)
    with entry(db, actor, "resume", f"queue {queue}"):
        db.queue(queue).resume()


def purge(db: QueueDB, actor: Actor, queue: str) -> int:
    """Delete all due, scheduled and blocked jobs of the queue; return how many."""
    actor.check("manage", queue)
    with entry(db, actor, "purge", f"queue {queue}", number=lambda answer: answer[0]):
        return db.queue(queue).purge()
