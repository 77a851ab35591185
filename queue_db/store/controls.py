"""The controls of queues: the pause and the limits. A worker reads both in one statement; the slice ``limits`` obeys the limits."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from sqlalchemy import insert, select

from queue_db.model import Controls
from queue_db.store import by_key
from queue_db.store.base import Transaction
from queue_db.store.schema import EVERY_MEMBER


def read(tx: Transaction, queues: Collection[str] | None = None) -> dict[str, Controls]:
    """The controls of ``queues`` by name, or of all queues if None; queues without controls are missing."""
    table = tx.tables.queues
    rows = tx.connection.execute(select(table) if queues is None else select(table).where(table.c.name.in_(list(queues))))
    return {
        row.name: Controls(
            paused=bool(row.paused),
            concurrency=row.concurrency,
            rate=row.rate,
            per=None if row.per is None else row.per / 1_000_000,
            per_group=1 if row.per_group in (None, EVERY_MEMBER) else row.per_group,
            fair=bool(row.fair),
        )
        for row in rows
    }


def change(tx: Transaction, queue: str, values: Mapping[str, int | None]) -> None:
    """Set some columns of a queue's row.

    :raises IntegrityError: another transaction has just inserted the row: try again.
    """
    table, key = tx.tables.queues, {"name": queue}
    if not by_key.change(tx, table, key, values):
        tx.connection.execute(insert(table).values({**key, **values}))
