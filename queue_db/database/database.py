"""One database: opens and checks it; the only place that begins and retries transactions."""

from __future__ import annotations

import logging
import random
import socket
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar

import stamina
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
from queue_db.database.urls import parse_url, wrong_sort
from queue_db.dialects import Dialect, Listener, LoopListener, dialect_for, transactions
from queue_db.dialects.transactions import PooledConnection
from queue_db.errors import (
    ConfigurationError,
    PermanentStorageError,
    QueueDBError,
    StorageError,
    TransientStorageError,
    UnsupportedError,
)
from queue_db.model import Capability, Counters, Fault
from queue_db.store import Store, Transaction

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy.orm import Session

_T = TypeVar("_T")

#: Most runs of one transaction while the database asks to try again, and for how long (seconds). The waits add up to three
#: seconds: enough for a server to restart after a crash.
ATTEMPTS = 10
RETRY_SECONDS = 30.0

# Seconds: waits are random between the two, doubling.
_FIRST_WAIT = 0.01
_LONGEST_WAIT = 1.0

# stamina logs every retry; without a handler Python would print that on stderr.
logging.getLogger("stamina").addHandler(logging.NullHandler())

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


class Run(NamedTuple):
    """How a function runs in a transaction: see :meth:`Database.run`.

    :param name: its name in errors; for :class:`~queue_db.core.Core` empty: the function's own.
    """

    name: str = ""
    write: bool = True
    attempts: int = ATTEMPTS
    direct: bool = False
    repeatable: bool = False


