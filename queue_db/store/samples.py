"""Samples of all queues, shared by processes: one process takes the next sample, the others read it."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Row, insert, or_, select, update

from queue_db.dialects.clock import moment
from queue_db.store.base import Store


def latest(connection: Connection, store: Store, name: str) -> Row[Any] | None:
    """The row of a sample, and ``now``; None before the first one is begun."""
    table = store.tables.samples
    found = select(table, moment(store.clock is not None).label("now")).where(table.c.name == name)
    return connection.execute(found, store.time()).first()


def begin(connection: Connection, store: Store, name: str, version: int | None, lasts: int) -> bool:
    """Whether it is this process that takes the sample after ``version``; for ``lasts`` microseconds no other does.

    :param version: of the row as it was read; None: there was none.
    """
    table = store.tables.samples
    store.dialect.begin(connection)
    until = moment(store.clock is not None) + lasts
    if version is None:
        connection.execute(insert(table).values(name=name, version=1, next_at=until), store.time())
        return True
    mine = update(table).where(table.c.name == name, table.c.version == version).values(version=version + 1, next_at=until)
    return connection.execute(mine, store.time()).rowcount == 1


def finish(connection: Connection, store: Store, name: str, version: int, data: str, took: int, rest: int) -> None:
    """Store a sample that was begun as ``version``.

    One that outlasted its lease is written too, unless another one was written in the meantime: else counts that take longer than
    the lease, which depends on the last count, would all be lost.

    :param took: microseconds since it was begun.
    :param rest: microseconds until the next one may be taken.
    """
    table = store.tables.samples
    now = moment(store.clock is not None)
    values = {"taken_at": now, "next_at": now + rest, "data": data}
    newest = or_(table.c.version == version, table.c.taken_at.is_(None), table.c.taken_at < now - took)
    store.dialect.begin(connection)
    connection.execute(update(table).where(table.c.name == name, newest).values(values), store.time())


def give_up(connection: Connection, store: Store, name: str, version: int, rest: int) -> None:
    """Record that the sample begun as ``version`` failed, unless another one was begun.

    :param rest: microseconds until the next one may be taken.
    """
    table = store.tables.samples
    until = moment(store.clock is not None) + rest
    store.dialect.begin(connection)
    mine = update(table).where(table.c.name == name, table.c.version == version).values(next_at=until)
    connection.execute(mine, store.time())
