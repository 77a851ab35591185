"""Rescheduling a job that waits."""

from __future__ import annotations

from datetime import datetime
from functools import partial

from queue_db import arguments
from queue_db.core import Core
from queue_db.database.transaction import Run
from queue_db.errors import ArgumentError, JobDeadError, JobStateError
from queue_db.model import MOST_VERSION, Group, Job, State, Verdict, to_micros
from queue_db.store import Transaction, reschedule
from queue_db.store.reschedule import Due
from queue_db.store.schema import NEVER
from queue_db.verbs.find_job import CHANGE_ATTEMPTS, find_job


def reschedule_job(
    core: Core,
    queue: str,
    job_id: int,
    *,
    run_at: datetime | None,
    delay: float | None,
    priority: int | None,
    version: int | None,
) -> Verdict:
    """Change the due time or the priority of a waiting job of ``queue``.

    :raises ArgumentError: nothing to change is given.
    :raises JobNotFoundError: there is no such live job.
    :raises JobStateError: it runs, or is blocked and is to have another time.
    """
    due = _due(run_at, delay)
    if priority is not None:
        arguments.whole("priority", priority, -(2**31))
    elif due is None:
        raise ArgumentError("nothing to change: give run_at, delay or priority")
    if version is not None:
        arguments.whole("version", version, 0, MOST_VERSION)
    for _ in range(CHANGE_ATTEMPTS):
        job = find_job(core, job_id, queue)
        if version is not None and job.version != version:
            return Verdict.LOST
        _check(job, due)
        if core.run(Run("reschedule"), _reschedule, core, job, due, priority):
            return Verdict.APPLIED
    return Verdict.LOST


def _due(run_at: datetime | None, delay: float | None) -> Due | None:
    not_before = arguments.moment("run_at", run_at)
    after = None if delay is None else arguments.seconds("delay", delay)
    return None if not_before is None and after is None else Due(after or 0, not_before or 0)


def _check(job: Job, due: Due | None) -> None:
    if job.state is State.DEAD:
        raise JobDeadError(job.id)
    if job.state is State.RUNNING or to_micros(job.available_at) == NEVER:
        raise JobStateError(job.id, State.RUNNING, f"job {job.id} is running: its worker settles it; or cancel it")
    if job.state is State.BLOCKED and due is not None:
        which = f"job {job.id} is blocked in its group {job.group!r}"
        raise JobStateError(job.id, State.BLOCKED, f"{which}: it is due when those before it have left; its priority may change")


def _reschedule(tx: Transaction, core: Core, job: Job, due: Due | None, priority: int | None) -> bool:
    group = Group(job.queue, job.group) if job.state is State.BLOCKED and job.group is not None else None
    changed = reschedule.reschedule(
        tx,
        job.id,
        job.version,
        due=due,
        priority=None if priority == job.priority else priority,
        group=group,
    )
    if changed:
        if priority is not None:
            tx.after_commit(partial(core.marks[job.queue].add, priority))
        tx.wake(job.queue)
    return changed
