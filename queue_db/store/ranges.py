"""Jobs by ranges of ids: for readers that share the work of reading all of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Select, func, select

from queue_db.store.base import Store

#: What a reader is told of a job, in this order.
COLUMNS = ("id", "kind", "payload", "headers", "priority", "attempts", "created_at", "version")

Rows = Sequence[Sequence[Any]] | bytes
"""Rows of :data:`COLUMNS`, or the same as CSV."""


def of_queue(connection: Connection, store: Store, queue: str) -> tuple[int, int] | None:
    """The lowest and the highest id of the live jobs of ``queue``; None if there are none."""
    jobs = store.tables.jobs
    low, high = connection.execute(
        select(func.min(jobs.c.id), func.max(jobs.c.id)).where(jobs.c.queue == queue, jobs.c.delete_mark == 0)
    ).one()
    return None if low is None else (low, high)


def jobs(connection: Connection, store: Store, queue: str, *, after: int, high: int, limit: int) -> Rows:
    """Up to ``limit`` live jobs of ``queue`` with ids above ``after`` and up to ``high``, by id."""
    table = store.tables.jobs
    query = (
        select(*(table.c[name] for name in COLUMNS))
        # By id and by no other index: a planner that prefers the queue's would sort all of it for each page.
        .where(table.c.queue.concat("") == queue, table.c.delete_mark == 0, table.c.id > after, table.c.id <= high)
        .order_by(table.c.id)
        .limit(limit)
    )
    return rows_of(connection, store, store.dialect.by_id(query, table))


def rows_of(connection: Connection, store: Store, query: Select[Any]) -> Rows:
    """The rows of ``query``; as CSV if the store's reader prefers that, and the database writes it."""
    text = store.dialect.as_csv(connection, query) if store.csv else None
    return connection.execute(query).all() if text is None else text
