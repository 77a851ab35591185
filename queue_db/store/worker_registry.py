"""The worker registry: one row for each worker, refreshed by heartbeats."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Row, delete, insert, select, update

from queue_db.dialects.clock import moment
from queue_db.store.base import Store

#: Seconds without a heartbeat after which a worker is probably dead: four or more are missing by then.
SILENT = 30.0


def heartbeat(connection: Connection, store: Store, name: str, values: dict[str, Any]) -> None:
    """Write a worker's row with its state and the time."""
    table = store.tables.workers
    store.dialect.begin(connection)
    seen = {**values, "seen_at": moment(store.clock is not None)}
    changed = update(table).where(table.c.name == name).values(seen)
    if not connection.execute(changed, store.time()).rowcount:
        connection.execute(insert(table).values(name=name, started_at=moment(store.clock is not None), **seen), store.time())


def deregister(connection: Connection, store: Store, name: str) -> None:
    """Delete the row of a worker that has stopped."""
    table = store.tables.workers
    connection.execute(delete(table).where(table.c.name == name))


def deregister_unseen(connection: Connection, store: Store, age: int) -> int:
    """Delete the rows without a heartbeat for ``age`` microseconds; return how many."""
    table = store.tables.workers
    return connection.execute(delete(table).where(table.c.seen_at < store.read_clock(connection) - age)).rowcount


def all_workers(connection: Connection, store: Store, host: str | None = None) -> list[Row[Any]]:
    """The rows of all workers, or those of one host, by name, with the time as ``now``."""
    table = store.tables.workers
    found = select(table, moment(store.clock is not None).label("now")).order_by(table.c.name)
    return list(connection.execute(found if host is None else found.where(table.c.host == host), store.time()))
