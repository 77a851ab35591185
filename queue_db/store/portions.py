"""Divide many rows into statements of a size that every database and driver accepts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from sqlalchemy import Column, delete, select, tuple_

from queue_db.store.base import Transaction

_T = TypeVar("_T")

#: The most rows in one statement. A statement may have a CASE with a value for each row. The database searches this CASE for each
#: row, so the time grows with the square of the number of rows. Drivers also limit the number of parameters (asyncpg: 32,767).
AT_ONCE = 500


def portions(items: Sequence[_T], most: int = AT_ONCE) -> Iterator[Sequence[_T]]:
    """Divide ``items``, in their order, into parts of up to ``most`` items."""
    return (items[start : start + most] for start in range(0, len(items), most))


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
