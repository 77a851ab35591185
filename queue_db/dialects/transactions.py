"""Transactions within a connection: one that begins when it is needed, and one inside another."""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager, suppress
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Self

from sqlalchemy import Connection, Executable
from sqlalchemy.exc import DBAPIError, PendingRollbackError, SQLAlchemyError

from queue_db.dialects import direct
from queue_db.dialects.direct import TRANSACTION, failed, observed
from queue_db.errors import QueueDBError

if TYPE_CHECKING:
    from queue_db.dialects.base import Dialect


class PooledConnection:
    """A connection of the library, and what each use of it needs: SQLAlchemy looks these up each time."""

    __slots__ = ("connection", "driver", "info", "proxied")

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        #: The pool's side of it; its ``dbapi_connection`` is None once it is closed or invalidated.
        self.proxied: Any = connection.connection
        self.info: MutableMapping[Any, Any] = self.proxied.info
        #: The driver's own connection, also behind an adapter of SQLAlchemy's.
        self.driver: Any = self.proxied.driver_connection


class OnDemand:
    """A transaction that begins on demand, on a connection of the library, which otherwise commits each statement by itself.

    In a ``with`` block: an exception rolls the transaction back. The caller commits it. After an exception that may have
    interrupted a statement nothing is sent: the connection's ``info`` keeps the transaction, so it is in doubt.

    :param begins: the statement that begins it.
    :param values: its values.
    :param direct: kept statements go to the driver's cursor.
    """

    __slots__ = (
        "_begins",
        "_driver",
        "_outer",
        "_values",
        "asked",
        "begun",
        "connection",
        "direct",
        "info",
        "interrupted",
        "observed",
        "sent",
    )

    def __init__(self, pooled: PooledConnection, begins: str, values: tuple[str, ...] = (), *, direct: bool = False) -> None:
        self.connection = pooled.connection
        self.info = pooled.info
        self._driver: Any = pooled.proxied.dbapi_connection
        self._begins = begins
        self._values = values
        self.direct = direct
        #: Whether somebody listens to the engine's statements: then they go through SQLAlchemy.
        self.observed = observed(pooled.connection)
        #: The transaction around this one, where a thread has one connection for everything.
        self._outer: OnDemand | None = None
        self.begun = False
        #: It was to begin, which may have failed: nothing is committed without a COMMIT.
        self.asked = False
        #: A statement has been interrupted, so nobody knows what has happened.
        self.interrupted = False
        #: Number of statements that the dialect has sent on this connection, with BEGIN and COMMIT.
        self.sent = 0

    def __enter__(self) -> Self:
        self._outer = self.info.get(TRANSACTION)
        self.info[TRANSACTION] = self
        return self

    def __exit__(self, kind: object, error: BaseException | None, *rest: object) -> None:
        # Otherwise the connection has been taken away meanwhile, and may be another one's.
        if self.info.get(TRANSACTION) is self:
            if error is not None:
                if self.interrupted or interrupted(self.connection, error):
                    return
                self.rollback()
            if self._outer is None:
                self.info.pop(TRANSACTION, None)
            else:
                self.info[TRANSACTION] = self._outer

    def begin(self) -> None:
        """Begin it, unless it has begun."""
        if not self.begun:
            self.asked = True
            self.change(self._begins, self._values)
            self.begun = True

    def commit(self) -> None:
        """Commit it, if it has begun.

        :raises PendingRollbackError: the block has ignored that its connection broke, or that a statement was interrupted.
        """
        if self.begun:
            if self.interrupted or self.connection.invalidated or self.info.get(TRANSACTION) is not self:
                raise PendingRollbackError("a statement of this transaction was interrupted, or its connection broke")
            self.change("COMMIT", ())
            self.begun = False

    def rollback(self) -> None:
        """Roll it back, if it has begun. If that fails the connection is discarded, and the server rolls back."""
        if self.begun and not self.connection.invalidated:
            try:
                self.change("ROLLBACK", ())
            except DBAPIError:
                self.connection.invalidate()
        self.begun = False

    # --- statements in the form of the driver ---------------------------------------------------------------------------

    def fetch(self, text: str, arguments: tuple[Any, ...]) -> Sequence[Sequence[Any]]:
        """The rows of a statement.

        :raises DBAPIError: as SQLAlchemy would.
        """
        self.sent += 1
        if self.observed:
            return self.connection.exec_driver_sql(text, arguments or None).all()
        cursor: Any = None
        try:
            cursor = self._driver.cursor()
            cursor.execute(text, arguments)
            rows: Sequence[Sequence[Any]] = cursor.fetchall()
            cursor.close()
        except BaseException as error:
            failed(self.connection, text, cursor, error)
            raise
        return rows

    def change(self, text: str, arguments: tuple[Any, ...]) -> int:
        """:meth:`fetch` for a statement without rows: how many rows it matched."""
        self.sent += 1
        if self.observed:
            return self.connection.exec_driver_sql(text, arguments or None).rowcount
        cursor: Any = None
        try:
            cursor = self._driver.cursor()
            cursor.execute(text, arguments)
            touched: int = cursor.rowcount
            cursor.close()
        except BaseException as error:
            failed(self.connection, text, cursor, error)
            raise
        return touched

    def load(self, text: str, rows: Sequence[tuple[Any, ...]]) -> tuple[int, int]:
        """Run a statement for each of ``rows``; return how many rows it matched altogether, and the driver's ``lastrowid``."""
        self.sent += 1
        if self.observed:
            result = self.connection.exec_driver_sql(text, list(rows))
            return result.rowcount, result.lastrowid or 0
        cursor: Any = None
        try:
            cursor = self._driver.cursor()
            cursor.executemany(text, rows)
            done: tuple[int, int] = cursor.rowcount, cursor.lastrowid or 0
            cursor.close()
        except BaseException as error:
            failed(self.connection, text, cursor, error)
            raise
        return done


