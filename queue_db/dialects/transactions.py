"""Transactions within a connection: one that begins when it is needed, and one inside another."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Self

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from queue_db.dialects import direct

_KEY = "queue_db.transaction"


class OnDemand:
    """A transaction that begins on demand, on a connection of the library, which otherwise commits each statement by itself.

    In a ``with`` block: an exception rolls the transaction back. The caller commits it.

    :param begins: the statement that begins it.
    :param values: its values.
    """

    __slots__ = ("_begins", "_connection", "_info", "_values", "asked", "begun", "sent")

    def __init__(self, connection: Connection, begins: str, values: tuple[str, ...] = ()) -> None:
        self._connection = connection
        self._info = connection.info  # a broken connection has none
        self._begins = begins
        self._values = values
        self.begun = False
        #: It was to begin, which may have failed: nothing is committed without a COMMIT.
        self.asked = False
        #: Number of statements that the dialect has sent on this connection, with BEGIN and COMMIT.
        self.sent = 0

    def __enter__(self) -> Self:
        self._info[_KEY] = self
        return self

    def __exit__(self, kind: object, *exc: object) -> None:
        self._info.pop(_KEY, None)
        if kind is not None:
            self.rollback()

    def begin(self) -> None:
        """Begin it, unless it has begun."""
        if not self.begun:
            self.asked = True
            self._run(self._begins, self._values)
            self.begun = True

    def commit(self) -> None:
        """Commit it, if it has begun."""
        if self.begun:
            self._run("COMMIT")
            self.begun = False

    def rollback(self) -> None:
        """Roll it back, if it has begun. If that fails the connection is discarded, and the server rolls back."""
        if self.begun and not self._connection.invalidated:
            try:
                self._run("ROLLBACK")
            except DBAPIError:
                self._connection.invalidate()
        self.begun = False

    def _run(self, statement: str, values: tuple[str, ...] = ()) -> None:
        self.sent += 1
        direct.change(self._connection, statement, values)


def own(connection: Connection) -> OnDemand | None:
    """The transaction of a connection of the library while it is in use; None on a caller's connection."""
    transaction: OnDemand | None = connection.info.get(_KEY)
    return transaction


@contextmanager
def savepoint(connection: Connection) -> Iterator[None]:
    """All or nothing within a transaction that goes on."""
    nested = connection.begin_nested()
    try:
        yield
    except BaseException:
        # A deadlock or a refused snapshot has rolled back everything, the savepoint too: report the first error.
        with suppress(DBAPIError):
            nested.rollback()
        raise
    nested.commit()
