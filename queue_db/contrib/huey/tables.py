"""What Huey keeps beside its queue: scheduled tasks, results and other values, counters. Each in a table of this adapter's own."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any, NamedTuple

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


class Stored(NamedTuple):
    """A value, and when it expires: milliseconds since 1970, by the clock of the database."""

    value: bytes
    expires: int | None


class Tables:
    """The tables of one Huey. Each method is part of the caller's transaction.

    :param prefix: of the names of the tables.
    :param name: of the Huey; several share the tables.
    """

    def __init__(self, prefix: str, schema: str | None, name: str) -> None:
        self._name = name
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

    def _fresh(self, now: int) -> ColumnElement[bool]:
        return or_(self._values.c.expires.is_(None), self._values.c.expires > now)

    def put(self, connection: Connection, key: Key, value: bytes) -> None:
        """Store a value.

        :raises IntegrityError: another transaction has just stored the first value of this key: try again.
        """
        changed = update(self._values).where(self._at(self._values, key)).values(value=bytes(value), expires=None)
        if not connection.execute(changed).rowcount:
            self._insert(connection, key, value, None)

    def add(self, connection: Connection, key: Key, value: bytes, expires: int | None, now: int) -> bool:
        """Store the first value of a key; whether it had none, or one that has expired.

        :param expires: when it expires, milliseconds since 1970; so is ``now``.
        :raises IntegrityError: another transaction has just stored one: try again.
        """
        table = self._values
        found = connection.execute(select(table.c.expires).where(self._at(table, key))).first()
        if found is not None:
            if found.expires is None or found.expires > now:
                return False
            connection.execute(delete(table).where(self._at(table, key), table.c.expires == found.expires))
        self._insert(connection, key, value, expires)
        return True

    def _insert(self, connection: Connection, key: Key, value: bytes, expires: int | None) -> None:
        row = {"digest": self._digest(key), "name": self._name, "text": _text(key), "value": bytes(value), "expires": expires}
        connection.execute(insert(self._values).values(row))

    def get(self, connection: Connection, key: Key) -> Stored | None:
        """The value, perhaps one that has expired."""
        table = self._values
        row = connection.execute(select(table.c.value, table.c.expires).where(self._at(table, key))).first()
        return None if row is None else Stored(bytes(row.value), row.expires)

    def get_many(self, connection: Connection, keys: Iterable[Key]) -> dict[Key, Stored]:
        """The values of those keys that have one, perhaps one that has expired."""
        table, by_digest = self._values, {self._digest(key): key for key in keys}
        found: dict[Key, Stored] = {}
        for some in _parts(list(by_digest)):
            wanted = select(table.c.digest, table.c.value, table.c.expires).where(table.c.digest.in_(some))
            found |= {by_digest[digest]: Stored(bytes(value), expires) for digest, value, expires in connection.execute(wanted)}
        return found

    def pop(self, connection: Connection, key: Key) -> Stored | None:
        """Delete the value and return it, also one that has expired. Of two calls at a time one gets it."""
        table = self._values
        row = connection.execute(select(table.c.value, table.c.expires).where(self._at(table, key)).with_for_update()).first()
        if row is None or not connection.execute(delete(table).where(self._at(table, key))).rowcount:
            return None
        return Stored(bytes(row.value), row.expires)

    def items(self, connection: Connection, now: int) -> dict[str, bytes]:
        """All values by key."""
        table = self._values
        rows = connection.execute(select(table.c.text, table.c.value).where(table.c.name == self._name, self._fresh(now)))
        return {key: bytes(value) for key, value in rows}

    def size(self, connection: Connection, now: int) -> int:
        """How many values there are."""
        wanted = select(func.count()).select_from(self._values).where(self._values.c.name == self._name, self._fresh(now))
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
    # Huey's times have no zone. That of the host would be another one on each, and jump in spring.
    return round((due if due.tzinfo else due.replace(tzinfo=UTC)).timestamp() * 1_000_000)


def _parts(of: list[Any]) -> Iterator[list[Any]]:
    return (of[start : start + _MOST] for start in range(0, len(of), _MOST))