class Sender:
    """Sends statements in a transaction on a connection. Statements that are built once and kept go to the driver's cursor on
    connections of the library, and through SQLAlchemy on a caller's.
    """

    __slots__ = ("_direct", "connection", "dialect", "on_demand")

    def __init__(self, connection: Connection, dialect: Dialect, on_demand: OnDemand | None = None) -> None:
        self.connection = connection
        self.dialect = dialect
        #: The transaction of a connection of the library; None on a caller's connection.
        self.on_demand: OnDemand | None = on_demand or connection.info.get(TRANSACTION)
        #: The same if kept statements go to the driver's cursor there.
        self._direct = self.on_demand if self.on_demand is not None and self.on_demand.direct else None

    @property
    def sends_directly(self) -> bool:
        """Whether texts go to the driver's cursor, and nobody else sees them."""
        return self._direct is not None and not self._direct.observed

    def begin(self) -> None:
        """Begin it, where a connection commits each statement by itself until then."""
        if self.on_demand is None:
            self.dialect.begin_changes(self.connection)
        else:
            self.on_demand.begin()

    # --- statements that are built once and kept ------------------------------------------------------------------------

    def fetch(self, statement: Executable, values: Mapping[str, Any]) -> Sequence[Sequence[Any]]:
        """The rows of a statement."""
        own = self._direct
        if own is None:
            return self.connection.execute(statement, values).all()
        text, arguments = self.dialect.render(own, statement, values)
        return own.fetch(text, arguments)

    def execute(self, statement: Executable, values: Mapping[str, Any]) -> int:
        """:meth:`fetch` for a statement without rows: how many rows it matched."""
        own = self._direct
        if own is None:
            return self.connection.execute(statement, values).rowcount
        text, arguments = self.dialect.render(own, statement, values)
        return own.change(text, arguments)

    def execute_many(self, statement: Executable, names: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> tuple[int, int]:
        """:meth:`execute` for each of ``rows``, the values of ``names``; return also the driver's ``lastrowid``."""
        own = self._direct
        if own is None:
            named = [dict(zip(names, row, strict=True)) for row in rows]
            result = self.connection.execute(statement, named)
            return result.rowcount, result.lastrowid or 0
        parts = direct.written(statement, self.connection.dialect)
        return own.load(parts.text, [*map(itemgetter(*map(names.index, parts.order)), rows)])

    def rows(self, text: str, arguments: tuple[Any, ...]) -> Sequence[Sequence[Any]]:
        """The rows of a statement in the form of the driver.

        :raises DBAPIError: as SQLAlchemy would.
        """
        if self._direct is None:
            return self.connection.exec_driver_sql(text, arguments or None).all()
        return self._direct.fetch(text, arguments)


def own(connection: Connection) -> OnDemand | None:
    """The transaction of a connection of the library while it is in use; None on a caller's connection."""
    transaction: OnDemand | None = connection.info.get(TRANSACTION)
    return transaction


def forget(info: MutableMapping[Any, Any]) -> None:
    """The transaction of a connection has ended in another way than by its own block."""
    info.pop(TRANSACTION, None)


def interrupted(connection: Connection, error: BaseException) -> bool:
    """Whether ``error`` may have come in the middle of a statement: its reply may be outstanding, or its effect unknown.

    Errors of the database are replies, and errors of the package come between statements. Another exception is harmless in
    code of the application, also when it stands for one of these, and not in SQLAlchemy or the driver: a signal handler may have
    raised it there.
    """
    driver: Any = connection.dialect.loaded_dbapi
    replies = (SQLAlchemyError, QueueDBError, driver.Error)
    if not isinstance(error, Exception):
        return True
    if isinstance(error, replies):
        return False
    packages = ("sqlalchemy.", "queue_db.dialects.", f"{getattr(driver, '__name__', 'sqlalchemy').partition('.')[0]}.")
    seen: list[BaseException] = []
    found: BaseException | None = error
    while found is not None and found not in seen and not isinstance(found, replies):
        seen.append(found)
        for frame, _ in traceback.walk_tb(found.__traceback__):
            if f"{frame.f_globals.get('__name__', '')}.".startswith(packages):
                return True
        found = found.__cause__ or found.__context__
    return False


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
