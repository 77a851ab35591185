"""Schedules of recurring jobs. The scheduler that raises a schedule's version enqueues the occurrence in the same transaction."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Row, func, insert, select

from queue_db.model import Capability
from queue_db.store import by_key
from queue_db.store.base import Transaction


def put(tx: Transaction, name: str, values: dict[str, Any]) -> bool:
    """Insert the schedule, or change it if it exists.

    :return: whether the schedule is new.
    :raises IntegrityError: another transaction has just inserted the schedule: try again.
    """
    table = tx.tables.schedules
    tx.begin()
    if change(tx, name, values):
        return False
    tx.connection.execute(insert(table).values(name=name, **values))
    return True


def every(tx: Transaction) -> list[Row[Any]]:
    """All schedules by name."""
    table = tx.tables.schedules
    return list(tx.connection.execute(select(table).order_by(table.c.name)))


def find(tx: Transaction, name: str, *, lock: bool = False) -> Row[Any] | None:
    """The schedule with this name.

    :param lock: lock its row, so that no other transaction changes it until this one ends.
    """
    table = tx.tables.schedules
    if lock:
        return by_key.lock(tx, table, {"name": name})
    return tx.connection.execute(select(table).where(table.c.name == name)).first()


def due(tx: Transaction) -> tuple[int, list[Row[Any]], int | None]:
    """The current time, the schedules that are due, and the time of the next other occurrence. Paused schedules are left out."""
    table = tx.tables.schedules
    now = tx.read_clock()
    query = select(table).where(table.c.paused == 0, table.c.next_at <= now).order_by(table.c.next_at, table.c.name)
    rows = list(tx.connection.execute(query))
    later = select(func.min(table.c.next_at)).where(table.c.paused == 0, table.c.next_at > now)
    return now, rows, tx.connection.execute(later).scalar()


def advance(tx: Transaction, name: str, version: int, *, last_at: int | None, next_at: int) -> bool:
    """Move the schedule on to its next occurrence.

    :return: False: another transaction has moved it on or changed it, or has locked its row.
    """
    table = tx.tables.schedules
    tx.begin()
    if Capability.SKIP_LOCKED in tx.store.capabilities:
        # Skip a locked row: the transaction that has locked it may hang, and other schedules must not wait for it.
        mine = select(table.c.name).where(table.c.name == name, table.c.version == version)
        if tx.connection.execute(tx.dialect.lock_rows(mine, skip=True)).first() is None:
            return False
    values: dict[str, Any] = {"version": version + 1, "next_at": next_at}
    if last_at is not None:
        values["last_at"] = last_at
    # Some drivers count only rows whose values change. The version always changes.
    return by_key.change(tx, table, {"name": name, "version": version}, values)


def change(tx: Transaction, name: str, values: dict[str, Any]) -> bool:
    """Change some columns of a schedule; False: there is no schedule with this name."""
    table = tx.tables.schedules
    return by_key.change(tx, table, {"name": name}, {"version": table.c.version + 1, **values})


def remove(tx: Transaction, name: str) -> bool:
    """Delete the schedule with this name; False: there is none."""
    return by_key.delete(tx, tx.tables.schedules, {"name": name})
