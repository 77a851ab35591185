"""A database server or file: connections, error codes, and diagnosis."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, ClassVar

from sqlalchemy import URL, Connection, Engine, Table
from sqlalchemy.engine.interfaces import Dialect as SQLAlchemyDialect
from sqlalchemy.exc import DBAPIError, OperationalError, SQLAlchemyError

from queue_db.dialects import raw_cursor
from queue_db.dialects.listening import Listener, LoopListener
from queue_db.dialects.transactions import Sender
from queue_db.errors import PermanentStorageError, StorageError, TransientStorageError
from queue_db.model import Capability, Fault

#: The maximum number of open transactions in one diagnosis. The oldest ones come first.
MOST = 10


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction of another connection that delays the queue."""

    #: The state of its connection, in the server's words.
    state: str
    #: The user of its connection; None: the server shows none.
    user: str | None
    #: The seconds for which it has been open.
    age: float
    #: The statement that ends the transaction.
    end: str


_MAKE_ROOM = "the database has no room: free space on its disk, or raise the limit of its size"


class Server:
    """The part of a :class:`~queue_db.dialects.base.Dialect` for servers and connections. Each member has a default."""

    #: The SQLAlchemy dialect names that the class is for.
    names: ClassVar[tuple[str, ...]] = ()
    #: The name of the database in messages.
    title: ClassVar[str] = "SQL database"
    #: The driver for a URL that names none, and the package's extra that installs it.
    default_driver: ClassVar[str | None] = None
    extra: ClassVar[str] = ""
    #: The driver for asyncio and its extra.
    async_driver: ClassVar[str | None] = None
    async_extra: ClassVar[str] = ""
    #: Options in the query of a URL → their names for the asyncio driver; None: the asyncio driver does not need the option.
    async_options: ClassVar[Mapping[str, str | None]] = {}
    #: Whether the ``schema`` of a table is a database of the server. Then a connection to any database of the server reaches it.
    schemas_are_databases: ClassVar[bool] = False
    #: The oldest supported ``server_version_info``.
    minimum: ClassVar[tuple[int, ...]] = ()

    @classmethod
    def driver(cls, *, asynchronous: bool) -> str | None:
        """The driver for a URL that names none; None: SQLAlchemy's default driver."""
        return cls.async_driver if asynchronous else cls.default_driver

    def server(self, sql: SQLAlchemyDialect) -> str:
        """Name and version of the server, for messages."""
        return f"{self.title} {'.'.join(str(part) for part in sql.server_version_info or ())}"

    def minimum_for(self, sql: SQLAlchemyDialect) -> tuple[int, ...]:
        """The oldest supported version of this kind of server."""
        return self.minimum

    def engine_options(self, url: URL) -> dict[str, Any]:
        """Arguments of ``create_engine`` for the library's own engines: isolation, and a limit on every network wait."""
        return {}

    def long_statements(self, connection: Connection) -> AbstractContextManager[None]:
        """Raise the limit on network waits for a block whose statements take minutes. Default: there is no limit."""
        return nullcontext()

    def pool_options(self, url: URL, size: int, overflow: int) -> dict[str, Any]:
        """Arguments of ``create_engine`` for a pool of ``size`` connections, with up to ``overflow`` more on demand."""
        return {"pool_size": size, "max_overflow": overflow}

    def missing(self, url: URL) -> str | None:
        """The part of the database that does not exist and that a connection would create, for messages. Default: None."""
        return None

    def obstacle(self, url: URL) -> str | None:
        """The reason on this machine why the database cannot be opened, for messages. Default: None, no reason is known."""
        return None

    def is_new(self, url: URL) -> bool:
        """Whether the database is an empty file, or a file that a connection would create. Default: no."""
        return False

    def from_anywhere(self, url: URL) -> URL:
        """The URL for a process in another working directory. Default: the same."""
        return url

    def database_of(self, connection: Connection) -> str | None:
        """The database of the connection: a file, or the name of a database on the server. Default: None, it is unknown."""
        return None

    def alike(self, theirs: URL, ours: URL) -> bool:
        """Whether two URLs may lead to the same database. Default: the names of their databases are equal, or one is missing.

        The URLs cannot prove it, because a host can have several names. :meth:`database_of` decides.
        """
        return None in (theirs.database, ours.database) or theirs.database == ours.database

    def for_asyncio(self, url: URL) -> URL:
        """The URL of the same database with the driver for asyncio.

        :raises ConfigurationError: a second engine cannot reach the database.
        """
        known = self.async_options
        query = {known.get(name, name): value for name, value in url.query.items()}
        return url.set(
            drivername=f"{url.get_backend_name()}+{self.async_driver}",
            query={name: value for name, value in query.items() if name is not None},
        )

    def prepare(self, engine: Engine, *, made_here: bool) -> Engine:
        """Return the engine that the library's transactions use.

        :param made_here: the library has made the engine. Otherwise it is the caller's, and its settings must not change.
        """
        return engine

    #: Whether the library's own connections are in autocommit mode, so that a single statement takes one round trip.
    autocommits: ClassVar[bool] = False
    #: Whether a server runs the statements, so that this process can do other work during a statement.
    served: ClassVar[bool] = True
    #: The statement that begins a transaction with changes.
    begins_writing: ClassVar[str] = "BEGIN"
    #: The statement that begins each transaction, with its values, if every statement needs a transaction. Otherwise None.
    begins_each: tuple[str, tuple[str, ...]] | None = None
    #: The result of :meth:`takes_raw_cursor` for the library's own connections. It is set once a connection is open.
    uses_raw_cursor: bool = False

    def capabilities(self, sql: SQLAlchemyDialect) -> frozenset[Capability]:
        """The capabilities of this server. SQLAlchemy's compiler does not know them: on SQLite it silently omits SKIP LOCKED."""
        return frozenset({Capability.CONCURRENT_WRITERS})

    # --- connections ------------------------------------------------------------------------------------------------

    def begin_changes(self, connection: Connection) -> None:
        """Prepare a transaction that SQLAlchemy or a caller has begun for several changes. Default: no effect."""

    def commits_each_statement(self, connection: Connection) -> bool:
        """Whether a caller's connection is in the driver's autocommit mode. Costs no round trip."""
        driver: Any = connection.connection.dbapi_connection
        try:
            return connection.dialect.detect_autocommit_setting(driver)
        except NotImplementedError:
            # The mode of this driver is unknown, but SQLAlchemy's isolation level is known.
            return connection.get_execution_options().get("isolation_level") == "AUTOCOMMIT"

    def takes_raw_cursor(self, sql: SQLAlchemyDialect) -> bool:
        """Whether kept statements go directly to the cursor of this driver. Default: if it takes values by position."""
        return sql.paramstyle in raw_cursor.PARAMSTYLES

    def listen(self, engine: Engine, channel: str) -> Listener | None:
        """Open a connection that receives the notifications of ``channel``. Default: None, so the caller polls."""
        return None

    def listen_on_loop(self, engine: Engine, broken: Callable[[], None]) -> LoopListener | None:
        """Open a connection that receives notifications on an event loop, with a driver for asyncio. Call this in a greenlet.

        :param broken: called on the event loop when the connection breaks.
        """
        return None

    # --- errors: judged by their codes, never by their texts --------------------------------------------------------

    #: Error codes after which the same transaction may succeed.
    transient: ClassVar[frozenset[str]] = frozenset()
    #: Error codes of a server that refuses changes, such as a standby or a node that has lost its cluster. The same transaction may
    #: succeed on another server.
    read_only: ClassVar[frozenset[str]] = frozenset()
    #: Error codes of a statement that took longer than the server allows. The library does not run the transaction again by itself,
    #: because the statement would probably be slow again.
    expired: ClassVar[frozenset[str]] = frozenset()
    #: Error codes of a full disk.
    full: ClassVar[frozenset[str]] = frozenset()
    #: Error codes of collisions between transactions.
    faults: ClassVar[Mapping[str, Fault]] = {}

    def code(self, error: DBAPIError) -> str | None:
        """The SQLSTATE, error number or result code of a driver's exception, as text."""
        return getattr(error.orig, "sqlstate", None)

    def fault(self, error: SQLAlchemyError) -> Fault:
        """The kind of collision that an error reports."""
        code = self.code(error) if isinstance(error, DBAPIError) else None
        return self.faults.get(code or "", Fault.OTHER)

    def translate(self, error: DBAPIError, statement_name: str) -> StorageError:
        """The library's exception for an exception of the driver."""
        code = self.code(error)
        transient = error.connection_invalidated or (
            # A failed connection attempt has no SQLSTATE: the server may be restarting.
            isinstance(error, OperationalError) if code is None else self.is_transient(code)
        )
        away = error.connection_invalidated or (transient if code is None else self.is_away(code))
        kind = TransientStorageError if transient else PermanentStorageError
        detail = (self.detail(error).strip().splitlines() or [type(error.orig).__name__])[0]
        if code in self.full:
            detail += f" ({_MAKE_ROOM})"
        return kind(f"{statement_name}: {detail}", sqlstate=code, statement_name=statement_name, server_away=away)

    def detail(self, error: DBAPIError) -> str:
        """The message of the driver."""
        return str(error.orig)

    def is_down(self, engine: Engine) -> bool:
        """Whether no server accepts connections now; called after an error without a code. Default: unknown (False)."""
        return False

    def known_alive(self, tx: Sender) -> bool:
        """Whether this connection of the library is probably not broken, as far as this process can know without a round trip.

        If so, an insert may be sent without a transaction. If the connection breaks during such an insert, its effect is unknown.
        In a transaction, an insert that failed before the COMMIT can be repeated.

        Default: False, unknown.
        """
        return False

    def is_idle(self, driver: Any) -> bool:
        """Whether the driver reports no open transaction on its connection. Costs no round trip.

        Default: True, for a driver that reports nothing.
        """
        return True

    def recover(self, driver: Any) -> bool:
        """End an interrupted statement or transaction on a connection on which no reply can be outstanding.

        :return: whether the connection can be used again; False: it must be closed. Default: False.
        """
        return False

    def is_transient(self, code: str) -> bool:
        """Whether the same transaction may succeed when it runs again."""
        return code in self.transient or code in self.read_only or code in self.expired

    def is_away(self, code: str) -> bool:
        """Whether the server is unavailable, so that every statement fails. A collision between transactions is another case."""
        return self.is_transient(code) and code not in self.faults and code not in self.expired

    def refuses_changes(self, code: str | None) -> bool:
        """Whether this is the error of a server or file that refuses all changes, independently of the user's rights."""
        return code in self.read_only

    def is_read_only(self, error: SQLAlchemyError) -> bool:
        """Whether the connection refuses changes and a new connection may accept them, on another server or with other settings."""
        return isinstance(error, DBAPIError) and self.refuses_changes(self.code(error))

    # --- diagnosis for ``queue-db doctor`` ---------------------------------------------------------------------------

    #: The advice if the database refuses changes.
    when_read_only: ClassVar[str] = "connect to a server that takes changes"

    def facts(self, connection: Connection, jobs: Table) -> dict[str, str]:
        """Settings of the server and of the table that matter for performance."""
        return {}

    def grantee(self, connection: Connection) -> str:
        """The user of this connection in the syntax of GRANT. Default: there are no users."""
        return "…"

    def closed_schema(self, connection: Connection, jobs: Table) -> str | None:
        """The quoted schema of the tables if the user has no right to use it. Default: None, schemas need no right."""
        return None

    def closed_sequences(self, connection: Connection, tables: Sequence[Table]) -> list[str]:
        """The id sequences of these tables that the user has no right to use. Default: ids need no right of their own."""
        return []

    def open_transactions(self, connection: Connection, age: float) -> list[OpenTransaction]:
        """The transactions of other connections that delay the queue and are open for more than ``age`` seconds.

        Only those that the user may see. Default: none, they are unknown.
        """
        return []

    def hidden_transactions(self, connection: Connection) -> str | None:
        """The GRANT that the user needs to see the transactions of other users. Default: None, the user sees them."""
        return None


#: Seconds after which a connection that does not answer counts as broken. It is less than a third of the default lease, so that a
#: completion whose reply is lost can be looked up before the lease ends. It is more than the longest wait for a lock.
GONE_AFTER = 15

# The units are seconds, seconds, a count and milliseconds. Not every operating system has all of these options.
_WAITS = {"TCP_KEEPIDLE": 9, "TCP_KEEPINTVL": 2, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": GONE_AFTER * 1000}


def limit_waits(connection: Any, _record: Any) -> None:
    """Let the kernel end a dead connection of a driver that has no option for it. It is a listener of ``connect`` events."""
    driver = connection.driver_connection
    # The transport of asyncpg, or of aiomysql.
    transport = getattr(driver, "_transport", None) or getattr(getattr(driver, "_writer", None), "transport", None)
    found = None if transport is None else transport.get_extra_info("socket")
    if found is None or found.family not in (socket.AF_INET, socket.AF_INET6):
        return
    # The socket objects of event loops refuse options. The kernel shares options between duplicates of a descriptor, so a duplicate
    # can set them.
    with socket.socket(found.family, found.type, found.proto, fileno=os.dup(found.fileno())) as twin:
        twin.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _WAITS.items():
            if hasattr(socket, name):
                twin.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
