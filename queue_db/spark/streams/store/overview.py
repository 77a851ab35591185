"""What streams hold, and what waits for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, Row, case, func, select

from queue_db.spark.tables import spark_tables
from queue_db.store.base import Transaction


def listed(tx: Transaction, queue: str | None = None) -> Sequence[Row[Any]]:
    """All streams by name, with their held jobs and batches, since when (microseconds), and the time as ``now``."""
    ours = spark_tables(tx.tables)
    streams, batches = ours.streams, ours.batches
    query = (
        select(
            streams,
            tx.now.label("now"),
            func.coalesce(func.sum(batches.c.size), 0).label("held"),
            func.count(batches.c.batch).label("batches"),
            func.coalesce(func.sum(case((batches.c.deliveries > 0, batches.c.size), else_=0)), 0).label("maybe_written"),
            func.coalesce(func.max(batches.c.deliveries), 0).label("deliveries"),
            func.min(batches.c.oldest_at).label("oldest_at"),
        )
        .select_from(streams.outerjoin(batches, batches.c.stream == streams.c.id))
        .group_by(*streams.c)
        .order_by(streams.c.name)
    )
    if queue is not None:
        query = query.where(streams.c.queue == queue)
    return tx.connection.execute(query, tx.time()).all()


def maybe_written(tx: Transaction, name: str) -> int:
    """Number of held jobs that were delivered to a query, which may have written them."""
    ours = spark_tables(tx.tables)
    streams, batches = ours.streams, ours.batches
    query = select(func.coalesce(func.sum(batches.c.size), 0)).join(streams, streams.c.id == batches.c.stream)
    return int(tx.connection.execute(query.where(streams.c.name == name, batches.c.deliveries > 0)).scalar_one())


def highest_due(tx: Transaction, queue: str) -> int | None:
    """The highest id of a due job of ``queue``; later jobs have higher ids."""
    jobs = tx.tables.jobs
    due = _due(tx, queue, None)
    found: int | None = tx.connection.execute(select(func.max(jobs.c.id)).where(*due), tx.time()).scalar()
    return found


def backlog(tx: Transaction, queue: str, since: int | None = None) -> tuple[int, int | None]:
    """Number of due jobs of ``queue``, and the age of the longest waiting one (microseconds). Reads all of them.

    :param since: only jobs that were enqueued at this time or later, microseconds since 1970.
    """
    jobs = tx.tables.jobs
    now = tx.now
    due = _due(tx, queue, since)
    seen = select(func.count(), func.min(jobs.c.available_at), func.max(now)).where(*due)
    count, oldest, read_at = tx.connection.execute(seen, tx.time()).one()
    return int(count), None if oldest is None else int(read_at) - int(oldest)


def _due(tx: Transaction, queue: str, since: int | None) -> list[ColumnElement[bool]]:
    jobs = tx.tables.jobs
    due = [jobs.c.queue == queue, jobs.c.available_at <= tx.now, jobs.c.delete_mark == 0]
    return due if since is None else [*due, jobs.c.created_at >= since]
