"""From an Airflow connection to a database, and one AsyncQueueDB for all triggers of a triggerer that use the connection."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

from airflow.sdk.bases.hook import BaseHook
from sqlalchemy import URL
from sqlalchemy.exc import NoSuchModuleError

from queue_db import QueueDB, url_of
from queue_db.aio import AsyncQueueDB
from queue_db.errors import ConfigurationError

DEFAULT = "queue_db_default"

#: Type of an Airflow connection → scheme of a database URL; None: the connection's extra says which.
_SCHEMES = {"queue_db": None, "postgres": "postgresql", "mysql": "mysql", "sqlite": "sqlite"}

_KNOWN = ("dialect", "query", "async_query", "table", "schema")


@dataclass(frozen=True, repr=False)
class Address:
    """A database and the tables in it. Its text has neither the password nor the options of the driver, which may hold secrets."""

    url: URL
    async_url: URL
    table: str = "jobs"
    schema: str | None = None

    def __repr__(self) -> str:
        return f"<{self.url.set(query={})} table={self.table!r}>"

    def open(self) -> QueueDB:
        """Open it for threads; the caller closes it."""
        return QueueDB(self.url, table=self.table, schema=self.schema, pool_size=1)

    def for_asyncio(self) -> AsyncQueueDB:
        """The same database for an event loop, not open yet."""
        return AsyncQueueDB(self.async_url, table=self.table, schema=self.schema)


def address_of(connection: Any) -> Address:
    """The database of an Airflow connection of the type ``queue_db``, ``postgres``, ``mysql`` or ``sqlite``.

    :raises ConfigurationError: the connection has another type, or an extra that is not known here.
    """
    named = f"the Airflow connection {connection.conn_id!r}"
    if connection.conn_type not in _SCHEMES:
        raise ConfigurationError(
            f"{named} has the type {connection.conn_type!r}; use one of the type queue_db, or of {', '.join(sorted(_SCHEMES))}"
        )
    extra = _extra(connection, named)
    scheme = extra.get("dialect", _SCHEMES[connection.conn_type])
    if not isinstance(scheme, str):
        raise ConfigurationError(f'{named} does not say which database it is: add "dialect": "postgresql" to its extra')
    url = url_of(
        scheme,
        host=connection.host,
        port=connection.port,
        user=connection.login,
        password=connection.password,
        database=connection.schema,
    )
    query = _query(extra, "query", named)
    wrong = [name for name in ("table", "schema") if not isinstance(extra.get(name, ""), str)]
    if wrong:
        raise ConfigurationError(f"the extra of {named} must have a text in {' and in '.join(wrong)}")
    return Address(
        url.update_query_dict(query),
        _of_both(url).update_query_dict(_query(extra, "async_query", named) if "async_query" in extra else query),
        **{name: extra[name] for name in ("table", "schema") if name in extra},
    )


def _of_both(url: URL) -> URL:
    """Without the driver that the URL names, unless it is one for asyncio, too."""
    try:
        return url if url.get_dialect(_is_async=True).is_async else url.set(drivername=url.get_backend_name())
    except NoSuchModuleError:
        return url  # opening it says so


def _query(extra: dict[str, Any], name: str, named: str) -> dict[str, str | list[str]]:
    """Options of a driver, as texts."""
    given = extra.get(name, {})
    options = {} if not isinstance(given, dict) else {option: _text(value) for option, value in given.items()}
    wrong = sorted(option for option, value in options.items() if value is None)
    if wrong or not isinstance(given, dict):
        # The values may be secrets.
        raise ConfigurationError(
            f'{name} in the extra of {named} must be an object of texts and numbers, such as {{"connect_timeout": 10}}'
            + (f"; wrong are {', '.join(wrong)}" if wrong else "")
        )
    return {option: value for option, value in options.items() if value is not None}


def _text(value: Any) -> str | list[str] | None:
    """The value of an option; None: it cannot be one."""
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        return value
    return str(value) if isinstance(value, (str, int, float)) and not isinstance(value, bool) else None


def _extra(connection: Any, named: str) -> dict[str, Any]:
    try:
        # Not extra_dejson: it waits for another process, and so would stop an event loop.
        extra = json.loads(connection.extra or "{}")
    except ValueError:
        raise ConfigurationError(f"the extra of {named} is not JSON") from None
    unknown = sorted(extra.keys() - _KNOWN) if isinstance(extra, dict) else ["a list or text"]
    if unknown:
        # An option such as sslmode must not be dropped silently.
        raise ConfigurationError(
            f"the extra of {named} has {', '.join(unknown)}; known are {', '.join(_KNOWN)}. Options of the driver belong into "
            "query, and those of the asyncio driver into async_query"
        )
    # Airflow's form stores an empty field as an empty text.
    return {name: value for name, value in extra.items() if value not in (None, "")}


@dataclass
class _Shared:
    """A database that the users of one connection share."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    users: int = 0
    db: AsyncQueueDB | None = None


_OPEN: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, _Shared]] = WeakKeyDictionary()


@asynccontextmanager
async def database(conn_id: str) -> AsyncIterator[AsyncQueueDB]:
    """The database of an Airflow connection, open for this event loop, with one pool for all that use it; the last one closes it.

    :raises ConfigurationError: as :func:`address_of`; or the driver for asyncio is not installed.
    :raises StorageError: the server does not answer or refuses the login.
    """
    by_id = _OPEN.setdefault(asyncio.get_running_loop(), {})
    shared = by_id.setdefault(conn_id, _Shared())
    shared.users += 1
    try:
        async with shared.lock:
            if shared.db is None:
                shared.db = await address_of(await BaseHook.aget_connection(conn_id)).for_asyncio().open()
        yield shared.db
    finally:
        shared.users -= 1
        if not shared.users:
            del by_id[conn_id]
            if shared.db is not None:
                await shared.db.close()
