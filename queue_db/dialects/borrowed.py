"""Connections of drivers that a caller lends: how they are recognised, what state they are in, and how they read our values.

No driver is imported here: whoever lends a connection has imported its driver.
"""

from __future__ import annotations

import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import Enum
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeAlias

from sqlalchemy.engine.interfaces import Dialect as SQLAlchemyDialect
from sqlalchemy.util.concurrency import in_greenlet

from queue_db.slices import type_hint

if TYPE_CHECKING:
    from sqlalchemy import Connection
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession
    from sqlalchemy.orm import Session


class DriverConnection(Protocol):
    """An open connection of psycopg, psycopg2, PyMySQL, mysqlclient, sqlite3 or Django, with a transaction."""

    def cursor(self) -> Any: ...
    def commit(self) -> Any: ...
    def rollback(self) -> Any: ...
    def close(self) -> Any: ...


class AsyncDriverConnection(Protocol):
    """An open connection of asyncpg, or psycopg's for asyncio, with a transaction."""

    @property
    def transaction(self) -> Any: ...
    @property
    def execute(self) -> Callable[..., Awaitable[Any]]: ...


if TYPE_CHECKING:
    #: What ``using=`` takes: a connection with a transaction.
    Using: TypeAlias = Connection | Session | DriverConnection
    #: What ``using=`` takes in a coroutine.
    AsyncUsing: TypeAlias = AsyncConnection | AsyncSession | AsyncDriverConnection
else:
    _OF_ASYNCIO = "sqlalchemy.ext.asyncio"
    Using = type_hint("sqlalchemy", "Connection") | type_hint("sqlalchemy.orm", "Session") | DriverConnection
    AsyncUsing = type_hint(_OF_ASYNCIO, "AsyncConnection") | type_hint(_OF_ASYNCIO, "AsyncSession") | AsyncDriverConnection


class State(Enum):
    """The transaction of a driver's connection. The values name what is wrong with it."""

    OPEN = ""  # or the next statement opens it
    NONE = "has no open transaction and commits each statement alone, so nothing could be rolled back"
    FAILED = "is in a failed transaction"
    PIPELINE = "is in pipeline mode, in which a statement has no answer yet"
    CLOSED = "is closed"


class Borrowed:
    """A driver's connection for SQLAlchemy, which cannot commit, roll back or close it."""

    __slots__ = ("_cursor", "driver")

    def __init__(self, driver: Any, cursor: Any) -> None:
        self.driver = driver
        self._cursor = cursor

    def cursor(self) -> Any:
        """A cursor that reads tuples, with values as the library's statements expect them."""
        return self._cursor(self.driver)

    def commit(self) -> None:
        """Do nothing: the transaction is the caller's."""

    rollback = close = commit

    def __getattr__(self, name: str) -> Any:
        return getattr(self.driver, name)


class Driver(ABC):
    """The connections of one driver."""

    #: The module with the class of the connections, and the name of the class.
    module: ClassVar[str]
    class_name: ClassVar[str] = "Connection"
    #: The driver in URLs, and arguments for its SQLAlchemy dialect.
    url: ClassVar[str]
    options: ClassVar[Mapping[str, Any]] = {}
    asynchronous: ClassVar[bool] = False
    #: How a caller begins a transaction.
    remedy: ClassVar[str] = "with connection.transaction()"

    def owns(self, using: object) -> bool:
        """Whether ``using`` is a connection of this driver."""
        kind = getattr(sys.modules.get(self.module), self.class_name, None)
        return isinstance(kind, type) and isinstance(using, kind)

    @abstractmethod
    def state(self, driver: Any) -> State:
        """The state of the connection, without a round trip."""

    def database(self, driver: Any) -> str | None:
        """The name of the connection's database, without a round trip; None: the driver does not know it."""
        return None

    def cursor(self, driver: Any) -> Any:
        """A cursor for the library's statements."""
        return driver.cursor()

    def lent(self, driver: Any, sql: SQLAlchemyDialect) -> Any:
        """The connection for SQLAlchemy."""
        return Borrowed(driver, self.cursor)

    @contextmanager
    def settings(self, driver: Any) -> Iterator[None]:
        """A block in which the connection has settings that a cursor cannot have for itself."""
        yield


# PQTRANS_IDLE, PQTRANS_INERROR and PQTRANS_UNKNOWN of libpq.
_IDLE, _IN_ERROR, _UNKNOWN = 0, 3, 4


def _of_libpq(status: int, *, autocommit: bool) -> State:
    if status == _UNKNOWN:
        return State.CLOSED
    if status == _IN_ERROR:
        return State.FAILED
    return State.NONE if status == _IDLE and autocommit else State.OPEN


