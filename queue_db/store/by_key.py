"""Change, delete, lock or insert one row by its key.

A key with a version is the fence of the row's holder. A take-over of the row raises the version. Then the old fence matches no row.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import ColumnElement, Row, Table, and_, insert, select, update
from sqlalchemy import delete as delete_from
from sqlalchemy.exc import IntegrityError

from queue_db.dialects.transactions import savepoint
from queue_db.model import Capability
from queue_db.store.base import Transaction

Key = Mapping[str, Any]
"""The values of columns that identify a row, by the names of the columns."""


class RowLockedError(Exception):
    """Another transaction has locked the row."""


def matches(table: Table, key: Key) -> ColumnElement[bool]:
    """The condition that a row has this key."""
    return and_(*(table.c[name] == value for name, value in key.items()))


def change(tx: Transaction, table: Table, key: Key, values: Mapping[str, Any]) -> bool:
    """Change the row; False: no row matches."""
    return bool(tx.connection.execute(update(table).where(matches(table, key)).values(values), tx.time()).rowcount)


def release(tx: Transaction, table: Table, key: Key, values: Mapping[str, Any]) -> bool:
    """Change the row, and end its lease, so that the row can be taken over at once; False: no row matches."""
    return change(tx, table, key, {"version": table.c.version + 1, **values, "until": 0})


def delete(tx: Transaction, table: Table, key: Key) -> bool:
    """Delete the row; False: no row matches."""
    return bool(tx.connection.execute(delete_from(table).where(matches(table, key))).rowcount)


def lock(tx: Transaction, table: Table, key: Key, *columns: str, wait: bool = True) -> Row[Any] | None:
    """Lock the row until the transaction ends, and return it; None: no row matches.

    :param columns: the names of the columns to return; empty: all columns.
    :param wait: whether to wait for another transaction that has locked the row. A database without SKIP LOCKED always waits.
    :raises RowLockedError: another transaction has locked the row, and ``wait`` is False.
    """
    query = select(*(table.c[name] for name in columns or table.c.keys())).where(matches(table, key))
    skip = not wait and Capability.SKIP_LOCKED in tx.store.capabilities
    row = tx.connection.execute(tx.dialect.lock_rows(query, skip=skip)).first()
    if row is None and skip and tx.connection.execute(query).first() is not None:
        raise RowLockedError
    return row


def touch(tx: Transaction, table: Table, key: Key, column: str) -> None:
    """Change the row that this transaction has locked, if the nodes of a cluster do not see each other's locks.

    Then the database refuses one of two transactions that decide by the row, and it runs again.

    :param column: of whole numbers, to which 1 more means nothing.
    """
    if Capability.SEVERAL_WRITERS in tx.store.capabilities:
        change(tx, table, key, {column: table.c[column] + 1})


def insert_new(tx: Transaction, table: Table, values: Mapping[str, Any]) -> bool:
    """Insert a row; False: a row with the same key exists. If another transaction is inserting such a row, wait until it ends."""
    try:
        with savepoint(tx.connection):
            tx.connection.execute(insert(table).values(values), tx.time())
    except IntegrityError:
        return False
    return True
