"""Where the first claim of a process begins: a row of each fair queue, which the first claims of processes share."""

from __future__ import annotations

from typing import NamedTuple

from sqlalchemy import select

from queue_db.fairness.rules import TURN
from queue_db.fairness.tables import fairness_tables
from queue_db.store import by_key
from queue_db.store.base import Transaction


class FirstTurn(NamedTuple):
    """Where to begin."""

    #: The group after which to begin.
    group: str
    #: Whether this transaction has the row, and may change it.
    locked: bool


def read(tx: Transaction, queue: str) -> FirstTurn:
    """Lock the row. If another first claim has locked it, read it only: nobody waits for a process that stands still."""
    table, key = fairness_tables(tx.tables).limits, {"queue": queue, "scope": TURN}
    try:
        row = by_key.lock(tx, table, key, "name", wait=False)
    except by_key.RowLockedError:
        row = tx.connection.execute(select(table.c.name).where(by_key.matches(table, key))).first()
        return FirstTurn(row.name if row else "", locked=False)
    return FirstTurn(row.name if row else "", locked=row is not None)


def write(tx: Transaction, queue: str, group: str) -> None:
    """Let the next process begin after this group."""
    by_key.change(tx, fairness_tables(tx.tables).limits, {"queue": queue, "scope": TURN}, {"name": group})
