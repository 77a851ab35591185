"""Transactions on a connection. A transaction begins when it is needed. Transactions can be nested."""

from __future__ import annotations

import traceback
from collections.abc import Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from operator import itemgetter
from typing import TYPE_CHECKING, Any
from weakref import ref

from sqlalchemy import Connection, Executable
from sqlalchemy.exc import DBAPIError, IntegrityError, PendingRollbackError, SQLAlchemyError

from queue_db.dialects import raw_cursor
from queue_db.dialects.raw_cursor import TRANSACTION, failed, observed
from queue_db.errors import QueueDBError

if TYPE_CHECKING:
    from queue_db.dialects.base import Dialect


class PooledConnection:
    """A connection of the library, and those of its attributes that SQLAlchemy would look up anew at each use."""

    __slots__ = ("connection", "driver", "engine", "info", "process", "proxied")

    def __init__(self, connection: Connection, process: object = None) -> None:
        self.connection = connection
        self.engine = connection.engine
        #: Stands for the process that opened the connection.
        self.process = process
        #: The pool's proxy of the connection. Its ``dbapi_connection`` is None after the connection was closed or invalidated.
        self.proxied: Any = connection.connection
        self.info: MutableMapping[Any, Any] = self.proxied.info
        #: The driver's own connection, without an adapter of SQLAlchemy.
        self.driver: Any = self.proxied.driver_connection