class Database:
    """An engine, its dialect, and transactions on it."""

    #: Whether it waits on an event loop; then everything here runs in SQLAlchemy greenlets.
    asynchronous: ClassVar[bool] = False

    def __init__(self, target: str | URL | Engine, *, pool_size: int = 5, max_overflow: int = 45) -> None:
        self.made_here = not isinstance(target, Engine)
        self.closed = False
        if isinstance(target, Engine):
            engine = target
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

    def _tries(self, **options: Any) -> Iterator[AbstractContextManager[object]]:
        """The attempts of stamina, with its pauses between them."""
        return iter(stamina.retry_context(**options))

    def _keeps(self, pool_size: int) -> int:
        # Other pools give a thread its own connection; and a caller's engine may count those that are out.
        return pool_size if self.made_here and isinstance(self.engine.pool, QueuePool) else 0

    def _meet(self, connection: Connection) -> None:
        """Read the server's version and capabilities from the first connection; refuse one that is too old."""
        sql = connection.dialect
        self.capabilities: frozenset[Capability] = self.dialect.capabilities(sql)
        self.server = self.dialect.server(sql)
        self.dialect.direct = self.dialect.bypasses_sqlalchemy(sql)
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
        direct: bool = False,
        repeatable: bool = False,
    ) -> _T:
        """Run ``work(connection, *arguments)`` in a transaction of its own and commit; retry it while the database asks for that.

        An error during COMMIT is not retried: its outcome is unknown (``outcome_unknown``).

        :param write: it changes rows.
        :param attempts: how often it runs at most while the database asks to try again.
        :param store: ``work`` gets a :class:`Transaction` on these tables in place of the connection; what follows it is done here.
        :param direct: ``work`` is one statement, or begins its transaction itself (``tx.begin``): no BEGIN and COMMIT around
            it where connections do without. Its outcome is unknown too if the connection breaks.
        :param repeatable: running it twice does no harm, so an unknown outcome is retried too.
        :raises StorageError: the database refuses, or still asks to try again after the last attempt.
        """
        answer, tx = self.commit(Run(name, write, attempts, direct, repeatable), work, arguments, store)
        if store is not None:
            tx.follow()
        return answer

    def commit(self, how: Run, work: Callable[..., _T], arguments: tuple[Any, ...], store: Store | None) -> tuple[_T, Transaction]:
        """:meth:`run` without what follows: the caller does that, by :meth:`Transaction.follow`."""
        if self.closed:
            self.check_open()
        once = self._on_demand if self.autocommits else self._within
        try:
            return once(how, work, arguments, store)
        except TransientStorageError as error:
            if how.attempts <= 1 or not self._runs_again(how.repeatable, error):
                raise
        self.pause(random.uniform(0.0, _FIRST_WAIT))
        for attempt in self._tries(
            on=partial(self._runs_again, how.repeatable),
            attempts=how.attempts - 1,
            timeout=RETRY_SECONDS,
            wait_initial=_FIRST_WAIT,
            wait_max=_LONGEST_WAIT,
            wait_jitter=_FIRST_WAIT,
        ):
            with attempt:
                if self.closed:
                    self.check_open()
                counters = self.counters
                with self.counting:
                    counters.retried += 1
                return once(how, work, arguments, store)
        raise AssertionError("unreachable")  # pragma: no cover

    def _runs_again(self, repeatable: bool, error: Exception) -> bool:
        if not isinstance(error, TransientStorageError) or error.sqlstate in self.dialect.expired:
            return False
        return repeatable or not error.outcome_unknown

    def _on_demand(self, how: Run, work: Callable[..., _T], arguments: tuple[Any, ...], store: Store | None) -> tuple[_T, Any]:
        """Run ``work`` where each statement commits by itself until a transaction begins: then errors may come without a COMMIT."""
        pooled: PooledConnection | None = None
        tx: Transaction | None = None
        in_doubt = True
        try:
            try:
                pooled = self.connections.take()
            except (RuntimeError, OSError) as error:
                raise _unreachable(error, how.name) from error
            with self.dialect.on_demand(pooled, write=how.write) as transaction:
                try:
                    if not how.direct:
                        transaction.begin()
                    if store is not None:
                        tx = Transaction(pooled.connection, store, on_demand=transaction)
                    answer = work(tx or pooled.connection, *arguments)
                    if transaction.begun:
                        self._commit(transaction.commit, how.name, write=how.write)
                except DBAPIError as error:
                    if how.write and error.connection_invalidated and not transaction.asked:
                        raise self._in_doubt(error, how.name, "the statement") from error
                    raise
                finally:
                    if how.direct:
                        counters = self.counters
                        with self.counting:
                            counters.statements += transaction.sent
            in_doubt = False
        except BaseException as error:
            # Anything else that is raised here is in doubt, whatever its class: an interrupt may be of any.
            in_doubt = not isinstance(error, QueueDBError | SQLAlchemyError)
            self._failed(pooled, tx, error, how.name)
            raise
        finally:
            if pooled is not None:
                self.connections.put_back(pooled, in_doubt=in_doubt)
        return answer, tx

    def _within(self, how: Run, work: Callable[..., _T], arguments: tuple[Any, ...], store: Store | None) -> tuple[_T, Any]:
        """Run ``work`` in a transaction of SQLAlchemy's, which has begun; ``direct`` means nothing here."""
        pooled: PooledConnection | None = None
        tx: Transaction | None = None
        in_doubt = True
        try:
            pooled = self._connected(how.name)
            connection = pooled.connection
            with connection.begin() as transaction:
                if how.write:
                    self.dialect.begin_changes(connection)
                if store is not None:
                    tx = Transaction(connection, store)
                answer = work(tx or connection, *arguments)
                self._commit(transaction.commit, how.name, write=how.write)
            in_doubt = False
        except BaseException as error:
            in_doubt = not isinstance(error, QueueDBError | SQLAlchemyError)
            self._failed(pooled, tx, error, how.name)
            raise
        finally:
            if pooled is not None:
                self.connections.put_back(pooled, in_doubt=in_doubt)
        return answer, tx

    def _failed(self, pooled: PooledConnection | None, tx: Transaction | None, error: BaseException, name: str) -> None:
        """Raise the library's exception for one of SQLAlchemy's; return for others."""
        if tx is not None:
            tx.rolled_back()
        if isinstance(error, SQLAlchemyError):
            if pooled is not None:
                self._drop_if_read_only(pooled.connection, error)
            raise self._translated(error, name) from error

    def _drop_if_read_only(self, connection: Connection, error: BaseException) -> None:
        """Close all connections if their server takes no writes: after a failover the address may lead to another one."""
        cause = error.__cause__ if isinstance(error, StorageError) else error
        if isinstance(cause, SQLAlchemyError) and self.dialect.leads_astray(cause) and not connection.invalidated:
            connection.invalidate(cause)
            connection.engine.dispose()

    def check_open(self) -> None:
        """Check that this has not been closed.

        :raises ConfigurationError: it has been.
        """
        if self.closed:
            raise ConfigurationError(f"this QueueDB is closed ({self.url}): use it inside its with block, or open another")

    def _connected(self, name: str) -> PooledConnection:
        try:
            return self.connections.take()
        except (RuntimeError, OSError) as error:
            raise _unreachable(error, name) from error

    @contextmanager
    def begin(self, name: str = "begin", *, write: bool = True) -> Iterator[Connection]:
        """A connection in a transaction: committed at the end of the block, rolled back when it raises."""
        self.check_open()
        with self._errors(name):
            pooled = self._connected(name)
            connection, in_doubt = pooled.connection, True
            try:
                with self._transaction(pooled, name, write=write):
                    yield connection
                in_doubt = False
            except BaseException as error:
                in_doubt = transactions.interrupted(connection, error)
                if isinstance(error, SQLAlchemyError | StorageError):
                    self._drop_if_read_only(connection, error)
                raise
            finally:
                self.connections.put_back(pooled, in_doubt=in_doubt)

    @contextmanager
    def _transaction(self, pooled: PooledConnection, name: str, *, write: bool) -> Iterator[None]:
        if self.autocommits:
            with self.dialect.on_demand(pooled, write=write) as own:
                own.begin()
                yield
                self._commit(own.commit, name, write=write)
            return
        with pooled.connection.begin() as transaction:
            if write:
                self.dialect.begin_changes(pooled.connection)
            yield
            self._commit(transaction.commit, name, write=write)

    def _commit(self, commit: Callable[[], None], name: str, *, write: bool) -> None:
        try:
            commit()
        except DBAPIError as error:
            # What has been read has been read: it can be read again.
            if error.connection_invalidated and write:
                raise self._in_doubt(error, name, "COMMIT") from error
            raise

    def _in_doubt(self, error: DBAPIError, name: str, during: str) -> TransientStorageError:
        problem = self._translated(error, name)
        return TransientStorageError(
            f"{problem}: the connection broke during {during}, so it is unknown whether it took effect; "
            'a unique_key with on_duplicate="skip" makes an enqueue safe to repeat',
            sqlstate=problem.sqlstate,
            statement_name=name,
            outcome_unknown=True,
            server_away=True,
        )

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
            raise self._translated(error, name, remedies) from error

    def _translated(
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


def _unreachable(error: Exception, name: str) -> TransientStorageError:
    """The exception for one that came when a connection was opened.

    The first connection worked, so the driver is complete: a restarted server may demand the full password exchange over TLS once.
    Or no server answers, and the driver raises the system's error.
    """
    return TransientStorageError(f"{name}: {error}", statement_name=name, server_away=True)


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
