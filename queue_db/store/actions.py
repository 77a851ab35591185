"""The action log: what people and programs with tokens changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Row, insert, select

from queue_db.store.base import Transaction
from queue_db.store.portions import delete_before


def add(tx: Transaction, values: Mapping[str, Any]) -> None:
    """Insert an action: ``who, action, target, number, detail``."""
    table = tx.tables.service.actions
    # The column's default is the database's clock.
    dated = {} if tx.store.clock is None else {"at": tx.store.clock()}
    tx.connection.execute(insert(table).values({**values, **dated}))


def page(tx: Transaction, *, below: int | None, limit: int) -> list[Row[Any]]:
    """Up to ``limit`` actions with ids below ``below``, the newest first."""
    table = tx.tables.service.actions
    query = select(table).order_by(table.c.id.desc()).limit(limit)
    return list(tx.connection.execute(query if below is None else query.where(table.c.id < below)))


def prune(tx: Transaction, age: int, limit: int) -> int:
    """Delete up to ``limit`` actions from longer than ``age`` microseconds ago; return how many."""
    return delete_before(tx, tx.tables.service.actions.c.at, tx.read_clock() - age, limit)
