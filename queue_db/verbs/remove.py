"""Removes jobs: cancels one, purges a queue, and deletes the jobs that ``removal="delete_mark"`` has marked."""

from __future__ import annotations

from sqlalchemy import and_, func, or_, select

from queue_db.core import Core
from queue_db.database.transaction import Run
from queue_db.model import Job, State, Verdict
from queue_db.store import Transaction, on_leave
from queue_db.store.on_leave import Departure
from queue_db.store.portions import AT_ONCE
from queue_db.store.schema import MARKED
from queue_db.verbs.find_job import change_job


def cancel_job(core: Core, queue: str | None, job_id: int, *, version: int | None) -> Verdict:
    """Cancel a live job, in any state.

    :param queue: the job's queue; None: it may be in any queue.
    :param version: cancel the job only if it still has this version.
    :return: LOST for the reasons of :func:`change_job`, or because a stream holds the job and cannot give it back.
    :raises JobNotFoundError: there is no such live job.
    """
    return change_job(core, queue, job_id, version, lambda job: core.run(Run("cancel"), _cancel, job))


def purge_queue(core: Core, queue: str) -> int:
    """Delete all due, scheduled and blocked jobs of ``queue``, in portions; return the number of deleted jobs."""
    # Jobs that are enqueued during the purge must stay, such as the callback job of a batch. Their ids are above ``upto``.
    upto = core.run(Run("purge", write=False), _highest_id)
    deleted, above = 0, -1
    while True:
        gone, last = core.run(Run("purge"), _delete_waiting, queue, above=above, upto=upto, limit=AT_ONCE)
        deleted += gone
        if last is None:
            return deleted
        above = last


def _cancel(tx: Transaction, job: Job) -> bool:
    gone = on_leave.delete(tx, [(job.id, job.version)], lambda _: Departure.CANCELLED)
    if gone and job.state is State.RUNNING:
        tx.wake_cancelled(job.id)
    return bool(gone)


def delete_marked(tx: Transaction, limit: int, *, everywhere: bool = False) -> int:
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


def _highest_id(tx: Transaction) -> int:
    """The highest id of a live job; 0 if there is no live job."""
    jobs = tx.tables.jobs
    return int(tx.connection.execute(select(func.max(jobs.c.id))).scalar() or 0)


def _delete_waiting(tx: Transaction, queue: str, above: int, upto: int, limit: int) -> tuple[int, int | None]:
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