class Psycopg(Driver):
    """psycopg 3."""

    module = "psycopg"
    url = "postgresql+psycopg"
    options: ClassVar[Mapping[str, Any]] = {"use_native_hstore": False}  # would register an adapter with the connection

    def state(self, driver: Any) -> State:
        if driver.closed:
            return State.CLOSED
        if driver.info.pipeline_status:
            return State.PIPELINE
        return _of_libpq(driver.info.transaction_status, autocommit=driver.autocommit)

    def database(self, driver: Any) -> str | None:
        return str(driver.info.dbname)

    def cursor(self, driver: Any) -> Any:
        return _psycopg_cursor(driver)


class AsyncPsycopg(Psycopg):
    """psycopg 3 on an event loop."""

    class_name = "AsyncConnection"
    url = "postgresql+psycopg_async"
    asynchronous = True
    remedy = "async with connection.transaction()"

    def lent(self, driver: Any, sql: SQLAlchemyDialect) -> Any:
        return _async_psycopg()(sql.loaded_dbapi, driver)


@lru_cache(maxsize=1)
def _plain_adapters() -> Any:
    """Adapters of psycopg without what an application has registered with its connection."""
    return sys.modules["psycopg.adapt"].AdaptersMap(sys.modules["psycopg"].adapters)


def _psycopg_cursor(driver: Any) -> Any:
    return _psycopg_cursors()[0](driver, row_factory=sys.modules["psycopg.rows"].tuple_row)


@lru_cache(maxsize=1)
def _psycopg_cursors() -> tuple[type[Any], type[Any]]:
    """Cursors of psycopg, and those for an event loop, that prepare nothing: a plan would stay on the caller's connection."""
    psycopg: Any = sys.modules["psycopg"]

    def execute(self: Any, query: Any, params: Any = None, **_: Any) -> Any:
        return psycopg.Cursor.execute(self, query, params, prepare=False)

    def executemany(self: Any, query: Any, rows: Sequence[Any], **_: Any) -> None:
        # psycopg would prepare the statement.
        self._rowcount = sum([execute(self, query, row).rowcount for row in rows])

    async def execute_async(self: Any, query: Any, params: Any = None, **_: Any) -> Any:
        return await psycopg.AsyncCursor.execute(self, query, params, prepare=False)

    async def executemany_async(self: Any, query: Any, rows: Sequence[Any], **_: Any) -> None:
        for row in rows:
            await execute_async(self, query, row)

    adapters = property(lambda _: _plain_adapters())
    threads = {"adapters": adapters, "execute": execute, "executemany": executemany}
    tasks = {"adapters": adapters, "execute": execute_async, "executemany": executemany_async}
    return type("Cursor", (psycopg.Cursor,), threads), type("AsyncCursor", (psycopg.AsyncCursor,), tasks)


@lru_cache(maxsize=1)
def _async_psycopg() -> type[Any]:
    from sqlalchemy.dialects.postgresql import psycopg as adapted

    def make(_: Any, connection: Any) -> Any:
        return _psycopg_cursors()[1](connection, row_factory=sys.modules["psycopg.rows"].tuple_row)

    cursors: tuple[type[Any], ...] = (adapted.AsyncAdapt_psycopg_cursor,)
    cursor = type("BorrowedCursor", cursors, {"_make_new_cursor": make})
    return _never_ended(adapted.AsyncAdapt_psycopg_connection, cursor=_method(cursor))


def _method(make: Any) -> Any:
    """A method that calls ``make`` with the object: a class by itself would be called without it."""

    def method(self: Any) -> Any:
        return make(self)

    return method


def _never_ended(adapted: type[Any], **members: Any) -> type[Any]:
    """A class of SQLAlchemy's connections for asyncio that cannot commit, roll back or close."""
    nothing = dict.fromkeys(("commit", "rollback", "close", "terminate"), Borrowed.commit)
    return type("BorrowedConnection", (adapted,), {**nothing, **members})


class Psycopg2(Driver):
    """psycopg2."""

    module = "psycopg2.extensions"
    class_name = "connection"
    url = "postgresql+psycopg2"
    options: ClassVar[Mapping[str, Any]] = {"use_native_hstore": False}
    remedy = "connection.autocommit = False"

    def state(self, driver: Any) -> State:
        if driver.closed:
            return State.CLOSED
        return _of_libpq(driver.get_transaction_status(), autocommit=driver.autocommit)

    def database(self, driver: Any) -> str | None:
        return str(driver.info.dbname)

    def cursor(self, driver: Any) -> Any:
        extensions: Any = sys.modules[self.module]
        cursor = driver.cursor(cursor_factory=extensions.cursor)
        if driver.string_types:  # the application's casts
            for name in _CASTS:
                extensions.register_type(getattr(extensions, name), cursor)
        return cursor


# psycopg2's casts of the types that the library reads.
_CASTS = ("LONGINTEGER", "INTEGER", "BOOLEAN", "FLOAT", "UNICODE", "LONGINTEGERARRAY", "INTEGERARRAY", "UNICODEARRAY")


