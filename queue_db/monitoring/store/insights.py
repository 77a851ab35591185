"""Finds jobs and groups that make no progress or break a limit. The queries take no locks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import BigInteger, Row, func, literal, or_, select

from queue_db.store.base import Transaction
from queue_db.store.schema import BLOCKED


def parked(tx: Transaction, ahead: int, limit: int) -> list[Row[Any]]:
    """``queue, kind, jobs, since, read_at`` of jobs that wait because no worker has had a handler for their kind.

    It reads up to ``limit`` jobs that become due within ``ahead`` microseconds, and up to ``limit`` due jobs. If there are more,
    the counts are lower bounds. Jobs without a handler are put off by less than ``ahead`` each time. A kind may have two rows.
    """
    jobs = tx.tables.jobs
    now = tx.read_clock()  # the same time for both queries, so that no job is counted twice
    rows: list[Row[Any]] = []
    for near in ((jobs.c.available_at > now, jobs.c.available_at <= now + ahead), (jobs.c.available_at <= now,)):
        ids = select(jobs.c.id).where(*near).limit(limit).subquery()
        query = (
            select(
                jobs.c.queue,
                jobs.c.kind,
                func.count().label("jobs"),
                func.min(jobs.c.unknown_since).label("since"),
                literal(now, BigInteger).label("read_at"),
            )
            .join_from(ids, jobs, jobs.c.id == ids.c.id)
            .where(jobs.c.unknown_since.is_not(None), jobs.c.delete_mark == 0)
            # Not the jobs in hand: their workers may have a handler.
            .where(or_(jobs.c.claim_token.is_(None), jobs.c.available_at <= now))
            .group_by(jobs.c.queue, jobs.c.kind)
        )
        rows += tx.connection.execute(query)
    return rows


def crowded(tx: Transaction, limit: int) -> Sequence[Row[Any]]:
    """``queue, group_key, admitted, allowed`` of groups that have more admitted jobs than may run. Reads all grouped jobs."""
    jobs, queues = tx.tables.jobs, tx.tables.queues
    allowed = func.coalesce(func.max(queues.c.per_group), 1)
    query = (
        select(jobs.c.queue, jobs.c.group_key, func.count().label("admitted"), allowed.label("allowed"))
        .select_from(jobs.outerjoin(queues, queues.c.name == jobs.c.queue))
        .where(jobs.c.group_key.is_not(None), jobs.c.available_at != BLOCKED)
        .group_by(jobs.c.queue, jobs.c.group_key)
        .having(func.count() > allowed)
        .order_by(jobs.c.queue, jobs.c.group_key)
        .limit(limit)
    )
    return tx.connection.execute(query).all()
