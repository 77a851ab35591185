"""How a database is opened: drivers, engines, pools, and what a server must have."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, ClassVar

from sqlalchemy import URL, Connection, Engine
from sqlalchemy.engine.interfaces import Dialect as SQLAlchemyDialect


class Opening:
    """How a database is opened, with defaults that work on most."""

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
    #: Options in the query of a URL that the driver for asyncio knows by another name; None: it needs none of the sort.
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
