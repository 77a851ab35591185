"""Jobs by ranges of ids: for readers that share the work of reading all of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, func, select

from queue_db.store.base import Store

#: What a reader is told of a job, in this order.
COLUMNS = ("id", "kind", "payload", "headers", "priority", "attempts", "created_at", "version")


def of_queue(connection: Connection, store: Store, queue: str) -> tuple[int, int] | None:
    """The lowest and the highest id of the live jobs of ``queue``; None if there are none."""
    jobs = store.tables.jobs
    low, high = connection.execute(
        select(func.min(jobs.c.id), func.max(jobs.c.id)).where(jobs.c.queue == queue, jobs.c.delete_mark == 0)
    ).one()
    return None if low is None else (low, high)


def jobs(connection: Connection, store: Store, queue: str, *, after: int, high: int, limit: int) -> Sequence[Sequence[Any]]:
    """Up to ``limit`` live jobs of ``queue`` with ids above ``after`` and up to ``high``, by id."""
    table = store.tables.jobs
    query = (
        select(*(table.c[name] for name in COLUMNS))
        .where(table.c.queue == queue, table.c.delete_mark == 0, table.c.id > after, table.c.id <= high)
        .order_by(table.c.id)
        .limit(limit)
    )
    return connection.execute(store.dialect.by_id(query, table)).all()
