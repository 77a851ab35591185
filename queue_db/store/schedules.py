"""Schedules of recurring jobs. A scheduler that raises a row's version enqueues its occurrence, in the same transaction."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Row, delete, func, insert, select, update

from queue_db.model import Capability
from queue_db.store.base import Store


def put(connection: Connection, store: Store, name: str, values: dict[str, Any]) -> bool:
    """Make the schedule, or change it; whether it is new.

    :raises IntegrityError: another transaction has just made it: try again.
    """
    table = store.tables.schedules
    store.dialect.begin(connection)
    changed = update(table).where(table.c.name == name).values(version=table.c.version + 1, **values)
    if connection.execute(changed).rowcount:
        return False
    connection.execute(insert(table).values(name=name, **values))
    return True


def every(connection: Connection, store: Store) -> list[Row[Any]]:
    """All schedules by name."""
    table = store.tables.schedules
    return list(connection.execute(select(table).order_by(table.c.name)))


def one(connection: Connection, store: Store, name: str) -> Row[Any] | None:
    """The schedule of that name."""
    table = store.tables.schedules
    return connection.execute(select(table).where(table.c.name == name)).first()


def latest(connection: Connection, store: Store, name: str) -> Row[Any] | None:
    """The schedule of that name, which nobody else changes until the transaction ends."""
    table = store.tables.schedules
    return connection.execute(store.dialect.lock_rows(select(table).where(table.c.name == name), skip=False)).first()


def due(connection: Connection, store: Store) -> tuple[int, list[Row[Any]], int | None]:
    """The time, the schedules that are due, and when the next of the others is."""
    table = store.tables.schedules
    now = store.read_clock(connection)
    found = select(table).where(table.c.paused == 0, table.c.next_at <= now).order_by(table.c.next_at, table.c.name)
    rows = list(connection.execute(found))
    later = select(func.min(table.c.next_at)).where(table.c.paused == 0, table.c.next_at > now)
    return now, rows, connection.execute(later).scalar()


def advance(connection: Connection, store: Store, name: str, version: int, *, last_at: int | None, next_at: int) -> bool:
    """Go on to the next occurrence; False if another transaction did, or changed the schedule, or has locked its row."""
    table = store.tables.schedules
    store.dialect.begin(connection)
    if Capability.SKIP_LOCKED in store.capabilities:
        # The transaction that has locked the row may be frozen: the other schedules must not wait for it.
        mine = select(table.c.name).where(table.c.name == name, table.c.version == version)
        if connection.execute(store.dialect.lock_rows(mine, skip=True)).first() is None:
            return False
    values: dict[str, Any] = {"version": version + 1, "next_at": next_at}
    if last_at is not None:
        values["last_at"] = last_at
    # The version always changes, so every driver counts the row.
    return bool(connection.execute(update(table).where(table.c.name == name, table.c.version == version).values(values)).rowcount)


def change(connection: Connection, store: Store, name: str, values: dict[str, Any]) -> bool:
    """Change some columns; False if there is no such schedule."""
    table = store.tables.schedules
    statement = update(table).where(table.c.name == name).values(version=table.c.version + 1, **values)
    return bool(connection.execute(statement).rowcount)


def remove(connection: Connection, store: Store, name: str) -> bool:
    """Delete it; False if it was not there."""
    table = store.tables.schedules
    return bool(connection.execute(delete(table).where(table.c.name == name)).rowcount)
