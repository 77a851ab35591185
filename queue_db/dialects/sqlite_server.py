"""SQLite files: connections and error codes."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import Any, ClassVar
from weakref import ref

from sqlalchemy import URL, Connection, Engine, event
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.pool import AsyncAdaptedQueuePool, SingletonThreadPool

from queue_db.dialects.error_codes import ErrorCodes
from queue_db.dialects.server import Server
from queue_db.dialects.transactions import Sender
from queue_db.errors import ArgumentError
from queue_db.model import Fault

# The options of the driver in a URL. With uri=true, SQLite itself takes other options.
_OPTIONS = frozenset({"cached_statements", "check_same_thread", "detect_types", "isolation_level", "timeout", "uri"})

# The names that stand for a database in memory in a URL.
IN_MEMORY = (None, "", ":memory:")

#: The length of a connection's list of cursors from which on references to freed cursors are removed from the list.
_CURSORS = 16


def _code(error: DBAPIError) -> str | None:
    code = getattr(error.orig, "sqlite_errorcode", None)
    return None if code is None else str(code & 0xFF)


ERRORS = ErrorCodes(
    code=_code,
    transient=frozenset({str(sqlite3.SQLITE_BUSY), str(sqlite3.SQLITE_LOCKED)}),
    # A read-only file does not become writable by itself within seconds, so the error is permanent.
    read_only=frozenset({str(sqlite3.SQLITE_READONLY)}),
    full=frozenset({str(sqlite3.SQLITE_FULL)}),
    faults={str(sqlite3.SQLITE_BUSY): Fault.LOCK_TIMEOUT, str(sqlite3.SQLITE_LOCKED): Fault.LOCK_TIMEOUT},
)


class SQLiteServer(Server):
    """A file that one writer holds at a time, or a database in memory."""

    schemas_are_databases: ClassVar[bool] = True

    def engine_options(self, url: URL) -> dict[str, Any]:
        # SQLAlchemy would ignore an unknown option with a warning that is easy to miss.
        if unknown := set() if "uri" in url.query else set(url.query) - _OPTIONS:
            raise ArgumentError(
                f"unknown option {', '.join(sorted(unknown))} in the database URL; known: {', '.join(sorted(_OPTIONS))}"
            )
        # Seconds to wait for other writers.
        waits: dict[str, Any] = {} if "timeout" in url.query else {"timeout": 30.0}
        options: dict[str, Any] = {"connect_args": waits | {"factory": _Finishing}}
        if url.database in IN_MEMORY:
            # The database belongs to one connection. For threads, SQLAlchemy's pool has one connection for each thread. For
            # asyncio, the pool has one connection, which the tasks use in turn.
            one = {"poolclass": AsyncAdaptedQueuePool, "pool_size": 1, "max_overflow": 0}
            options |= one if url.get_dialect().is_async else {"poolclass": SingletonThreadPool}
        return options

    def file(self, url: URL) -> Path | None:
        if url.database in IN_MEMORY or url.database.startswith("file:"):
            return None
        return Path(url.database)

    def prepare(self, engine: Engine, *, made_here: bool) -> Engine:
        if made_here:
            # With FULL, a commit is on the disk when COMMIT returns. Some builds of SQLite have a weaker default with WAL.
            event.listen(engine, "connect", lambda connection, _: _tell(connection, "PRAGMA synchronous = FULL"))
        else:
            event.listen(engine, "do_connect", _finishing)
        with engine.connect() as connection:
            # With WAL, readers do not wait for the writer. The file keeps this mode. A database in memory ignores the mode.
            run_beside(connection, "PRAGMA journal_mode = WAL")
            self.in_memory = self._file_of(connection) is None
        return engine

    def database_of(self, connection: Connection) -> str | None:
        return self._file_of(connection) or "a database in memory"

    def _file_of(self, connection: Connection) -> str | None:
        files = {name: file for _, name, file in connection.exec_driver_sql("PRAGMA database_list")}
        return os.path.realpath(files["main"]) if files["main"] else None

    def begin_changes(self, connection: Connection) -> None:
        # A caller's transaction also takes the write lock first. This also protects a savepoint: without BEGIN, a savepoint before
        # the first change would have no transaction around it, and its release would commit.
        if not _in_transaction(connection):
            run_beside(connection, self.dialect.begins_writing)

    def is_idle(self, driver: Any) -> bool:
        # A change with unread rows holds the lock until its statement ends. Without BEGIN, ``in_transaction`` does not show the
        # lock.
        if driver.in_transaction:
            return False
        if isinstance(driver, _Finishing):
            for cursor in driver.cursors:
                if cursor() is not None:
                    return False
        return True

    def known_alive(self, tx: Sender) -> bool:
        return tx.sends_raw  # no network can break a file's connection

    def recover(self, driver: Any) -> bool:
        # This process runs the statements itself, so no reply is outstanding. Closing the connection would lose a database in
        # memory.
        if isinstance(driver, _Finishing):
            driver.finish()
        elif not (isinstance(driver, sqlite3.Connection) and self.in_memory):
            return False
        if driver.in_transaction:
            driver.execute("ROLLBACK").close()
        return not driver.in_transaction

    def commits_each_statement(self, connection: Connection) -> bool:
        # Without an isolation level the driver begins no transaction by itself. But an application may send BEGIN in a listener, as
        # SQLAlchemy's documentation recommends. So begin with SQLAlchemy, and look whether the driver has a transaction.
        if _in_transaction(connection) or not _autocommits(connection):
            return False
        if connection.in_transaction():
            return True
        transaction = connection.begin()
        if _in_transaction(connection):
            return False
        transaction.rollback()
        return True


class _Finishing(sqlite3.Connection):
    """A connection that can end its statements, and ends them when it is closed.

    After an interrupt, a statement may have unread rows. Until Python frees the last frame with a reference to the cursor, the
    statement keeps its lock and SQLite cannot close the connection. An exception can keep its frames alive for a long time.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        #: The cursors that Python has not freed; closed cursors may be among them. A WeakSet is not used, because Python ignores a
        #: Ctrl-C during one of its callbacks.
        self.cursors: list[ref[sqlite3.Cursor]] = []

    def cursor(self, *arguments: Any, **options: Any) -> Any:
        made: sqlite3.Cursor = super().cursor(*arguments, **options)
        if len(self.cursors) >= _CURSORS:
            self.cursors = [cursor for cursor in self.cursors if cursor() is not None]
        self.cursors.append(ref(made))
        return made

    def finish(self) -> None:
        """End all statements."""
        for cursor in self.cursors:
            if (open_ := cursor()) is not None:
                open_.close()
        self.cursors = []

    def close(self) -> None:
        self.finish()
        super().close()


def _finishing(_: object, __: object, arguments: list[Any], options: dict[str, Any]) -> None:
    """Let an application's engine make connections of the class :class:`_Finishing`. This is a ``do_connect`` listener."""
    options.setdefault("factory", _Finishing)


def _in_transaction(connection: Connection) -> bool:
    driver: Any = connection.connection.driver_connection
    return bool(driver.in_transaction)


def _autocommits(connection: Connection) -> bool:
    driver: Any = connection.connection.driver_connection
    # Python 3.12 added the attribute ``autocommit``. If its value is not a bool, the isolation level decides.
    mode = getattr(driver, "autocommit", None)
    return mode if isinstance(mode, bool) else driver.isolation_level is None


def _tell(driver: Any, statement: str) -> None:
    cursor = driver.cursor()
    cursor.execute(statement)
    cursor.fetchall()
    cursor.close()


def run_beside(connection: Connection, statement: str) -> None:
    """Run a statement without SQLAlchemy, which would begin a transaction for it and show it to listeners."""
    try:
        _tell(connection.connection, statement)
    except sqlite3.Error as error:
        raise OperationalError(statement, None, error) from error
