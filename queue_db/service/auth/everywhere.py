"""Requests that are not about one queue: they need the scope for the queue that they name, or for all."""

from __future__ import annotations

from queue_db.db import QueueDB
from queue_db.errors import JobNotFoundError
from queue_db.model import Job
from queue_db.operations.actor import Actor


def check(who: Actor, scope: str, queue: str | None) -> None:
    """Raise unless the token has this scope for the queue, or for every queue if None.

    :raises ForbiddenError: it has not.
    """
    if queue is not None:
        who.check(scope, queue)
    else:
        who.check_all(scope)


def job(db: QueueDB, who: Actor, scope: str, job_id: int) -> Job:
    """The live or dead job with this id.

    :raises JobNotFoundError: there is none, or the token lacks the scope for its queue, whose name it does not get.
    """
    found = db.get(job_id)
    if not who.allows(scope, found.queue):
        raise JobNotFoundError(job_id, "any queue")
    return found
