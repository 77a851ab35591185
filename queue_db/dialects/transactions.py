"""Transactions on a connection: one that begins when it is needed, and one inside another."""

from __future__ import annotations

import traceback
from collections.abc import Iterator, MutableMapping, Sequence
from contextlib import contextmanager, suppress
from operator import itemgetter
from typing import TYPE_CHECKING, Any
from weakref import ref

from sqlalchemy import Connection, Executable
from sqlalchemy.exc import DBAPIError, PendingRollbackError, SQLAlchemyError

from queue_db.dialects import raw_cursor
from queue_db.dialects.raw_cursor import TRANSACTION, failed, observed
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


class Sender:
    """A transaction on a connection: how it begins and ends, and how statements are sent in it.

    :meth:`lead` makes it the transaction of a connection of the library, where each statement commits by itself until
    :meth:`begin`. Otherwise it is within another one: a block of the library's, or a caller's transaction.

    Statements that are built once and kept go to the driver's cursor on connections of the library, and through SQLAlchemy on a
    caller's.
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
        "observed",
        "sent",
        "uses_raw_cursor",
        "write",
    )

    info: MutableMapping[Any, Any]
    _driver: Any
    _block: Sender | None

    def __init__(self, connection: Connection, dialect: Dialect) -> None:
        self.connection = connection
        self.dialect = dialect
        self.begun = self.uses_raw_cursor = self.observed = False
        self.sent = 0
        #: The transaction of the library's that this one is within.
        self._block = block = own(connection)
        #: Whether each statement commits by itself until it begins, and SQLAlchemy knows nothing of it.
        self.autocommits = block is not None
        if block is not None:
            self.info = block.info
            self._driver = block._driver  # noqa: SLF001 - of this class
            self.uses_raw_cursor, self.observed, self.begun = block.uses_raw_cursor, block.observed, block.begun

    def lead(self, pooled: PooledConnection, *, write: bool = True) -> None:
        """Be the transaction of this connection, until :meth:`leave`.

        The connection's ``info`` knows of it by a weak reference: so a connection that nobody gives back is freed, and closed.

        :param write: it changes rows.
        """
        connection = self.connection = pooled.connection
        self.info = pooled.info
        self._driver = pooled.proxied.dbapi_connection
        self._block = None
        self.autocommits = True
        #: Whether kept statements go to the driver's cursor.
        self.uses_raw_cursor = self.dialect.uses_raw_cursor
        #: Whether the engine has event listeners or logs its statements: then the statements go through SQLAlchemy.
        self.observed = observed(connection)
        self.write = write
        self.begun = False
        #: It was to begin, which may have failed: nothing is committed without a COMMIT.
        self.asked = False
        #: A statement has been interrupted, so its effect is unknown.
        self.interrupted = False
        #: Number of statements that were sent as text, with BEGIN and COMMIT.
        self.sent = 0
        #: The transaction around this one, where a thread has one connection for everything.
        self._outer = self.info.get(TRANSACTION)
        self._mark: ref[Sender] | None = ref(self)
        self.info[TRANSACTION] = self._mark

    def leave(self) -> None:
        """It has ended, and the connection is idle."""
        # Otherwise the connection has been taken away meanwhile, and may be another one's.
        if self.info.get(TRANSACTION) is self._mark:
            if self._outer is None:
                del self.info[TRANSACTION]
            else:
                self.info[TRANSACTION] = self._outer
        self._mark = None

    def begin(self) -> None:
        """Begin it, unless it has begun."""
        if self.begun:
            return
        if not self.autocommits:
            self.dialect.begin_changes(self.connection)
        elif self._block is not None:
            self._block.begin()
        else:
            self.asked = True
            text, values = self.dialect.begins_each or (self.dialect.begins_writing if self.write else "BEGIN", ())
            self.execute(text, values)
        self.begun = True

    def commit(self) -> None:
        """Commit it, if it has begun.

        :raises PendingRollbackError: the block has ignored that its connection broke, or that a statement was interrupted.
        """
        if self.begun:
            if self.interrupted or self.connection.invalidated or self.info.get(TRANSACTION) is not self._mark:
                raise PendingRollbackError("a statement of this transaction was interrupted, or its connection broke")
            self.execute("COMMIT", ())
            self.begun = False

    def rollback(self) -> None:
        """Roll it back, if it has begun. If that fails the connection is discarded, and the server rolls back."""
        if self.begun and not self.connection.invalidated:
            try:
                self.execute("ROLLBACK", ())
            except DBAPIError:
                self.connection.invalidate()
        self.begun = False

    @property
    def sends_raw(self) -> bool:
        """Whether SQL texts go directly to the driver's cursor, so that no listener and no log of the engine sees them."""
        return self.uses_raw_cursor and not self.observed

    # --- statements -----------------------------------------------------------------------------------------------------

    def fetch(self, statement: Executable | str, values: Any) -> Sequence[Sequence[Any]]:
        """The rows of a statement: one that is kept, with its values by name, or a text for the driver, with a tuple.

        :raises DBAPIError: as SQLAlchemy would.
        """
        if isinstance(statement, str):
            text, arguments = statement, values
        elif self.uses_raw_cursor:
            text, arguments = self.dialect.render(self, statement, values)
        else:
            return self.connection.execute(statement, values).all()
        self.sent += 1
        if self.observed or not self.autocommits:
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

    def execute(self, statement: Executable | str, values: Any) -> int:
        """As :meth:`fetch`, for a statement that returns no rows. Return how many rows it matched."""
        if isinstance(statement, str):
            text, arguments = statement, values
        elif self.uses_raw_cursor:
            text, arguments = self.dialect.render(self, statement, values)
        else:
            return self.connection.execute(statement, values).rowcount
        self.sent += 1
        if self.observed or not self.autocommits:
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

    def execute_many(self, statement: Executable, names: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> tuple[int, int]:
        """:meth:`execute` for each of ``rows``, the values of ``names``; return also the driver's ``lastrowid``."""
        if not self.uses_raw_cursor:
            named = [dict(zip(names, row, strict=True)) for row in rows]
            result = self.connection.execute(statement, named)
            return result.rowcount, result.lastrowid or 0
        parts = raw_cursor.written(statement, self.connection.dialect)
        text, arguments = parts.text, [*map(itemgetter(*map(names.index, parts.order)), rows)]
        self.sent += 1
        if self.observed:
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
    """The transaction of a connection of the library while it is in use; None on a caller's connection."""
    mark: ref[Sender] | None = connection.info.get(TRANSACTION)
    return None if mark is None else mark()


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
