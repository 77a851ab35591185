"""The table of the shares of workers.

The limits are columns of the kernel's table of queues, since a worker reads them and the pause with one statement.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Integer, MetaData, String, Table

from queue_db.store.schema import MYSQL, QUEUE_LENGTH, WORKER_LENGTH
from queue_db.store.schema.tables import Tables


def described(name: str, metadata: MetaData) -> Table:
    """The table ``name_shares``: how much of a queue's concurrency each worker may use.

    The sum of the shares is at most the queue's concurrency.
    """
    return Table(
        f"{name}_shares",
        metadata,
        Column("queue", String(QUEUE_LENGTH), primary_key=True),
        Column("worker", String(WORKER_LENGTH), primary_key=True),
        Column("slots", Integer, nullable=False),
        Column("until", BigInteger, nullable=False),
        **MYSQL,
    )


def shares_of(tables: Tables) -> Table:
    """The table of shares beside those of the queue."""
    found: Table = tables.slices["limits"]
    return found
