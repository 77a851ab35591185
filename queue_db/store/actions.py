"""The action log: what people and programs with tokens changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, Row, delete, insert, select

from queue_db.store.base import Store


def add(connection: Connection, store: Store, values: Mapping[str, Any]) -> None:
    """Insert an action: ``who, action, target, number, detail``."""
    table = store.tables.service.actions
    # The column's default is the database's clock.
    dated = {} if store.clock is None else {"at": store.clock()}
    connection.execute(insert(table).values({**values, **dated}))


def page(connection: Connection, store: Store, *, below: int | None, limit: int) -> list[Row[Any]]:
    """Up to ``limit`` actions with ids below ``below``, the newest first."""
    table = store.tables.service.actions
    query = select(table).order_by(table.c.id.desc()).limit(limit)
    return list(connection.execute(query if below is None else query.where(table.c.id < below)))


def prune(connection: Connection, store: Store, age: int, limit: int) -> int:
    """Delete up to ``limit`` actions from longer than ``age`` microseconds ago; return how many."""
    table = store.tables.service.actions
    old = select(table.c.id).where(table.c.at < store.read_clock(connection) - age).order_by(table.c.at).limit(limit)
    ids = list(connection.execute(old).scalars())
    return connection.execute(delete(table).where(table.c.id.in_(ids))).rowcount if ids else 0
