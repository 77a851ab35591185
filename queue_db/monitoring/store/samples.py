"""Samples of all queues, shared by processes: one process takes the next sample, and all processes read it."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Row, insert, or_, select, update

from queue_db.monitoring.tables import monitoring_tables
from queue_db.store.base import Transaction


def latest(tx: Transaction, name: str) -> Row[Any] | None:
    """The row of a sample with the present time as ``now``; None: no sample was begun yet."""
    table = monitoring_tables(tx.tables).samples
    query = select(table, tx.now.label("now")).where(table.c.name == name)
    return tx.connection.execute(query, tx.time()).first()


def begin(tx: Transaction, name: str, version: int | None, lasts: int) -> bool:
    """Reserve the next sample for this process for ``lasts`` microseconds; False: another process takes it.

    :param version: the version of the row as it was read; None: there was no row.
    """
    table = monitoring_tables(tx.tables).samples
    until = tx.now + lasts
    if version is None:
        tx.connection.execute(insert(table).values(name=name, version=1, next_at=until), tx.time())
        return True
    mine = update(table).where(table.c.name == name, table.c.version == version).values(version=version + 1, next_at=until)
    return tx.connection.execute(mine, tx.time()).rowcount == 1


def finish(tx: Transaction, name: str, version: int, data: str, took: int, rest: int) -> None:
    """Store a sample that was begun as ``version``.

    A sample that took longer than its lease is also written, unless another process has written a sample since it was begun. The
    length of a lease depends on the last sample that was written, so otherwise no slower sample would ever be written.

    :param took: microseconds since the sample was begun.
    :param rest: microseconds until the next sample may be taken.
    """
    table = monitoring_tables(tx.tables).samples
    now = tx.now
    values = {"taken_at": now, "next_at": now + rest, "data": data}
    newest = or_(table.c.version == version, table.c.taken_at.is_(None), table.c.taken_at < now - took)
    tx.connection.execute(update(table).where(table.c.name == name, newest).values(values), tx.time())


def give_up(tx: Transaction, name: str, version: int, rest: int) -> None:
    """Record that the sample begun as ``version`` failed, unless another sample was begun.

    :param rest: microseconds until the next sample may be taken.
    """
    table = monitoring_tables(tx.tables).samples
    until = tx.now + rest
    mine = update(table).where(table.c.name == name, table.c.version == version).values(next_at=until)
    tx.connection.execute(mine, tx.time())
