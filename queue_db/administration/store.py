"""The SQL of administration: reschedule, cancel, purge, sweep and prune."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from sqlalchemy import Column, and_, delete, func, or_, select, tuple_

from queue_db.dialects.statements import NEXT_VERSION
from queue_db.dialects.statements import due as due_text
from queue_db.model import Group, Job, State
from queue_db.slices import dependents
from queue_db.store import Transaction, on_leave
from queue_db.store.on_leave import Departure
from queue_db.store.portions import AT_ONCE
from queue_db.store.schema import MARKED

# --- one job ------------------------------------------------------------------------------------------------------------


class Due(NamedTuple):
    """When a job is due: ``after`` microseconds from now, and not before ``not_before``."""

    after: int
    not_before: int


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


def cancel(tx: Transaction, job: Job) -> bool:
    """Delete the job if it still has its version; return whether it was deleted."""
    gone = on_leave.delete(tx, [(job.id, job.version)], lambda _: Departure.CANCELLED)
    if gone and job.state is State.RUNNING:
        tx.wake_cancelled(job.id)
    return bool(gone)


# --- many jobs ----------------------------------------------------------------------------------------------------------


def highest_id(tx: Transaction) -> int:
    """The highest id of a live job; 0 if there is no live job."""
    jobs = tx.tables.jobs
    return int(tx.connection.execute(select(func.max(jobs.c.id))).scalar() or 0)


def delete_waiting(tx: Transaction, queue: str, above: int, upto: int, limit: int) -> tuple[int, int | None]:
    """Delete up to ``limit`` jobs of ``queue`` that are not leased and have ids above ``above`` and up to ``upto``.

    :return: the number of deleted jobs, and the id after which to continue. The id is None if no jobs are left.
    """
    jobs = tx.tables.jobs
    waiting = or_(jobs.c.claim_token.is_(None), jobs.c.available_at <= tx.now)
    query = (
        select(jobs.c.id, jobs.c.version)
        .where(and_(jobs.c.queue == queue, jobs.c.id > above, jobs.c.id <= upto, jobs.c.delete_mark == 0, waiting))
        .order_by(jobs.c.id)
        .limit(limit)
    )
    pairs = [(row.id, row.version) for row in tx.connection.execute(query, tx.time())]
    if not pairs:
        return 0, None
    # The deletion is fenced, as every change: a job that was claimed between the two statements stays.
    gone = on_leave.delete(tx, pairs, lambda _: Departure.CANCELLED)
    return len(gone), pairs[-1][0]


def delete_marked(tx: Transaction, limit: int, *, everywhere: bool) -> int:
    """Delete up to ``limit`` jobs that are marked as done; return the number of deleted jobs.

    :func:`queue_db.store.settle.mark` moves the jobs that it marks to the queue ``MARKED``.

    :param everywhere: also delete marked jobs that are in another queue. This reads the whole table.
    """
    jobs = tx.tables.jobs
    query = select(jobs.c.id, jobs.c.version).where(jobs.c.delete_mark == 1).limit(limit)
    # The jobs of the queue MARKED are read without an order: with one, a planner that expects few jobs would read and sort all.
    query = query.order_by(jobs.c.id) if everywhere else tx.dialect.by_claim(query.where(jobs.c.queue == MARKED), jobs)
    pairs = [(row.id, row.version) for row in tx.connection.execute(query)]
    return len(tx.dialect.delete_returning(tx, jobs, pairs)) if pairs else 0


# --- expired rows -------------------------------------------------------------------------------------------------------


def prune_errors(tx: Transaction, age: int, limit: int) -> int:
    """Delete up to ``limit`` failed attempts that are older than ``age`` microseconds; return how many."""
    return delete_before(tx, tx.tables.errors.c.failed_at, tx.read_clock() - age, limit)


def prune_finished(tx: Transaction, limit: int) -> int:
    """Delete up to ``limit`` finished jobs that have expired; return how many."""
    return delete_before(tx, tx.tables.finished.c.expires_at, tx.read_clock(), limit)


def prune_unique_keys(tx: Transaction, limit: int) -> int:
    """Delete up to ``limit`` expired unique keys; return how many."""
    return delete_before(tx, tx.tables.windows.c.ends_at, tx.read_clock() + 1, limit)


def delete_before(tx: Transaction, column: Column[int], before: int, limit: int) -> int:
    """Delete up to ``limit`` rows whose time in ``column`` is earlier than ``before``; return how many."""
    table = column.table
    keys = list(table.primary_key.columns)
    rows = tx.connection.execute(select(*keys).where(column < before).order_by(column).limit(limit)).all()
    if not rows:
        return 0
    old = keys[0].in_([row[0] for row in rows]) if len(keys) == 1 else tuple_(*keys).in_([tuple(row) for row in rows])
    # Check the time again, since a row may have got a later time after the SELECT.
    return tx.connection.execute(delete(table).where(old, column < before)).rowcount


def repeated(delete: Callable[[int], int], limit: int | None = None) -> int:
    """Call ``delete(most)`` until it deletes fewer than ``most`` rows, or until the calls have deleted ``limit`` rows in total.

    Each call is a separate transaction, so that other transactions wait only for a part of the rows.

    :param limit: the most rows to delete in total; None: no limit.
    :return: the number of deleted rows.
    """
    deleted = 0
    while limit is None or deleted < limit:
        most = AT_ONCE if limit is None else min(AT_ONCE, limit - deleted)
        gone = delete(most)
        deleted += gone
        if gone < most:
            break
    return deleted