class Asyncpg(Driver):
    """asyncpg."""

    module = "asyncpg"
    url = "postgresql+asyncpg"
    asynchronous = True
    remedy = "async with connection.transaction()"

    def state(self, driver: Any) -> State:
        if driver.is_closed():
            return State.CLOSED
        return State.OPEN if driver.is_in_transaction() else State.NONE

    def lent(self, driver: Any, sql: SQLAlchemyDialect) -> Any:
        # Without a cache of its own the connection closes a statement after its use.
        made = _async_asyncpg()(sql.loaded_dbapi, driver, prepared_statement_cache_size=0)
        made.autocommit = True  # begin no transaction in that of the caller
        return made


@lru_cache(maxsize=1)
def _async_asyncpg() -> type[Any]:
    from sqlalchemy.dialects.postgresql import asyncpg as adapted

    return _never_ended(adapted.AsyncAdapt_asyncpg_connection)


class PyMySQL(Driver):
    """PyMySQL."""

    module = "pymysql.connections"
    url = "mysql+pymysql"
    remedy = "connection.begin()"

    def state(self, driver: Any) -> State:
        if not driver.open:
            return State.CLOSED
        # SERVER_STATUS_IN_TRANS of the last reply
        return State.NONE if driver.get_autocommit() and not (driver.server_status or 0) & 1 else State.OPEN

    def cursor(self, driver: Any) -> Any:
        return _counting(sys.modules["pymysql.cursors"].Cursor)(driver)


class MySQLClient(Driver):
    """mysqlclient."""

    module = "MySQLdb.connections"
    url = "mysql+mysqldb"
    remedy = "connection.autocommit(False)"

    def state(self, driver: Any) -> State:
        if not driver.open:
            return State.CLOSED
        # The driver does not show whether a transaction is open.
        return State.NONE if driver.get_autocommit() else State.OPEN

    def cursor(self, driver: Any) -> Any:
        return _counting(sys.modules["MySQLdb.cursors"].Cursor)(driver)


@lru_cache(maxsize=2)
def _counting(kind: type[Any]) -> type[Any]:
    """A class of cursors that count the rows that an UPDATE has matched.

    A connection without the flag FOUND_ROWS counts only rows whose values have changed. The server's message has both numbers.
    """

    def execute(self: Any, *arguments: Any) -> Any:
        found = kind.execute(self, *arguments)
        matched = _MATCHED.search(_message(self.connection))
        if matched:
            self.rowcount = found = int(matched[1])
        return found

    # mysqlclient would divide the rows of an INSERT into statements of 64 KB, and queue_db/dialects/mysql_inserts.py expects one.
    return type("Cursor", (kind,), {"execute": execute, "max_stmt_length": _STATEMENT})


# In PyMySQL's message, the length of the text stands before it.
_MATCHED = re.compile(r"^.?Rows matched: (\d+)", re.DOTALL)

# The bytes of one statement of several rows, as with PyMySQL.
_STATEMENT = 1_024_000


def _message(connection: Any) -> str:
    """The server's message about the last statement, such as ``Rows matched: 1  Changed: 0  Warnings: 0``."""
    result = getattr(connection, "_result", None)  # PyMySQL
    told = connection.info() if result is None and hasattr(connection, "info") else getattr(result, "message", None)
    return told.decode() if isinstance(told, bytes) else str(told or "")


class SQLite3(Driver):
    """sqlite3."""

    module = "sqlite3"
    url = "sqlite"
    remedy = 'connection.execute("BEGIN IMMEDIATE")'

    def state(self, driver: Any) -> State:
        try:
            if driver.in_transaction:
                return State.OPEN
            driver.cursor().close()
        except sys.modules["sqlite3"].ProgrammingError as error:
            if "closed" not in str(error):
                raise  # the connection belongs to another thread
            return State.CLOSED
        # Python 3.12 added the attribute ``autocommit``. If its value is not a bool, the isolation level decides.
        mode = getattr(driver, "autocommit", None)
        each = mode if isinstance(mode, bool) else driver.isolation_level is None
        return State.NONE if each else State.OPEN

    def cursor(self, driver: Any) -> Any:
        cursor = driver.cursor()
        cursor.row_factory = None
        return cursor

    @contextmanager
    def settings(self, driver: Any) -> Iterator[None]:
        # A cursor has no function for texts of its own.
        before, driver.text_factory = driver.text_factory, str
        try:
            yield
        finally:
            driver.text_factory = before


#: What ``using=`` takes besides connections of SQLAlchemy.
DRIVERS: Sequence[Driver] = (Psycopg(), AsyncPsycopg(), Psycopg2(), Asyncpg(), PyMySQL(), MySQLClient(), SQLite3())


def awaits() -> bool:
    """Whether this code runs in a greenlet of SQLAlchemy, where connections for asyncio are used."""
    try:
        return in_greenlet()
    except (ImportError, ValueError):  # the package greenlet is not installed
        return False


def driver_of(using: object) -> Driver | None:
    """The driver of this connection; None: it is none of a known driver."""
    return next((driver for driver in DRIVERS if driver.owns(using)), None)