class Sender:
    """A transaction on a connection. It sends all statements, including BEGIN and COMMIT.

    :meth:`lead` makes this the outermost transaction of a connection of the library. Each statement then commits by itself until
    :meth:`begin`. Without :meth:`lead`, this transaction is nested in another transaction of the library or of a caller.

    Kept statements go to the driver's cursor on a connection of the library, and through SQLAlchemy on a caller's connection.
    """

    __slots__ = (
        "__weakref__",
        "_block",
        "_driver",
        "_mark",
        "_outer",
        "asked",
        "autocommits",
        "begun",
        "connection",
        "dialect",
        "info",
        "interrupted",
        "sent",
        "uses_raw_cursor",
        "write",
    )

    info: MutableMapping[Any, Any]
    _block: Sender | None

    def __init__(self, connection: Connection, dialect: Dialect) -> None:
        self.connection = connection
        self.dialect = dialect
        self.begun = self.interrupted = self.uses_raw_cursor = False
        #: The number of statements that were sent by :meth:`fetch` and :meth:`execute`, including BEGIN and COMMIT.
        self.sent = 0
        #: The driver's connection, for statements that go to its cursor; None: all statements go through SQLAlchemy.
        self._driver: Any = None
        #: The transaction of the library in which this one is nested.
        self._block = block = own(connection)
        #: Whether each statement commits by itself until the transaction begins. If so, SQLAlchemy does not know the transaction.
        self.autocommits = block is not None
        if block is not None:
            self.info = block.info
            self._driver = block._driver  # noqa: SLF001 - an attribute of the same class
            self.uses_raw_cursor, self.begun = block.uses_raw_cursor, block.begun

    def lead(self, pooled: PooledConnection, *, write: bool = True) -> None:
        """Make this the transaction of the connection until :meth:`leave`.

        The connection's ``info`` has only a weak reference to the transaction, so Python can free and close a connection that was
        never returned.

        :param write: whether the transaction changes rows.
        """
        self.connection = pooled.connection
        info = self.info = pooled.info
        engine = pooled.engine
        # First the cheap test: SQLAlchemy sets ``_has_events`` when a listener is added.
        watched = (engine._has_events or engine._echo) and observed(engine)  # noqa: SLF001
        self._driver = None if watched else pooled.proxied.dbapi_connection
        self._block = None
        self.autocommits = True
        #: Whether kept statements go to the driver's cursor.
        self.uses_raw_cursor = self.dialect.uses_raw_cursor
        self.write = write
        self.begun = False
        #: Whether BEGIN was sent, even if it failed. After BEGIN, nothing is committed without a COMMIT.
        self.asked = False
        #: Whether a statement has been interrupted, so that its effect is unknown.
        self.interrupted = False
        #: The transaction around this one on the same connection, if a thread has only one connection.
        self._outer = info.get(TRANSACTION)
        self._mark: ref[Sender] | None = ref(self)
        info[TRANSACTION] = self._mark

    def leave(self) -> None:
        """Remove this transaction from the connection. The transaction has ended, and the connection is idle."""
        # Another mark means that the connection was taken from this transaction. It may mark another transaction, so keep it.
        info = self.info
        if info.get(TRANSACTION) is self._mark:
            info[TRANSACTION] = self._outer
        self._mark = None

    def begin(self) -> None:
        """Begin the transaction, unless it has begun."""
        if self.begun:
            return
        if not self.autocommits:
            self.dialect.server.begin_changes(self.connection)
        elif self._block is not None:
            self._block.begin()
        else:
            self.asked = True
            text, values = self.dialect.begins_each or (self.dialect.begins_writing if self.write else "BEGIN", ())
            self.execute(text, values)
        self.begun = True

    def commit(self) -> None:
        """Commit the transaction, if it has begun.

        :raises PendingRollbackError: the connection broke or a statement was interrupted, and the caller has ignored the error.
        """
        if self.begun:
            if self.interrupted or self.connection.invalidated or self.info.get(TRANSACTION) is not self._mark:
                raise PendingRollbackError("a statement of this transaction was interrupted, or its connection broke")
            self.execute("COMMIT", ())
            self.begun = False

    def rollback(self) -> None:
        """Roll back the transaction, if it has begun. If ROLLBACK fails, the connection is discarded, so the server rolls back."""
        if self.begun and not self.connection.invalidated:
            try:
                self.execute("ROLLBACK", ())
            except DBAPIError:
                self.connection.invalidate()
        self.begun = False

    @property
    def sends_raw(self) -> bool:
        """Whether SQL texts go directly to the driver's cursor. Listeners and logs of the engine do not see such texts."""
        return self.uses_raw_cursor and self._driver is not None

    # --- statements -----------------------------------------------------------------------------------------------------

    def fetch(self, statement: Executable | str, values: Any) -> Sequence[Sequence[Any]]:
        """Execute a statement and return its rows.

        :param statement: a kept statement, or a text for the driver.
        :param values: the values by name for a kept statement, or a tuple for a text.
        :raises DBAPIError: the exception that SQLAlchemy would raise.
        """
        self.sent += 1
        if isinstance(statement, str):
            text, arguments = statement, values
        elif self.uses_raw_cursor:
            text, arguments = self.dialect.render(self, statement, values)
        else:
            return self.connection.execute(statement, values).all()
        driver = self._driver
        if driver is None:
            return self.connection.exec_driver_sql(text, arguments or None).all()
        cursor: Any = None
        try:
            cursor = driver.cursor()
            cursor.execute(text, arguments)
            rows: Sequence[Sequence[Any]] = cursor.fetchall()
            cursor.close()
        except BaseException as error:
            failed(self.connection, text, cursor, error)
            raise
        return rows

    def execute(self, statement: Executable | str, values: Any) -> int:
        """Execute a statement that returns no rows, and return the number of matched rows. For parameters see :meth:`fetch`."""
        self.sent += 1
        if isinstance(statement, str):
            text, arguments = statement, values
        elif self.uses_raw_cursor:
            text, arguments = self.dialect.render(self, statement, values)
        else:
            return self.connection.execute(statement, values).rowcount
        driver = self._driver
        if driver is None:
            return self.connection.exec_driver_sql(text, arguments or None).rowcount
        cursor: Any = None
        try:
            cursor = driver.cursor()
            cursor.execute(text, arguments)
            touched: int = cursor.rowcount
            cursor.close()
        except BaseException as error:
            failed(self.connection, text, cursor, error)
            raise
        return touched

    def execute_many(self, statement: Executable, names: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> tuple[int, int]:
        """Execute a statement once for each of ``rows``; return the number of matched rows and the driver's ``lastrowid``.

        :param names: the parameters whose values are in each row, in this order.
        """
        self.sent += 1
        if not self.uses_raw_cursor:
            named = [dict(zip(names, row, strict=True)) for row in rows]
            result = self.connection.execute(statement, named)
            return result.rowcount, result.lastrowid or 0
        parts = raw_cursor.written(statement, self.connection.dialect)
        text, arguments = parts.text, [*map(itemgetter(*map(names.index, parts.order)), rows)]
        if self._driver is None:
            result = self.connection.exec_driver_sql(text, arguments)
            return result.rowcount, result.lastrowid or 0
        cursor: Any = None
        try:
            cursor = self._driver.cursor()
            cursor.executemany(text, arguments)
            done: tuple[int, int] = cursor.rowcount, cursor.lastrowid or 0
            cursor.close()
        except BaseException as error:
            failed(self.connection, text, cursor, error)
            raise
        return done


def own(connection: Connection) -> Sender | None:
    """The current transaction of a connection of the library; None on a caller's connection."""
    mark: ref[Sender] | None = connection.info.get(TRANSACTION)
    return None if mark is None else mark()


def interrupted(connection: Connection, error: BaseException) -> bool:
    """Whether ``error`` may have interrupted a statement, so that its reply may be outstanding or its effect unknown.

    Errors of the database are replies, and errors of this package are raised between statements. Neither interrupts a statement.
    Exceptions such as KeyboardInterrupt, which are no ``Exception``, may always have interrupted a statement. Any other exception
    may have done so only if its traceback leads through SQLAlchemy, the driver or this package: a signal handler may have raised
    the exception there. This also applies to the exceptions before it in its chain, up to an error of the first two kinds.
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
    """Run a block in a savepoint: if the block fails, its changes are undone and the transaction continues."""
    nested = connection.begin_nested()
    try:
        yield
        nested.commit()
    except BaseException as error:
        try:
            # After a failed commit, this only lets SQLAlchemy forget the savepoint: otherwise the rollback of a savepoint around it
            # raises another error.
            nested.close()
        except DBAPIError as gone:
            # The server has rolled back the whole transaction with its savepoints. If the first error is the server's, it says why.
            # After any other error, such as a duplicate key, the transaction would go on without its first part.
            told = isinstance(error, DBAPIError) and not isinstance(error, IntegrityError)
            if isinstance(error, Exception) and not told:
                raise gone from error
        raise
