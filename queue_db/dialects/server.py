"""A database server or file: how it is opened, what its errors mean, and what it shows of itself."""

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

#: Most transactions in one diagnosis, the oldest first.
MOST = 10


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction of another connection that holds up the queue."""

    #: What its connection does, in the server's words.
    state: str
    #: None: the server shows none.
    user: str | None
    #: How long it has been open, seconds.
    age: float
    #: The statement that ends it.
    end: str


_MAKE_ROOM = "the database has no room: free space on its disk, or raise the limit of its size"


class Server:
    """What a :class:`~queue_db.dialects.base.Dialect` says of servers and connections. Each member has a default."""

    #: SQLAlchemy dialect names that the class is for.
    names: ClassVar[tuple[str, ...]] = ()
    #: The name in messages.
    title: ClassVar[str] = "SQL database"
    #: The extra and the driver to install when a URL names none.
    default_driver: ClassVar[str | None] = None
    extra: ClassVar[str] = ""
    #: The same for asyncio.
    async_driver: ClassVar[str | None] = None
    async_extra: ClassVar[str] = ""
    #: Options in the query of a URL → their names for the asyncio driver; None: the asyncio driver does not need the option.
    async_options: ClassVar[Mapping[str, str | None]] = {}
    #: Whether the ``schema`` of the tables is what the server calls a database, so that a connection to any of them will do.
    schemas_are_databases: ClassVar[bool] = False
    #: The oldest supported ``server_version_info``.
    minimum: ClassVar[tuple[int, ...]] = ()

    @classmethod
    def driver(cls, *, asynchronous: bool) -> str | None:
        """The driver for a URL that names none; None: SQLAlchemy's choice."""
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
        """For a block with statements of minutes, which the limit on network waits would break. Default: there is none."""
        return nullcontext()

    def pool_options(self, url: URL, size: int, overflow: int) -> dict[str, Any]:
        """Arguments of ``create_engine`` for a pool of ``size`` connections, with up to ``overflow`` more on demand."""
        return {"pool_size": size, "max_overflow": overflow}

    def missing(self, url: URL) -> str | None:
        """The part of the database that does not exist and that opening it would create, for messages; None: nothing. Default."""
        return None

    def obstacle(self, url: URL) -> str | None:
        """What on this machine keeps the database from being opened, for messages; None: nothing that is known. Default."""
        return None

    def is_new(self, url: URL) -> bool:
        """Whether the database is a file that is empty, or that opening it would create. Default: no."""
        return False

    def from_anywhere(self, url: URL) -> URL:
        """The URL for a process in another working directory. Default: the same."""
        return url

    def database_of(self, connection: Connection) -> str | None:
        """What the connection leads to: a file, or the name of a database on its server. None: unknown. Default."""
        return None

    def alike(self, theirs: URL, ours: URL) -> bool:
        """Whether two URLs name the same database, or do not show that they do not. Default: the names of their databases.

        A host has several names, and so have the databases behind a pooler: :meth:`database_of` decides.
        """
        return None in (theirs.database, ours.database) or theirs.database == ours.database

    def for_asyncio(self, url: URL) -> URL:
        """The URL of the same database for the driver for asyncio.

        :raises ConfigurationError: it cannot be reached by a second engine.
        """
        known = self.async_options
        query = {known.get(name, name): value for name, value in url.query.items()}
        return url.set(
            drivername=f"{url.get_backend_name()}+{self.async_driver}",
            query={name: value for name, value in query.items() if name is not None},
        )

    def prepare(self, engine: Engine, *, made_here: bool) -> Engine:
        """Return the engine as the library's transactions use it. One that is not ``made_here`` is the caller's: unchanged."""
        return engine

    #: Whether the library's own connections commit each statement by itself, so that one statement is one round trip.
    autocommits: ClassVar[bool] = False
    #: Whether a server runs the statements, so that this process can work meanwhile.
    served: ClassVar[bool] = True
    #: The statement that begins a transaction with changes.
    begins_writing: ClassVar[str] = "BEGIN"
    #: Where no statement may come without a transaction: the statement that begins each, and its values.
    begins_each: tuple[str, tuple[str, ...]] | None = None
    #: What :meth:`takes_raw_cursor` says of the driver of the library's own connections, once one is open.
    uses_raw_cursor: bool = False

    def capabilities(self, sql: SQLAlchemyDialect) -> frozenset[Capability]:
        """What this server can do. SQLAlchemy's compiler cannot be asked: on SQLite it omits SKIP LOCKED silently."""
        return frozenset({Capability.CONCURRENT_WRITERS})

    # --- connections ------------------------------------------------------------------------------------------------

    def begin_changes(self, connection: Connection) -> None:
        """Several changes come in a transaction that SQLAlchemy or a caller has begun. Default: nothing more to begin."""

    def commits_each_statement(self, connection: Connection) -> bool:
        """Whether a caller's connection is in the driver's autocommit mode. Costs no round trip."""
        driver: Any = connection.connection.dbapi_connection
        try:
            return connection.dialect.detect_autocommit_setting(driver)
        except NotImplementedError:
            # The mode of this driver is unknown; that of SQLAlchemy is known.
            return connection.get_execution_options().get("isolation_level") == "AUTOCOMMIT"

    def takes_raw_cursor(self, sql: SQLAlchemyDialect) -> bool:
        """Whether kept statements go to this driver's cursor directly. Default: if it takes values by position."""
        return sql.paramstyle in raw_cursor.PARAMSTYLES

    def listen(self, engine: Engine, channel: str) -> Listener | None:
        """A connection that receives the notifications of ``channel``. Default: None, poll instead."""
        return None

    def listen_on_loop(self, engine: Engine, broken: Callable[[], None]) -> LoopListener | None:
        """The same for tasks of an event loop, with a driver for asyncio; ``broken`` is called there. Called in a greenlet."""
        return None

    # --- errors: judged by their codes, never by their texts --------------------------------------------------------

    #: Error codes after which the same transaction may succeed.
    transient: ClassVar[frozenset[str]] = frozenset()
    #: Error codes of a server that takes no changes, such as a standby, or a node that has lost its cluster. The same transaction
    #: may succeed on another server.
    read_only: ClassVar[frozenset[str]] = frozenset()
    #: Error codes of a statement that took longer than the server allows. It may be faster later, but not at once: the library does
    #: not run the transaction again by itself.
    expired: ClassVar[frozenset[str]] = frozenset()
    #: Error codes of a full disk.
    full: ClassVar[frozenset[str]] = frozenset()
    #: Error codes of collisions between transactions.
    faults: ClassVar[Mapping[str, Fault]] = {}

    def code(self, error: DBAPIError) -> str | None:
        """SQLSTATE, error number or result code of a driver's exception, as text."""
        return getattr(error.orig, "sqlstate", None)

    def fault(self, error: SQLAlchemyError) -> Fault:
        """The kind of collision that an error reports."""
        code = self.code(error) if isinstance(error, DBAPIError) else None
        return self.faults.get(code or "", Fault.OTHER)

    def translate(self, error: DBAPIError, statement_name: str) -> StorageError:
        """The library's exception for a driver's."""
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
        """Whether this connection of the library is not broken, as far as can be known without asking the server. Then an insert
        may be sent without a transaction. If the connection breaks meanwhile, nobody knows what happened; with a transaction, an
        insert before the COMMIT can run again.

        Default: it is not known.
        """
        return False

    def is_idle(self, driver: Any) -> bool:
        """Whether the driver reports no open transaction on its connection. Costs no round trip.

        Default: True, for a driver that reports nothing.
        """
        return True

    def recover(self, driver: Any) -> bool:
        """End what was interrupted on this connection, where no reply can be outstanding; False: it must be closed. Default."""
        return False

    def is_transient(self, code: str) -> bool:
        """Whether the same transaction may succeed when it runs again."""
        return code in self.transient or code in self.read_only or code in self.expired

    def is_away(self, code: str) -> bool:
        """Whether the server is unavailable, so that every statement fails: no collision with another transaction."""
        return self.is_transient(code) and code not in self.faults and code not in self.expired

    def refuses_changes(self, code: str | None) -> bool:
        """Whether this is the error of a server or file that takes no changes at all, whatever the rights of the user."""
        return code in self.read_only

    def is_read_only(self, error: SQLAlchemyError) -> bool:
        """Whether the connection takes no changes, while a new one may: it leads to another server, or finds other settings."""
        return isinstance(error, DBAPIError) and self.refuses_changes(self.code(error))

    # --- what ``queue-db doctor`` asks it ---------------------------------------------------------------------------

    #: What to do where the database takes no changes.
    when_read_only: ClassVar[str] = "connect to a server that takes changes"

    def facts(self, connection: Connection, jobs: Table) -> dict[str, str]:
        """Settings of the server and of the table that matter for performance."""
        return {}

    def grantee(self, connection: Connection) -> str:
        """The user of this connection, as a GRANT names it. Default: there are no users."""
        return "…"

    def closed_schema(self, connection: Connection, jobs: Table) -> str | None:
        """The schema of the tables, quoted, if the user has no right to use it. Default: schemas need no right (None)."""
        return None

    def closed_sequences(self, connection: Connection, tables: Sequence[Table]) -> list[str]:
        """The id sequences of these tables that the user has no right to use. Default: ids need no right of their own."""
        return []

    def open_transactions(self, connection: Connection, age: float) -> list[OpenTransaction]:
        """The transactions of other connections that hold up the queue and are open for more than ``age`` seconds, as far as the
        user may see them. Default: unknown (none).
        """
        return []

    def hidden_transactions(self, connection: Connection) -> str | None:
        """The GRANT without which the user does not see the transactions of other users; None: it sees them. Default."""
        return None


#: Seconds after which a connection that does not answer is broken: less than a third of the default lease, so that a completion
#: whose reply is lost is looked up while the lease holds, and more than the longest wait for a lock.
GONE_AFTER = 15

# Seconds, seconds, times, milliseconds. Not every system has all of them.
_WAITS = {"TCP_KEEPIDLE": 9, "TCP_KEEPINTVL": 2, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": GONE_AFTER * 1000}


def limit_waits(connection: Any, _record: Any) -> None:
    """Let the kernel end a dead connection, where the driver has no option for it: for ``connect`` events."""
    driver = connection.driver_connection
    # asyncpg's place, and aiomysql's.
    transport = getattr(driver, "_transport", None) or getattr(getattr(driver, "_writer", None), "transport", None)
    found = None if transport is None else transport.get_extra_info("socket")
    if found is None or found.family not in (socket.AF_INET, socket.AF_INET6):
        return
    # The sockets of event loops refuse options. Options belong to the open socket, so a duplicate of its descriptor can set them.
    with socket.socket(found.family, found.type, found.proto, fileno=os.dup(found.fileno())) as twin:
        twin.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _WAITS.items():
            if hasattr(socket, name):
                twin.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
