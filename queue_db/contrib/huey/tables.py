"""What Huey keeps beside its queue: scheduled tasks, results and other values, counters. Each in a table of this adapter's own."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import Any

from huey.constants import EmptyData
from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    delete,
    func,
    insert,
    inspect,
    or_,
    select,
    update,
)
from sqlalchemy.sql.elements import ColumnElement

#: MySQL and MariaDB choose the type of a value by it.
_BYTES = LargeBinary(2**24 - 1)

#: Most rows of one statement.
_MOST = 500

Key = bytes | str


class Tables:
    """The tables of one Huey. Each method is part of the caller's transaction.

    :param prefix: of the names of the tables.
    :param name: of the Huey; several share the tables.
    :param now: the clock by which values expire, in milliseconds since 1970.
    """

    def __init__(self, prefix: str, schema: str | None, name: str, now: Callable[[], int]) -> None:
        self._name, self._now = name, now
        self._metadata = MetaData(schema=schema)
        self._values = Table(
            f"{prefix}_values",
            self._metadata,
            # Names are compared by letters and case in some databases, digests by their digits.
            Column("digest", String(64), primary_key=True),
            Column("name", String(100), nullable=False, index=True),
            Column("text", String(1000), nullable=False),
            Column("value", _BYTES, nullable=False),
            Column("expires", BigInteger),  # milliseconds since 1970
        )
        self._counters = Table(
            f"{prefix}_counters",
            self._metadata,
            Column("digest", String(64), primary_key=True),
            Column("name", String(100), nullable=False, index=True),
            Column("number", BigInteger, nullable=False),
        )
        self._scheduled = Table(
            f"{prefix}_scheduled",
            self._metadata,
            Column("id", Integer, primary_key=True),
            Column("name", String(100), nullable=False),
            Column("due", BigInteger, nullable=False),  # microseconds since 1970
            Column("data", _BYTES, nullable=False),
            Index(f"{prefix}_scheduled_due", "name", "due"),
        )

    def create(self, connection: Connection) -> None:
        """Create those that are missing."""
        self._metadata.create_all(connection)

    def missing(self, connection: Connection) -> list[str]:
        """The names of those that are missing."""
        there = inspect(connection)
        return [table.name for table in self._metadata.sorted_tables if not there.has_table(table.name, table.schema)]

    # --- values -------------------------------------------------------------------------------------------------------

    def _at(self, table: Table, key: Key) -> ColumnElement[bool]:
        return table.c.digest == self._digest(key)

    def _digest(self, key: Key) -> str:
        return hashlib.sha256(f"{self._name}\0{_text(key)}".encode()).hexdigest()

    def _has_expired(self, expires: int | None) -> bool:
        return expires is not None and expires <= self._now()

    def _fresh(self) -> ColumnElement[bool]:
        return or_(self._values.c.expires.is_(None), self._values.c.expires > self._now())

    def put(self, connection: Connection, key: Key, value: bytes) -> None:
        """Store a value.

        :raises IntegrityError: another transaction has just stored the first value of this key: try again.
        """
        changed = update(self._values).where(self._at(self._values, key)).values(value=bytes(value), expires=None)
        if not connection.execute(changed).rowcount:
            self.add(connection, key, value, None)

    def add(self, connection: Connection, key: Key, value: bytes, ttl: float | None) -> None:
        """Store the first value of a key.

        :param ttl: seconds until it expires.
        :raises IntegrityError: it has one.
        """
        table = self._values
        found = connection.execute(select(table.c.expires).where(self._at(table, key))).first()
        if found is not None and self._has_expired(found.expires):
            connection.execute(delete(table).where(self._at(table, key), table.c.expires == found.expires))
        expires = None if ttl is None else self._now() + int(1000 * ttl)
        row = {"digest": self._digest(key), "name": self._name, "text": _text(key), "value": bytes(value), "expires": expires}
        connection.execute(insert(table).values(row))

    def get(self, connection: Connection, key: Key) -> Any:
        """The value, or ``EmptyData``."""
        table = self._values
        row = connection.execute(select(table.c.value, table.c.expires).where(self._at(table, key))).first()
        return EmptyData if row is None or self._has_expired(row.expires) else bytes(row.value)

    def get_many(self, connection: Connection, keys: Iterable[Key]) -> dict[Key, bytes]:
        """The values of those keys that have one."""
        table, by_digest = self._values, {self._digest(key): key for key in keys}
        found: dict[Key, bytes] = {}
        for some in _parts(list(by_digest)):
            wanted = select(table.c.digest, table.c.value, table.c.expires).where(table.c.digest.in_(some))
            rows = connection.execute(wanted).all()
            found |= {by_digest[row.digest]: bytes(row.value) for row in rows if not self._has_expired(row.expires)}
        return found

    def pop(self, connection: Connection, key: Key) -> Any:
        """Delete the value and return it, or ``EmptyData``. Of two calls at a time one gets it."""
        table = self._values
        row = connection.execute(select(table.c.value, table.c.expires).where(self._at(table, key)).with_for_update()).first()
        if row is None or self._has_expired(row.expires):
            return EmptyData
        if not connection.execute(delete(table).where(self._at(table, key))).rowcount:
            return EmptyData
        return bytes(row.value)

    def items(self, connection: Connection) -> dict[str, bytes]:
        """All values by key."""
        table = self._values
        rows = connection.execute(select(table.c.text, table.c.value).where(table.c.name == self._name, self._fresh()))
        return {key: bytes(value) for key, value in rows}

    def size(self, connection: Connection) -> int:
        """How many values there are."""
        wanted = select(func.count()).select_from(self._values).where(self._values.c.name == self._name, self._fresh())
        return int(connection.execute(wanted).scalar_one())

    # --- counters -----------------------------------------------------------------------------------------------------

    def add_to_counter(self, connection: Connection, key: Key, amount: int) -> int:
        """Add to a counter; return its new value.

        :raises IntegrityError: another transaction has just begun the counter: try again.
        """
        table = self._counters
        if not connection.execute(update(table).where(self._at(table, key)).values(number=table.c.number + amount)).rowcount:
            connection.execute(insert(table).values(digest=self._digest(key), name=self._name, number=amount))
            return amount
        return int(connection.execute(select(table.c.number).where(self._at(table, key))).scalar_one())

    def delete_counter(self, connection: Connection, key: Key) -> None:
        """Delete a counter, if there is one."""
        connection.execute(delete(self._counters).where(self._at(self._counters, key)))

    # --- the schedule -------------------------------------------------------------------------------------------------

    def schedule(self, connection: Connection, data: bytes, due: datetime) -> None:
        """Add a task."""
        connection.execute(insert(self._scheduled).values(name=self._name, due=_moment(due), data=bytes(data)))

    def take_due(self, connection: Connection, until: datetime) -> list[bytes]:
        """Take out the tasks that are due then, soonest first."""
        table = self._scheduled
        due = select(table.c.id, table.c.data).where(table.c.name == self._name, table.c.due <= _moment(until))
        rows = connection.execute(due.order_by(table.c.due, table.c.id).with_for_update()).all()
        for some in _parts([row.id for row in rows]):
            connection.execute(delete(table).where(table.c.id.in_(some)))
        return [bytes(row.data) for row in rows]

    def scheduled(self, connection: Connection, limit: int | None) -> list[bytes]:
        """The tasks, soonest first."""
        table = self._scheduled
        wanted = select(table.c.data).where(table.c.name == self._name).order_by(table.c.due, table.c.id).limit(limit)
        return [bytes(data) for (data,) in connection.execute(wanted)]

    def scheduled_size(self, connection: Connection) -> int:
        """How many tasks are scheduled."""
        wanted = select(func.count()).select_from(self._scheduled).where(self._scheduled.c.name == self._name)
        return int(connection.execute(wanted).scalar_one())

    # --- the end ------------------------------------------------------------------------------------------------------

    def flush_scheduled(self, connection: Connection) -> None:
        """Delete all scheduled tasks."""
        connection.execute(delete(self._scheduled).where(self._scheduled.c.name == self._name))

    def flush_values(self, connection: Connection) -> None:
        """Delete all values."""
        connection.execute(delete(self._values).where(self._values.c.name == self._name))

    def flush_counters(self, connection: Connection) -> None:
        """Delete all counters."""
        connection.execute(delete(self._counters).where(self._counters.c.name == self._name))


def _text(key: Key) -> str:
    return key.decode() if isinstance(key, bytes) else str(key)


def _moment(due: datetime) -> int:
    return round(due.timestamp() * 1_000_000)


def _parts(of: list[Any]) -> Iterator[list[Any]]:
    return (of[start : start + _MOST] for start in range(0, len(of), _MOST))
