"""One database: opens and checks it; the only place that begins and retries transactions."""

from __future__ import annotations

import socket
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from sqlalchemy import URL, Connection, Engine, create_engine
from sqlalchemy.exc import ArgumentError as SQLAlchemyArgumentError
from sqlalchemy.exc import (
    DBAPIError,
    InvalidRequestError,
    MultipleResultsFound,
    NoResultFound,
    ObjectNotExecutableError,
    OperationalError,
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
from queue_db.database.connections import Connections
from queue_db.database.masking import mask, masked, secrets_in
from queue_db.database.transaction import ATTEMPTS, OwnTransaction, Run
from queue_db.database.urls import parse_url, wrong_sort
from queue_db.dialects import Dialect, Listener, LoopListener, dialect_for, transactions
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

    from sqlalchemy.orm import Session

_T = TypeVar("_T")

#: The counter of each kind of error.
COUNTED = {
    Fault.DEADLOCK: "deadlocks",
    Fault.SERIALIZATION: "serialization_failures",
    Fault.LOCK_TIMEOUT: "lock_timeouts",
    Fault.OTHER: "other_errors",
}


#: What to do about mistakes that SQLAlchemy refuses, by the exact class. SQLAlchemy's own messages may show data.
_REMEDIES: dict[type[SQLAlchemyError], str] = {
    UnboundExecutionError: "the session has no engine: Session(engine)",
    PendingRollbackError: "an earlier statement of this transaction failed: roll it back first",
    ObjectNotExecutableError: "SQL is given as sqlalchemy.text(…)",
    StatementError: "a parameter has no value, or one that its type does not take",
    NoResultFound: "the result has no row, and one is required",
    MultipleResultsFound: "the result has several rows, and one is required",
}

#: The same for classes that say this only of a caller's connection at the start of a verb; elsewhere they have many causes.
_REMEDIES_AT_START: dict[type[SQLAlchemyError], str] = _REMEDIES | {
    ResourceClosedError: "the connection is closed: use it within its with block",
    InvalidRequestError: "no transaction is open: begin one, and use it within its with block",
}


# Only callers' transactions are at another isolation level than READ COMMITTED.
_OLD_SNAPSHOT = (
    "another transaction has changed the row since this one first read: roll back and run the transaction again. At READ COMMITTED "
    "the database does not refuse it"
)


class Database:
    """An engine, its dialect, and transactions on it."""

    #: Whether it waits on an event loop; then everything here runs in SQLAlchemy greenlets.
    asynchronous: ClassVar[bool] = False

    def __init__(self, target: str | URL | Engine, *, pool_size: int = 5, max_overflow: int = 45) -> None:
        self.made_here = not isinstance(target, Engine)
        self.closed = False
        if isinstance(target, Engine):
            engine = target
            _refuse_schema_map(engine.get_execution_options(), "this engine")
            if engine.dialect.is_async is not self.asynchronous:
                raise ConfigurationError(wrong_sort("this engine", "another", asynchronous=self.asynchronous))
            self.dialect: Dialect = dialect_for(engine.dialect.name)
        elif hasattr(target, "sync_engine"):
            raise ConfigurationError(wrong_sort("an AsyncEngine", "an Engine", asynchronous=False))
        else:
            url = parse_url(target, asynchronous=self.asynchronous)
            self.dialect = dialect_for(url.get_backend_name())
            options = self.dialect.pool_options(url, pool_size, max_overflow) | self.dialect.engine_options(url)
            if self.dialect.autocommits:
                options |= {"isolation_level": "AUTOCOMMIT", "skip_autocommit_rollback": True}
            # Payloads are the users' data: they have no place in tracebacks and logs.
            engine = self._made(url, hide_parameters=True, **options)
        #: Whether each statement on its connections commits by itself until a transaction begins.
        self.autocommits = self.made_here and self.dialect.autocommits
        self.url = masked(engine.url)
        self.counters = Counters()
        self.after_fork()
        reset_after_fork(self)
        try:
            with self._errors("connect"):
                self.engine = self.dialect.prepare(engine, made_here=self.made_here)
                keep = self._keeps(pool_size)
                self.connections = Connections(self.engine, self.dialect, keep, self._discarded, made_here=self.made_here)
                with self.connections.one() as connection:
                    self._meet(connection)
        except StorageError as error:
            self._dispose(engine)
            kind = type(error)
            cut = isinstance(error.__cause__, DBAPIError) and error.__cause__.connection_invalidated
            if error.sqlstate is None and not cut:
                # The driver does not say whether the password is wrong or the server is starting.
                down = isinstance(error.__cause__, OperationalError) and self.dialect.is_down(engine)
                kind = TransientStorageError if down else PermanentStorageError
            reason = self.dialect.obstacle(engine.url) or error
            raise kind(
                f"cannot open {self.url}: {reason}",
                sqlstate=error.sqlstate,
                statement_name="connect",
                server_away=kind is TransientStorageError,
            ) from error.__cause__
        except OSError as error:
            # Some drivers raise it when no server answers, and for a wrong certificate or file.
            self._dispose(engine)
            detail = str(error) or type(error).__name__
            away = type(error) is OSError or isinstance(error, ConnectionError | TimeoutError | socket.gaierror)
            raise (TransientStorageError if away else PermanentStorageError)(
                f"cannot open {self.url}: {detail}", statement_name="connect", server_away=away
            ) from error
        except (TypeError, RuntimeError) as error:
            # Drivers raise these for an unknown URL parameter, or if they lack a package that the server requires.
            self._dispose(engine)
            raise ConfigurationError(f"cannot open {self.url}: {error}") from error
        except BaseException:
            self._dispose(engine)
            raise

    def after_fork(self) -> None:
        """The child has one thread, which holds no lock."""
        #: The lock for changes of the counters: a bare ``+=`` can lose the increment of another thread. It is a lock itself, since
        #: an interrupt in an ``__exit__`` of our own would leave it locked. Reentrant, since the garbage collection may discard a
        #: connection at any time.
        self.counting = threading.RLock()

    def _discarded(self) -> None:
        with self.counting:
            self.counters.discarded += 1

    def _made(self, url: URL, **options: Any) -> Engine:
        try:
            engine = self._engine(url, **options)
            engine.dialect.create_connect_args(url)
        except (SQLAlchemyArgumentError, ValueError, TypeError) as error:
            # Without its cause, which may show the URL.
            raise ConfigurationError(f"cannot open {masked(url)}: {mask(str(error), secrets_in(url))}") from None
        return engine

    def _engine(self, url: URL, **options: Any) -> Engine:
        return create_engine(url, **options)

    def callers(self) -> Callers:
        """What calls a :class:`~queue_db.concurrency.batching.Batcher` here."""
        return Threads()

    def pause(self, seconds: float) -> None:
        """Sleep. Every wait for anything but the database goes through here."""
        time.sleep(seconds)

    def _keeps(self, pool_size: int) -> int:
        # Other pools give a thread its own connection; and a caller's engine may count those that are out.
        return pool_size if self.made_here and isinstance(self.engine.pool, QueuePool) else 0

    def _meet(self, connection: Connection) -> None:
        """Read the server's version and capabilities from the first connection; refuse one that is too old."""
        sql = connection.dialect
        self.capabilities: frozenset[Capability] = self.dialect.capabilities(sql)
        self.server = self.dialect.server(sql)
        self.dialect.uses_raw_cursor = self.dialect.takes_raw_cursor(sql)
        version, minimum = tuple(sql.server_version_info or ()), self.dialect.minimum_for(sql)
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
        """Check that the server has these capabilities; ``user``: the strategy or removal that needs them.

        :raises UnsupportedError: it lacks one of them.
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

        :param store: ``work`` gets a :class:`Transaction` on these tables in place of the connection; what follows it is done here.
        :raises StorageError: the database refuses, or still asks to try again after the last attempt.
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
        """A connection in a transaction: committed at the end of the block, rolled back when it raises."""
        tx = OwnTransaction(self, None, Run(name, write, attempts=1))
        try:
            with tx:
                yield tx.connection
        finally:
            tx.give_back()

    def drop_if_read_only(self, connection: Connection, error: BaseException) -> None:
        """Close all connections if their server takes no writes: after a failover the address may lead to another one."""
        cause = error.__cause__ if isinstance(error, StorageError) else error
        if isinstance(cause, SQLAlchemyError) and self.dialect.is_read_only(cause) and not connection.invalidated:
            connection.invalidate(cause)
            connection.engine.dispose()

    def check_open(self) -> None:
        """Check that this has not been closed.

        :raises ConfigurationError: it has been.
        """
        if self.closed:
            raise ConfigurationError(f"this QueueDB is closed ({self.url}): use it inside its with block, or open another")

    def listen(self, channel: str) -> Listener | None:
        """A connection of its own that receives notifications on ``channel``; None if the database has none."""
        self.check_open()
        self.connections.forget_parents()
        with self._errors("listen"):
            return self.dialect.listen(self.engine, channel)

    def listen_on_loop(self, broken: Callable[[], None]) -> LoopListener | None:
        """The same for the tasks of an event loop, in a greenlet; it calls ``broken`` when the connection breaks."""
        self.check_open()
        self.connections.forget_parents()
        with self._errors("listen"):
            return self.dialect.listen_on_loop(self.engine, broken)

    @contextmanager
    def joined(self, using: Connection | Session, name: str) -> Iterator[Connection]:
        """The caller's connection, in the caller's transaction: nothing is committed or retried.

        :raises ConfigurationError: it is not a connection, leads to another kind of database, or has no transaction.
        """
        self.check_open()
        connection = self._callers(using, name)
        try:
            with self._errors(name):
                yield connection
        except StorageError as error:
            cause = error.__cause__
            if isinstance(cause, SQLAlchemyError) and self.dialect.fault(cause) is Fault.SERIALIZATION:
                error.add_note(_OLD_SNAPSHOT)
            raise

    def _callers(self, using: Connection | Session, name: str) -> Connection:
        """The caller's connection, checked, in a transaction."""
        with self._errors(name, _REMEDIES_AT_START):
            connection = using if isinstance(using, Connection) else _connection_of(using)
            if connection.dialect.name not in type(self.dialect).names:
                raise ConfigurationError(
                    f"using= is a connection to {connection.dialect.name}, but this queue is in {self.engine.dialect.name}"
                )
            _refuse_schema_map(connection.get_execution_options(), "the connection of using=")
            # Our own connections autocommit too, but begin a transaction when a verb needs one.
            own = transactions.own(connection)
            if own is None and self.dialect.commits_each_statement(connection):
                raise ConfigurationError(
                    "using= is a connection in AUTOCOMMIT mode: each statement commits alone, so nothing could be rolled back. "
                    'Use a connection with a transaction, from an engine without isolation_level="AUTOCOMMIT": '
                    "with engine.begin() as connection"
                )
            if own is None:
                self.dialect.begin_changes(connection)
            else:
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
        """Our exception for SQLAlchemy's; counts it."""
        counter = COUNTED[self.dialect.fault(error)]
        with self.counting:
            setattr(self.counters, counter, getattr(self.counters, counter) + 1)
        if isinstance(error, DBAPIError):
            translated = self.dialect.translate(error, name)
            translated.statement_name = _running(error) or name
            return translated
        if isinstance(error, PoolTimeoutError):
            return TransientStorageError(f"{name}: no free connection in the pool", statement_name=name)
        remedy = remedies.get(type(error))
        words = f"{type(error).__name__}: {remedy}" if remedy else type(error).__name__
        return PermanentStorageError(f"{name}: {words}", statement_name=name)

    def close(self) -> None:
        """Close the connections of an engine that we made; a caller's engine stays open. Nothing runs here afterwards."""
        self.closed = True
        self.connections.close()
        self._dispose(self.engine)


def _refuse_schema_map(options: Mapping[str, Any], whose: str) -> None:
    """Refuse a schema_translate_map: it does not change statements that the library keeps as SQL text with table names."""
    if options.get("schema_translate_map"):
        raise ConfigurationError(f"{whose} has a schema_translate_map, which the queue's tables ignore: use QueueDB(…, schema=…)")


def _running(error: BaseException) -> str | None:
    """The innermost function of the store that an exception has passed through, as ``enqueue.insert_jobs``; None: none of them.

    What only sends for others is not named.
    """
    found: str | None = None
    for frame, _ in traceback.walk_tb(error.__traceback__):
        _, _, module = str(frame.f_globals.get("__name__", "")).partition("queue_db.store.")
        if module and module != "by_key":
            function = frame.f_code.co_qualname.partition(".<locals>")[0]
            found = f"{module.partition('.')[0]}.{function}"
    return found


def _connection_of(using: Any) -> Connection:
    if hasattr(using, "sync_session") or hasattr(using, "sync_connection"):
        raise ConfigurationError(wrong_sort(f"using={type(using).__name__}", "a Connection or Session", asynchronous=False))
    # Only sessions have both; a raw connection of SQLite has a ``connection`` that can be called, too.
    connection = getattr(using, "connection", None) if hasattr(using, "get_bind") else None
    if callable(connection):
        found = connection()
        if isinstance(found, Connection):
            return found
    raise ConfigurationError(f"using= takes a SQLAlchemy Connection or Session, not {type(using).__name__}")
