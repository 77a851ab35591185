"""Who works: a row for each worker, for people, and for those who find that a process of their machine is dead."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Row, delete, insert, select, update

from queue_db.dialects.clock import moment
from queue_db.store.base import Store


def tell(connection: Connection, store: Store, name: str, values: dict[str, Any]) -> None:
    """Say that a worker is there, and what it does."""
    table = store.tables.workers
    store.dialect.begin(connection)
    seen = {**values, "seen_at": moment(store.clock is not None)}
    changed = update(table).where(table.c.name == name).values(seen)
    if not connection.execute(changed, store.time()).rowcount:
        connection.execute(insert(table).values(name=name, started_at=moment(store.clock is not None), **seen), store.time())


def forget(connection: Connection, store: Store, name: str) -> None:
    """It has gone."""
    table = store.tables.workers
    connection.execute(delete(table).where(table.c.name == name))


def forget_unseen(connection: Connection, store: Store, age: int) -> int:
    """Forget those that nobody has seen for so many microseconds."""
    table = store.tables.workers
    return connection.execute(delete(table).where(table.c.seen_at < store.read_clock(connection) - age)).rowcount


def everybody(connection: Connection, store: Store, host: str | None = None) -> list[Row[Any]]:
    """All workers by name, or those of one host, with the time."""
    table = store.tables.workers
    found = select(table, moment(store.clock is not None).label("now")).order_by(table.c.name)
    return list(connection.execute(found if host is None else found.where(table.c.host == host), store.time()))
