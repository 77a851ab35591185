"""Deleting jobs, a bounded number with each call: what a delete mark left behind, and those of a queue that wait."""

from __future__ import annotations

from sqlalchemy import and_, func, or_, select

from queue_db.dialects.clock import moment
from queue_db.store import on_leave
from queue_db.store.base import Transaction
from queue_db.store.batches import Departure
from queue_db.store.schema import MARKED


def delete_marked(tx: Transaction, limit: int, *, everywhere: bool = False) -> int:
    """Delete up to ``limit`` jobs that are marked as done; return how many.

    :param everywhere: also those in other places than :func:`queue_db.store.settle.mark` moves them to. Reads the whole table.
    """
    jobs = tx.tables.jobs
    query = select(jobs.c.id, jobs.c.version).where(jobs.c.delete_mark == 1).limit(limit)
    # Those of MARKED in no order: a planner that expects few of them would read and sort them all.
    query = query.order_by(jobs.c.id) if everywhere else tx.dialect.by_claim(query.where(jobs.c.queue == MARKED), jobs)
    pairs = [(row.id, row.version) for row in tx.connection.execute(query)]
    return len(tx.dialect.delete_returning(tx, jobs, pairs)) if pairs else 0


def highest(tx: Transaction) -> int:
    """The highest id of a live job; 0 if there is none."""
    jobs = tx.tables.jobs
    return int(tx.connection.execute(select(func.max(jobs.c.id))).scalar() or 0)


def delete_waiting(tx: Transaction, queue: str, above: int, upto: int, limit: int) -> tuple[int, int | None]:
    """Delete up to ``limit`` jobs of ``queue`` that are not leased, with ids above ``above`` up to ``upto``.

    Returns how many were deleted, and the id to go on from; None when there are no more.
    """
    jobs = tx.tables.jobs
    waiting = or_(jobs.c.claim_token.is_(None), jobs.c.available_at <= moment(tx.store.clock is not None))
    query = (
        select(jobs.c.id, jobs.c.version)
        .where(and_(jobs.c.queue == queue, jobs.c.id > above, jobs.c.id <= upto, jobs.c.delete_mark == 0, waiting))
        .order_by(jobs.c.id)
        .limit(limit)
    )
    pairs = [(row.id, row.version) for row in tx.connection.execute(query, tx.time())]
    if not pairs:
        return 0, None
    # Fenced like every change: a job that was claimed between the two statements stays.
    gone = on_leave.delete(tx, pairs, lambda _: Departure.CANCELLED)
    return len(gone), pairs[-1][0]
