"""The action log: what people and programs with tokens changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Row, func, insert, select, update

from queue_db.administration.store import delete_before
from queue_db.monitoring.tables import monitoring_tables
from queue_db.store.base import Transaction

#: Actions are kept for this many microseconds.
KEPT = 90 * 86_400 * 1_000_000


def add(tx: Transaction, values: Mapping[str, Any]) -> int:
    """Insert an action, ``who, action, target, number, detail``, and return its id."""
    table = monitoring_tables(tx.tables).actions
    # The column's default is the database's clock.
    dated = {} if tx.store.clock is None else {"at": tx.store.clock()}
    inserted = tx.connection.execute(insert(table).values({**values, **dated})).inserted_primary_key
    assert inserted is not None  # noqa: S101 - one row has one
    action_id: int = inserted[0]
    return action_id


def count_more(tx: Transaction, action_id: int, number: int, detail: str | None = None) -> None:
    """Add ``number`` to the number of an action. ``detail``: in place of the one that it has."""
    table = monitoring_tables(tx.tables).actions
    values = {} if detail is None else {"detail": detail}
    counted = func.coalesce(table.c.number, 0) + number
    tx.connection.execute(update(table).where(table.c.id == action_id).values(number=counted, **values))


def page_of_actions(tx: Transaction, *, below: int | None, limit: int) -> list[Row[Any]]:
    """Up to ``limit`` actions with ids below ``below``, the newest first."""
    table = monitoring_tables(tx.tables).actions
    query = select(table).order_by(table.c.id.desc()).limit(limit)
    return list(tx.connection.execute(query if below is None else query.where(table.c.id < below)))


def prune(tx: Transaction, limit: int) -> int:
    """Delete up to ``limit`` actions that are older than :data:`KEPT`; return how many."""
    return delete_before(tx, monitoring_tables(tx.tables).actions.c.at, tx.read_clock() - KEPT, limit)
