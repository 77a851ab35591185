"""The worker registry: one row for each worker, refreshed by heartbeats."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Row, delete, insert, select, update

from queue_db.store.base import Transaction

#: Seconds without a heartbeat after which a worker is probably dead. By then at least four heartbeats are missing.
SILENT = 30.0


def heartbeat(tx: Transaction, name: str, values: dict[str, Any]) -> None:
    """Update or insert a worker's row, with ``values`` and the current time."""
    table = tx.tables.workers
    seen = {**values, "seen_at": tx.now}
    changed = update(table).where(table.c.name == name).values(seen)
    if not tx.connection.execute(changed, tx.time()).rowcount:
        tx.connection.execute(insert(table).values(name=name, started_at=tx.now, **seen), tx.time())


def deregister(tx: Transaction, name: str) -> None:
    """Delete the row of a worker that has stopped."""
    table = tx.tables.workers
    tx.connection.execute(delete(table).where(table.c.name == name))


def deregister_unseen(tx: Transaction, age: int) -> int:
    """Delete the rows without a heartbeat for ``age`` microseconds; return how many."""
    table = tx.tables.workers
    return tx.connection.execute(delete(table).where(table.c.seen_at < tx.read_clock() - age)).rowcount


def all_workers(tx: Transaction, host: str | None = None) -> list[Row[Any]]:
    """The rows of all workers, or of the workers of one host, by name. Each row has the current time as ``now``."""
    table = tx.tables.workers
    query = select(table, tx.now.label("now")).order_by(table.c.name)
    return list(tx.connection.execute(query if host is None else query.where(table.c.host == host), tx.time()))
