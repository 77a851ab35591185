"""Reschedules waiting jobs: gives them another due time or another priority."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import Any, NamedTuple

from queue_db import arguments
from queue_db.core import Core
from queue_db.database.transaction import Run
from queue_db.dialects.statements import NEXT_VERSION
from queue_db.dialects.statements import due as due_text
from queue_db.errors import ArgumentError, JobStateError
from queue_db.model import Group, Job, State, Verdict, to_micros
from queue_db.slices import dependents
from queue_db.store import Transaction
from queue_db.store.schema import NEVER
from queue_db.verbs.find_job import change_job


class Due(NamedTuple):
    """When a job is due: ``after`` microseconds from now, and not before ``not_before``."""

    after: int
    not_before: int


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

    :raises ArgumentError: neither ``run_at`` nor ``delay`` nor ``priority`` is given.
    :raises JobNotFoundError: there is no such live job.
    :raises JobStateError: the job is running, or the job is blocked and a new time is given.
    """
    due = _due(run_at, delay)
    if priority is not None:
        arguments.whole("priority", priority, -(2**31))
    elif due is None:
        raise ArgumentError("nothing to change: give run_at, delay or priority")

    def change(job: Job) -> bool:
        _check(job, due)
        return core.run(Run("reschedule"), _reschedule, core, job, due, priority)

    return change_job(core, queue, job_id, version, change)


def _due(run_at: datetime | None, delay: float | None) -> Due | None:
    not_before = arguments.moment("run_at", run_at)
    after = None if delay is None else arguments.seconds("delay", delay)
    return None if not_before is None and after is None else Due(after or 0, not_before or 0)


def _check(job: Job, due: Due | None) -> None:
    if job.state is State.RUNNING or to_micros(job.available_at) == NEVER:
        raise JobStateError(job.id, State.RUNNING, f"job {job.id} is running: its worker settles it; or cancel it")
    if job.state is State.BLOCKED and due is not None:
        which = f"job {job.id} is blocked in its group {job.group!r}"
        raise JobStateError(job.id, State.BLOCKED, f"{which}: it is due when those before it have left; its priority may change")


def _reschedule(tx: Transaction, core: Core, job: Job, due: Due | None, priority: int | None) -> bool:
    group = Group(job.queue, job.group) if job.state is State.BLOCKED and job.group is not None else None
    new_priority = None if priority == job.priority else priority
    if not change_waiting(tx, job.id, job.version, due=due, priority=new_priority, group=group):
        return False
    if priority is not None:
        tx.after_commit(partial(core.marks[job.queue].add, priority))
    tx.wake(job.queue)
    return True


def change_waiting(
    tx: Transaction, job_id: int, version: int, *, due: Due | None, priority: int | None, group: Group | None
) -> bool:
    """Change the waiting job if it still has ``version``; return whether it was changed.

    :param due: the new due time; None: the time stays.
    :param priority: the new priority; None: the priority stays.
    :param group: the group in which the job is blocked; None: the job is not blocked. A blocked job stays blocked, so ``due`` must
        not be given.
    """
    assignments, values = [f"version = {NEXT_VERSION}"], dict[str, Any](tx.time())
    if group is not None:
        # Lock the group. Otherwise another transaction that is about to unblock this job would not find the version that it has
        # read, and the job would stay blocked.
        dependents().enter(tx, [group])
    else:
        time = "available_at"
        if due is not None:
            time = f"({due_text('{now}')})"
            values |= {"new_after": due.after, "new_not_before": due.not_before}
        if priority is not None:
            # Claims start at the low-water mark of each priority, so the new time must not be before now.
            assignments.append(f"available_at = CASE WHEN {time} > {{now}} THEN {time} ELSE {{now}} END")
        elif due is not None:
            # A job that is due and stays due keeps its time, and so its place.
            keeps = f"available_at <= {{now}} AND {time} <= {{now}}"
            assignments.append(f"available_at = CASE WHEN {keeps} THEN available_at ELSE {time} END")
        # If the job had a lease, the lease has ended: remove its traces.
        assignments.append("claim_token = NULL, worker = NULL, progress = NULL, progress_note = NULL")
    if priority is not None:
        assignments.append("priority = :new_priority")
        values["new_priority"] = priority
    return bool(tx.dialect.change(tx, tx.tables.jobs, [(job_id, version)], ", ".join(assignments), values))
