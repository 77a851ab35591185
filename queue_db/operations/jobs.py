"""Operations on single jobs."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from queue_db.db import QueueDB
from queue_db.model import Job
from queue_db.operations import rights
from queue_db.operations.actor import Actor
from queue_db.operations.entry import entry


@dataclass(frozen=True, slots=True, kw_only=True)
class OneJob:
    """A live job, by its id."""

    id: int
    queue: str | None = None  #: only in this queue; None: in any
    version: int | None = None  #: only if it still has this version


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTime:
    """When a waiting job is due, and its priority; at least one of them. ``delay=0``: now."""

    run_at: datetime | None = None
    delay: float | None = None
    priority: int | None = None


def cancel(db: QueueDB, actor: Actor, one: OneJob) -> Job | None:
    """Remove a live job in any state; a worker that runs it loses its lease.

    :return: the job as it was; None: it has another version, or changes too fast.
    :raises JobNotFoundError: there is no such live job, or it is none of the actor's queues.
    """
    job = rights.job(db, actor, "manage", one.id, one.queue)
    with entry(db, actor, "cancel", f"job {one.id}", detail={"queue": job.queue, "kind": job.kind}, of="cancel"):
        return job if db.queue(job.queue).cancel(job.id, version=one.version) else None


def reschedule(db: QueueDB, actor: Actor, one: OneJob, new: NewTime) -> Job | None:
    """Give a waiting job another due time or priority.

    :return: the job as it was; None: it has another version, or changes too fast.
    :raises JobNotFoundError: there is no such live job, or it is none of the actor's queues.
    :raises JobStateError: it is running, or blocked in its group and a time is given.
    """
    job = rights.job(db, actor, "manage", one.id, one.queue)
    run_at = None if new.run_at is None else new.run_at.isoformat(timespec="microseconds").replace("+00:00", "Z")
    detail = {"queue": job.queue, "kind": job.kind, "run_at": run_at, "delay": new.delay, "priority": new.priority}
    with entry(db, actor, "reschedule", f"job {one.id}", detail=detail, of="reschedule"):
        verdict = db.queue(job.queue).reschedule(
            job.id, run_at=new.run_at, delay=new.delay, priority=new.priority, version=one.version
        )
    return job if verdict else None
