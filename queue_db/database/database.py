"""Opens and checks one database, and begins and retries the transactions on it."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from sqlalchemy import URL, Connection, Engine, create_engine
from sqlalchemy.exc import ArgumentError as SQLAlchemyArgumentError
from sqlalchemy.exc import (
    DBAPIError,
    InvalidRequestError,
    MultipleResultsFound,
    NoResultFound,
    ObjectNotExecutableError,
    PendingRollbackError,
    ResourceClosedError,
    SQLAlchemyError,
    StatementError,
    UnboundExecutionError,
)
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.pool import QueuePool

from queue_db.concurrency.batching import Callers, Threads
from queue_db.concurrency.forks import reset_after_fork
from queue_db.database import addresses, driver_connections
from queue_db.database.connections import Connections
from queue_db.database.masking import mask, masked, secrets_in
from queue_db.database.transaction import ATTEMPTS, Haste, OwnTransaction, Run
from queue_db.database.urls import parse_url, wrong_sort
from queue_db.dialects import Dialect, Listener, LoopListener, dialect_for, dialect_of, transactions
from queue_db.dialects.borrowed import Using
from queue_db.dialects.raw_cursor import PARAMSTYLES
from queue_db.errors import (
    ConfigurationError,
    PermanentStorageError,
    QueueDBError,
    StorageError,
    TransientStorageError,
    UnsupportedError,
)
from queue_db.model import Capability, Counters, Fault
from queue_db.store import Store

if TYPE_CHECKING:
    from collections.abc import Iterator


_T = TypeVar("_T")

#: The counter of each kind of error.
COUNTED = {
    Fault.DEADLOCK: "deadlocks",
    Fault.SERIALIZATION: "serialization_failures",
    Fault.LOCK_TIMEOUT: "lock_timeouts",
    Fault.OTHER: "other_errors",
}


#: Remedies for mistakes that SQLAlchemy refuses, by the exact class of the exception. They replace SQLAlchemy's messages, which may
#: show data.
_REMEDIES: dict[type[SQLAlchemyError], str] = {
    UnboundExecutionError: "the session has no engine: Session(engine)",
    PendingRollbackError: "an earlier statement of this transaction failed: roll it back first",
    ObjectNotExecutableError: "SQL is given as sqlalchemy.text(…)",
    StatementError: "a parameter has no value, or one that its type does not take",
    NoResultFound: "the result has no row, and one is required",
    MultipleResultsFound: "the result has several rows, and one is required",
}

#: Remedies at the start of a verb, where the caller's connection is checked. There, each of the two added classes has one cause.
_REMEDIES_AT_START: dict[type[SQLAlchemyError], str] = _REMEDIES | {
    ResourceClosedError: "the connection is closed: use it within its with block",
    InvalidRequestError: "no transaction is open: begin one, and use it within its with block",
}


# A note for serialization failures in transactions of callers. The library's own transactions are at READ COMMITTED.
_OLD_SNAPSHOT = (
    "another transaction has changed the row since this one first read: roll back and run the transaction again. At READ COMMITTED "
    "the database does not refuse it"
)


class Database:
    """An engine, its dialect, and transactions on it."""

    #: Whether the database is used on an event loop. Then all its methods run in SQLAlchemy greenlets.
    asynchronous: ClassVar[bool] = False
    #: The kind of callers that a :class:`~queue_db.concurrency.batching.Batcher` of this database has: threads or tasks.
    callers: ClassVar[type[Callers]] = Threads

    def __init__(self, target: str | URL | Engine, *, pool_size: int = 5, max_overflow: int = 45) -> None:
        self.made_here = not isinstance(target, Engine)
        self.closed = False
        engine = self._given(target) if isinstance(target, Engine) else self._made(target, pool_size, max_overflow)
        #: Whether each statement outside a transaction commits by itself on the connections of this database.
        self.autocommits = self.made_here and self.dialect.autocommits
        self.url = masked(engine.url)
        self.counters = Counters()
        #: ``with database.haste:`` is a block in which the transactions of this thread wait for a lock once.
        self.haste = Haste()
        #: Connections of drivers and of Django that callers lend.
        self.lent = driver_connections.DriverConnections()
        self.after_fork()
        reset_after_fork(self)
        try:
            with self._errors("connect"):
                self.dialect.uses_raw_cursor = engine.dialect.paramstyle in PARAMSTYLES
                self.engine = self.dialect.server.prepare(engine, made_here=self.made_here)
                keep = self._keeps(pool_size)
                self.connections = Connections(self.engine, self.dialect, keep, self._discarded, made_here=self.made_here)
                with self.connections.one() as connection:
                    self._meet(connection)
        except BaseException as error:
            self._dispose(engine)
            problem = self._not_opened(engine, error)
            if problem is None:
                raise
            raise problem from (error.__cause__ if isinstance(error, StorageError) else error)

    def _given(self, engine: Engine) -> Engine:
        """The caller's engine, checked."""
        if engine.dialect.is_async is not self.asynchronous:
            raise ConfigurationError(wrong_sort("this engine", "another", asynchronous=self.asynchronous))
        self.dialect: Dialect = dialect_of(engine)
        return engine

    def _made(self, target: str | URL, pool_size: int, max_overflow: int) -> Engine:
        """A new engine for this URL."""
        if hasattr(target, "sync_engine"):
            raise ConfigurationError(wrong_sort("an AsyncEngine", "an Engine", asynchronous=False))
        url = parse_url(target, asynchronous=self.asynchronous)
        self.dialect = dialect_for(url.get_backend_name())
        options = self.dialect.server.engine_options(url)
        if "poolclass" not in options:
            options |= {"pool_size": pool_size, "max_overflow": max_overflow}
        if self.dialect.autocommits:
            options |= {"isolation_level": "AUTOCOMMIT", "skip_autocommit_rollback": True}
        try:
            # Payloads are the users' data and must not appear in tracebacks or logs.
            engine = self._engine(url, hide_parameters=True, **options)
            engine.dialect.create_connect_args(url)
            addresses.follow(engine, self.dialect, self.pause, self._failed_over)
        except (SQLAlchemyArgumentError, ValueError, TypeError) as error:
            # Raise it without its cause, which may show the password in the URL.
            raise ConfigurationError(f"cannot open {masked(url)}: {mask(str(error), secrets_in(url))}") from None
        return engine

    def _not_opened(self, engine: Engine, error: BaseException) -> QueueDBError | None:
        """The exception that says why the database cannot be opened; None: ``error`` does not come from the database."""
        kind: type[StorageError]
        if isinstance(error, StorageError):
            kind = type(error)
            cut = isinstance(error.__cause__, DBAPIError) and error.__cause__.connection_invalidated
            if error.sqlstate is None and not cut:
                # The driver does not say whether the password is wrong or the server is starting, so check whether it is down.
                down = error.server_away and self._aside(self.dialect.server.nodes.is_down, engine)
                kind = TransientStorageError if down else PermanentStorageError
            reason: object = self._missing_folder(engine) or error
            away = kind is TransientStorageError
        elif isinstance(error, OSError):
            # Some drivers raise OSError when no server answers, or for a wrong certificate or file.
            reason = str(error) or type(error).__name__
            away = type(error) is OSError or isinstance(error, ConnectionError | TimeoutError | socket.gaierror)
            kind = TransientStorageError if away else PermanentStorageError
        elif isinstance(error, TypeError | RuntimeError):
            # Drivers raise these for an unknown URL parameter, or if they lack a package that the server requires.
            return ConfigurationError(f"cannot open {self.url}: {error}")
        else:
            return None
        state = error.sqlstate if isinstance(error, StorageError) else None
        return kind(f"cannot open {self.url}: {reason}", sqlstate=state, statement_name="connect", server_away=away)

    def after_fork(self) -> None:
        """Make a new lock: another thread of the parent may have held the old one."""
        #: Guards changes of the counters: a bare ``+=`` can lose the increment of another thread. Use the lock itself in ``with``:
        #: an interrupt in an ``__exit__`` written in Python could leave the lock locked. The lock is reentrant, because garbage
        #: collection may discard a connection, and count this, while the thread holds the lock.
        self.counting = threading.RLock()

    def _missing_folder(self, engine: Engine) -> str | None:
        file = self.dialect.server.file(engine.url)
        if file is None or file.parent.is_dir():
            return None
        return f"there is no folder {file.parent}: create it, or correct the URL"

    def _discarded(self) -> None:
        with self.counting:
            self.counters.discarded += 1

    def _failed_over(self) -> None:
        with self.counting:
            self.counters.failovers += 1

    def _engine(self, url: URL, **options: Any) -> Engine:
        return create_engine(url, **options)

    def pause(self, seconds: float) -> None:
        """Sleep. Use this for every pause: on an event loop it lets other tasks run."""
        time.sleep(seconds)

    def _aside(self, work: Callable[[Engine], _T], engine: Engine) -> _T:
        """Run ``work``, which blocks: on an event loop in a thread of its own."""
        return work(engine)

    def _keeps(self, pool_size: int) -> int:
        # Keep connections only of a QueuePool of our own. Other pools bind connections to threads, and an application may count the
        # connections that are checked out of its own engine.
        return pool_size if self.made_here and isinstance(self.engine.pool, QueuePool) else 0

    def _meet(self, connection: Connection) -> None:
        """Read the server's version and capabilities from the first connection; refuse a server that is too old."""
        sql = connection.dialect
        product, version = self.dialect.product(sql, connection), tuple(sql.server_version_info or ())
        self.capabilities: frozenset[Capability] = product.capabilities
        self.server = f"{product.title} {'.'.join(map(str, version[:3]))}"
        minimum = product.minimum
        if version and version[: len(minimum)] < minimum:
            raise UnsupportedError(
                f"{self.server} is too old: {'.'.join(map(str, minimum))} or later is needed",
                capability="server version",
                dialect=sql.name,
            )

    def _dispose(self, engine: Engine) -> None:
        if self.made_here:
            engine.dispose()

    def require(self, needs: frozenset[Capability], user: str) -> None:
        """Check that the server has these capabilities.

        :param user: the strategy or removal that needs them, for the message.
        :raises UnsupportedError: the server lacks one of them.
        """
        for capability in sorted(needs - self.capabilities):
            raise UnsupportedError(
                f"{user} needs {capability.value}, which {self.server} does not have",
                capability=capability.value,
                dialect=self.engine.dialect.name,
            )

    def run(
        self,
        work: Callable[..., _T],
        *arguments: Any,
        name: str,
        store: Store | None = None,
        write: bool = True,
        attempts: int = ATTEMPTS,
        lazy: bool = False,
        repeatable: bool = False,
    ) -> _T:
        """Run ``work(connection, *arguments)`` in a transaction of its own and commit; see :class:`Run`.

        :param store: if given, ``work`` gets a :class:`Transaction` on the tables of this store in place of the connection, and the
            actions that follow its commit are done here.
        :raises StorageError: the database refuses a statement, or still asks for a retry after the last attempt.
        """
        tx = OwnTransaction(self, store, Run(name, write, attempts, lazy, repeatable))
        try:
            while not tx.committed:
                with tx:
                    answer = work(tx.connection if store is None else tx, *arguments)
        finally:
            tx.give_back()
        tx.follow()
        return answer

    @contextmanager
    def begin(self, name: str = "begin", *, write: bool = True) -> Iterator[Connection]:
        """A connection in a transaction, which is committed at the end of the block and rolled back if the block raises."""
        tx = OwnTransaction(self, None, Run(name, write, attempts=1))
        try:
            with tx:
                if self.autocommits:
                    tx.lend()
                yield tx.connection
        finally:
            tx.give_back()

    def drop_if_read_only(self, connection: Connection, error: BaseException) -> None:
        """Close all connections if the server is read-only: after a failover the address may lead to another server."""
        cause = error.__cause__ if isinstance(error, StorageError) else error
        if not isinstance(cause, DBAPIError) or self.dialect.errors.code(cause) not in self.dialect.errors.read_only:
            return
        # Closing the connection would lose a database in memory. The connection may be invalid already: a node of a cluster that
        # refuses statements also refuses ROLLBACK.
        if not self.dialect.server.in_memory:
            connection.invalidate(cause)
            connection.engine.dispose()

    def check_open(self) -> None:
        """Check that the database is open.

        :raises ConfigurationError: the database has been closed.
        """
        if self.closed:
            raise ConfigurationError(f"this QueueDB is closed ({self.url}): use it inside its with block, or open another")

    def listen(self, channel: str) -> Listener | None:
        """A separate connection that receives notifications on ``channel``; None if the database has no notifications."""
        self.check_open()
        self.connections.forget_parents()
        with self._errors("listen"):
            return self.dialect.server.listen(self.engine, channel)

    def listen_on_loop(self, broken: Callable[[], None]) -> LoopListener | None:
        """A listener for the tasks of an event loop; call this in a greenlet.

        :param broken: called when the connection of the listener breaks.
        """
        self.check_open()
        self.connections.forget_parents()
        with self._errors("listen"):
            return self.dialect.server.listen_on_loop(self.engine, broken)

    @contextmanager
    def joined(self, using: Any, name: str, check: Callable[[Connection], None], *, write: bool) -> Iterator[Connection]:
        """The caller's connection, in the caller's transaction. Nothing is committed or retried here.

        :param using: a Connection or Session, or a driver's or Django's connection.
        :param check: refuses a connection to another database, before anything is begun.
        :param write: whether there will be changes: on SQLite, the transaction then locks the file from now on.
        :raises ConfigurationError: ``using`` is no connection or session, leads to another kind of database, or has no transaction.
        """
        self.check_open()
        found = None
        if not isinstance(using, Connection):
            found = driver_connections.given(using, asynchronous=self.asynchronous)
        try:
            with self._errors(name), nullcontext(using) if found is None else self.lent.connection(found) as given:
                connection = self._callers(given, name, checked=found is not None)
                check(connection)
                if write and transactions.own(connection) is None:
                    with self._errors(name, _REMEDIES_AT_START):
                        self.dialect.server.begin_changes(connection)
                yield connection
        except StorageError as error:
            cause = error.__cause__
            if isinstance(cause, SQLAlchemyError) and self.dialect.errors.fault(cause) is Fault.SERIALIZATION:
                error.add_note(_OLD_SNAPSHOT)
            raise

    def _callers(self, using: Using, name: str, *, checked: bool) -> Connection:
        """The caller's connection, checked, in a transaction. ``checked``: it is known to have one."""
        with self._errors(name, _REMEDIES_AT_START):
            connection = using if isinstance(using, Connection) else _connection_of(using, asynchronous=self.asynchronous)
            if connection.dialect.name not in {self.engine.dialect.name, *type(self.dialect).names}:
                raise ConfigurationError(
                    f"using= is a connection to {connection.dialect.name}, but this queue is in {self.engine.dialect.name}"
                )
            # The library's own connections also autocommit, but begin a transaction when a verb needs one.
            own = transactions.own(connection)
            if own is None and not checked and self.dialect.server.commits_each_statement(connection):
                raise ConfigurationError(
                    "using= is a connection in AUTOCOMMIT mode: each statement commits alone, so nothing could be rolled back. "
                    'Use a connection with a transaction, from an engine without isolation_level="AUTOCOMMIT": '
                    "with engine.begin() as connection"
                )
            if own is not None:
                if isinstance(own, OwnTransaction):
                    own.check_lent()
                own.begin()
            return connection

    @contextmanager
    def _errors(self, name: str, remedies: Mapping[type[SQLAlchemyError], str] = _REMEDIES) -> Iterator[None]:
        try:
            yield
        except QueueDBError:
            raise
        except SQLAlchemyError as error:
            raise self.translated(error, name, remedies) from error

    def translated(
        self, error: SQLAlchemyError, name: str, remedies: Mapping[type[SQLAlchemyError], str] = _REMEDIES
    ) -> StorageError:
        """Count an exception of SQLAlchemy, and return the library's exception for it."""
        counter = COUNTED[self.dialect.errors.fault(error)]
        with self.counting:
            setattr(self.counters, counter, getattr(self.counters, counter) + 1)
        if isinstance(error, DBAPIError):
            translated = self.dialect.errors.translate(error, name)
            if translated.sqlstate in self.dialect.errors.other_session:
                # A pooler gives each transaction another session, so prepare no more statements. The transaction runs again.
                self.dialect.uses_raw_cursor = False
            return translated
        if isinstance(error, PoolTimeoutError):
            return TransientStorageError(f"{name}: no free connection in the pool", statement_name=name)
        remedy = remedies.get(type(error))
        words = f"{type(error).__name__}: {remedy}" if remedy else type(error).__name__
        return PermanentStorageError(f"{name}: {words}", statement_name=name)

    def close(self) -> None:
        """Close the library's connections. A caller's engine stays open. No method can use this database afterwards."""
        self.closed = True
        self.connections.close()
        self._dispose(self.engine)


def _connection_of(using: Any, *, asynchronous: bool) -> Connection:
    if hasattr(using, "sync_session") or hasattr(using, "sync_connection"):
        raise ConfigurationError(wrong_sort(f"using={type(using).__name__}", "a Connection or Session", asynchronous=False))
    # Only sessions have both get_bind and connection. A raw connection of SQLite may have a callable ``connection`` as well.
    connection = getattr(using, "connection", None) if hasattr(using, "get_bind") else None
    if callable(connection):
        found = connection()
        if isinstance(found, Connection):
            return found
    taken = driver_connections.TAKEN_ON_A_LOOP if asynchronous else driver_connections.TAKEN
    raise ConfigurationError(f"using= takes {taken}, not {type(using).__name__}")
