"""How the server or file of a database is opened, and what is known of its connections."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from sqlalchemy import URL, Connection, Engine

from queue_db.dialects.listening import Listener, LoopListener
from queue_db.dialects.nodes import Nodes
from queue_db.dialects.transactions import Sender
from queue_db.model import Capability

if TYPE_CHECKING:
    from queue_db.dialects.base import Dialect


@dataclass(frozen=True, slots=True)
class Drivers:
    """The drivers for URLs that name none, and the package's extras that install them."""

    #: The driver without asyncio. None: SQLAlchemy's default.
    default: str | None = None
    extra: str = ""
    asynchronous: str | None = None
    async_extra: str = ""
    #: Options in the query of a URL → their names for the asyncio driver; None: the asyncio driver does not need the option.
    async_options: Mapping[str, str | None] = field(default_factory=dict)
    #: The port of URLs that name none; None: the database has no servers.
    port: int | None = None

    def named(self, *, asynchronous: bool) -> tuple[str | None, str]:
        """The driver, and the extra that installs the driver."""
        return (self.asynchronous, self.async_extra) if asynchronous else (self.default, self.extra)


@dataclass(frozen=True, slots=True)
class Product:
    """A kind of server, with what it can do."""

    title: str
    #: The oldest supported ``server_version_info``.
    minimum: tuple[int, ...]
    #: What the server can do. SQLAlchemy does not check this: for SQLite, it silently omits SKIP LOCKED from a statement.
    capabilities: frozenset[Capability]


class Server:
    """The server or file of one :class:`~queue_db.dialects.base.Dialect`. Each member has a default."""

    #: Whether the ``schema`` of a table is a database of the server. If so, a connection to any of its databases reaches the table.
    schemas_are_databases: ClassVar[bool] = False
    #: How several servers of one database are reached.
    nodes: ClassVar[Nodes] = Nodes()
    #: Whether the database is in memory, so that it ends with its connection. Known after :meth:`prepare`.
    in_memory: bool = False

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect

    def engine_options(self, url: URL) -> dict[str, Any]:
        """Arguments of ``create_engine`` for the library's own engines: isolation, and a limit on every network wait.

        The arguments contain ``poolclass`` if the database needs a pool of a certain kind and size.
        """
        return {}

    def file(self, url: URL) -> Path | None:
        """The file of the database. Default: None, because the database is not a file."""
        return None

    def prepare(self, engine: Engine, *, made_here: bool) -> Engine:
        """Return the engine that the library's transactions use.

        :param made_here: the library has made the engine. Otherwise the engine is the caller's, and its settings must not change.
        """
        return engine

    def listen(self, engine: Engine, channel: str) -> Listener | None:
        """Open a connection that receives the notifications of ``channel``. Default: None, so the caller polls."""
        return None

    def listen_on_loop(self, engine: Engine, broken: Callable[[], None]) -> LoopListener | None:
        """Open a connection that receives notifications on an event loop, with a driver for asyncio. Call this in a greenlet.

        :param broken: called on the event loop when the connection breaks.
        """
        return None

    # --- connections ------------------------------------------------------------------------------------------------

    def database_of(self, connection: Connection) -> str | None:
        """The database of the connection: a file, or the name of a database on the server. Default: None (unknown)."""
        return None

    def begin_changes(self, connection: Connection) -> None:
        """Prepare a transaction for changes, after SQLAlchemy or a caller has begun the transaction. Default: no effect."""

    def commits_each_statement(self, connection: Connection) -> bool:
        """Whether a caller's connection is in the driver's autocommit mode. Costs no round trip."""
        driver: Any = connection.connection.dbapi_connection
        try:
            return connection.dialect.detect_autocommit_setting(driver)
        except NotImplementedError:
            # The mode of this driver is unknown, but SQLAlchemy's isolation level is known.
            return connection.get_execution_options().get("isolation_level") == "AUTOCOMMIT"

    def is_idle(self, driver: Any) -> bool:
        """Whether the driver reports no open transaction on its connection. Costs no round trip.

        Default: True, for a driver that reports nothing.
        """
        return True

    def known_alive(self, tx: Sender) -> bool:
        """Whether the connection of ``tx`` is probably alive. Costs no round trip.

        If so, a single insert may be sent without a transaction. If the connection breaks during such an insert, the effect of the
        insert is unknown. In a transaction, an insert that fails before the COMMIT can be repeated.

        Default: False, because this is unknown.
        """
        return False

    def recover(self, driver: Any) -> bool:
        """End an interrupted statement or transaction, if no reply can be outstanding on the connection.

        :return: True: the connection can be used again. False (default): the connection must be closed.
        """
        return False


@contextmanager
def long_statements(connection: Connection) -> Iterator[None]:
    """Raise the driver's limits on network waits for a block whose statements take minutes. PyMySQL has such limits."""
    driver: Any = connection.connection.driver_connection
    limits = {name: getattr(driver, name) for name in ("_read_timeout", "_write_timeout") if getattr(driver, name, None)}
    for name, seconds in limits.items():
        setattr(driver, name, max(seconds, LONG))
    try:
        yield
    finally:
        for name, seconds in limits.items():
            setattr(driver, name, seconds)


#: Network timeout in seconds while statements that take minutes run.
LONG = 1800

#: Seconds after which a connection that does not answer counts as broken. This is less than a third of the default lease, so that a
#: completion whose reply is lost can be looked up before the lease ends. This is more than the longest wait for a lock.
GONE_AFTER = 15

# Socket options with which the kernel ends a dead connection. The units are seconds, seconds, a count and milliseconds. Not every
# operating system has all of these options.
_WAITS = {"TCP_KEEPIDLE": 9, "TCP_KEEPINTVL": 2, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": GONE_AFTER * 1000}


def limit_waits(connection: Any, _record: Any) -> None:
    """Let the kernel end a dead connection, for drivers without such an option. This is a listener of ``connect`` events."""
    driver = connection.driver_connection
    # The transport of asyncpg, or of aiomysql.
    transport = getattr(driver, "_transport", None) or getattr(getattr(driver, "_writer", None), "transport", None)
    found = None if transport is None else transport.get_extra_info("socket")
    if found is None or found.family not in (socket.AF_INET, socket.AF_INET6):
        return
    # The socket objects of event loops refuse options. The kernel shares options between duplicates of a descriptor, so set the
    # options through a duplicate.
    with socket.socket(found.family, found.type, found.proto, fileno=os.dup(found.fileno())) as twin:
        twin.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _WAITS.items():
            if hasattr(socket, name):
                twin.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
