"""Takes the connections of drivers and of Django in the place of SQLAlchemy's: ``using=django.db.connection``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import count
from typing import Any, NamedTuple
from weakref import WeakSet

from sqlalchemy import Connection, Engine, make_url
from sqlalchemy.pool import NullPool, PoolProxiedConnection

from queue_db.database.urls import wrong_sort
from queue_db.dialects.borrowed import Driver, State, awaits, driver_of
from queue_db.errors import ConfigurationError

#: What ``using=`` takes, for messages.
TAKEN = "a SQLAlchemy Connection or Session, or an open connection of psycopg, psycopg2, PyMySQL, mysqlclient, sqlite3 or Django"
TAKEN_ON_A_LOOP = "a SQLAlchemy AsyncConnection or AsyncSession, or an open connection of asyncpg or psycopg for asyncio"

_DJANGO = "with transaction.atomic()"

_lent: ContextVar[Any] = ContextVar("queue_db.lent")


class Given(NamedTuple):
    """A driver's connection that a caller gave, with an open transaction."""

    connection: Any
    driver: Driver


def given(using: Any, *, asynchronous: bool) -> Given | None:
    """The driver's connection behind ``using``, checked; None: ``using`` is no such connection.

    :param asynchronous: whether the queue is used on an event loop.
    :raises ConfigurationError: the connection is closed, has no transaction or a failed one, or is of the wrong sort.
    """
    remedy, inner = None, using
    if _is_django(using):
        if using.needs_rollback:
            raise _refused("a Django connection", State.FAILED, _DJANGO)
        remedy, inner = _DJANGO, using.connection
        if inner is None:
            raise _refused("a Django connection", State.NONE, _DJANGO)
    driver = driver_of(inner)
    if driver is None:
        return None
    name = f"using={type(using).__name__}"
    if driver.asynchronous and not awaits():
        raise ConfigurationError(wrong_sort(name, "a connection that is not for asyncio", asynchronous=False))
    if asynchronous and not driver.asynchronous:
        raise ConfigurationError(wrong_sort(name, "a connection of asyncpg or psycopg.AsyncConnection", asynchronous=True))
    state = driver.state(inner)
    if state is not State.OPEN:
        raise _refused(
            "a Django connection" if remedy else f"a connection of {driver.module.partition('.')[0]}",
            state,
            remedy or driver.remedy,
        )
    return Given(inner, driver)


def _is_django(using: Any) -> bool:
    # Only Django's wrappers have all of these; Django is not imported.
    return all(hasattr(using, name) for name in ("vendor", "in_atomic_block", "needs_rollback", "settings_dict"))


def _refused(what: str, state: State, remedy: str) -> ConfigurationError:
    advice = {
        State.NONE: f"begin one first: {remedy}",
        State.FAILED: f"roll it back, and begin another: {remedy}",
        State.CLOSED: f"open it, and begin a transaction: {remedy}",
        State.PIPELINE: "use it outside the block of connection.pipeline()",
    }
    return ConfigurationError(f"using= is {what} that {state.value}: {advice[state]}")


class DriverConnections:
    """SQLAlchemy's connections around those of callers. It keeps one SQLAlchemy dialect for each driver."""

    def __init__(self) -> None:
        self._engines: dict[str, Engine] = {}
        #: Connections of drivers that are known to lead to the database of the queue.
        self.known: WeakSet[Any] = WeakSet()

    @contextmanager
    def connection(self, found: Given) -> Iterator[Connection]:
        """A connection for SQLAlchemy that cannot end the caller's transaction, and leaves the caller's settings as they were.

        :raises DBAPIError: the server refuses what the first connection of a driver is asked.
        """
        inner, driver = found
        with driver.settings(inner):
            engine = self._engines.get(driver.url)
            if engine is None:
                engine = _engine(driver)
                with _connected(engine, found) as connection:
                    engine.dialect.initialize(connection)
            with _connected(engine, found) as connection:
                yield connection

    def keep(self, connection: Connection, found: Given) -> None:
        """Use the dialect of this connection for all of its driver: the connection leads to the database of the queue."""
        self._engines.setdefault(found.driver.url, connection.engine)


def _engine(driver: Driver) -> Engine:
    """An engine whose connections are those of :data:`_lent`. It has no listeners, so it changes nothing on a connection."""
    url = make_url(f"{driver.url}://")
    kind = _with_own_savepoints(url.get_dialect(_is_async=driver.asynchronous))
    dialect = kind(dbapi=kind.import_dbapi(), **driver.options)
    pool = NullPool(_lent.get, reset_on_return=None, dialect=dialect)
    return Engine(pool, dialect, url, hide_parameters=True)


def _with_own_savepoints(kind: Any) -> Any:
    """A class of SQLAlchemy dialects whose savepoints have names of their own.

    SQLAlchemy counts savepoints for each of its connections. So it would use a name that an application's SQLAlchemy, or a verb
    around this one, has used on this driver's connection. MySQL then forgets the first savepoint.
    """

    def named(verb: str) -> Callable[[Any, Connection, str], None]:
        return lambda self, connection, name: getattr(kind, verb)(self, connection, f"queue_db_{connection.info[_NUMBER]}_{name}")

    verbs = ("do_savepoint", "do_rollback_to_savepoint", "do_release_savepoint")
    # SQLAlchemy caches compiled statements only for classes that say so themselves.
    return type(kind.__name__, (kind,), {"supports_statement_cache": True} | {verb: named(verb) for verb in verbs})


@contextmanager
def _connected(engine: Engine, found: Given) -> Iterator[Connection]:
    before = _lent.set(found.driver.lent(found.connection, engine.dialect))
    try:
        connection = engine.connect()
    finally:
        _lent.reset(before)
    connection.info[_FOUND] = found
    connection.info[_NUMBER] = next(_numbers)
    with connection:
        yield connection


_FOUND = "queue_db.given"

# The number of a use of a driver's connection.
_NUMBER = "queue_db.number"
_numbers = count()


def found_in(connection: Connection) -> Given | None:
    """The driver's connection behind ``connection``; None: it comes from an engine of the application or the library."""
    proxied: PoolProxiedConnection = connection.connection
    found: Given | None = proxied.info.get(_FOUND)
    return found
