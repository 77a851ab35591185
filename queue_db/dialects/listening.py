"""Connections that receive notifications: of PostgreSQL, with psycopg2 and asyncpg."""

from __future__ import annotations

import asyncio
import os
import selectors
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Protocol

from sqlalchemy import Engine

from queue_db.errors import TransientStorageError


class Listener(Protocol):
    """A connection that receives notifications."""

    def fileno(self) -> int:
        """The descriptor for ``select``: readable when a notification has arrived."""
        ...

    def received(self) -> set[str]:
        """The notifications since the last call.

        :raises StorageError: the connection is broken.
        """
        ...

    def close(self) -> None:
        """Receive no more."""
        ...


class LoopListener(Protocol):
    """A connection that receives notifications on an event loop."""

    def is_broken(self) -> bool:
        """Whether it receives no more."""
        ...

    async def add(self, channel: str, received: Callable[[str], None]) -> None:
        """Call ``received`` with each notification of ``channel`` from now on.

        :raises StorageError: the connection is broken.
        """
        ...

    async def remove(self, channel: str) -> None:
        """Receive no more notifications of ``channel``.

        :raises StorageError: the connection is broken.
        """
        ...

    async def close(self) -> None:
        """Receive no more. Also in the middle of a statement."""
        ...


class PostgreSQLListener:
    """Listens on a connection of its own, taken out of the engine's pool for good.

    Through a pooler in transaction mode no notification arrives; workers poll as well.
    """

    def __init__(self, engine: Engine, channel: str) -> None:
        self._driver: Any = engine.dialect.loaded_dbapi
        self._raw: Any = None
        try:
            pooled = engine.raw_connection()
            self._raw = pooled.driver_connection
            pooled.detach()
            self._raw.autocommit = True
            with self._raw.cursor() as cursor:
                cursor.execute(f"LISTEN {engine.dialect.identifier_preparer.quote_identifier(channel)}")
        except self._driver.Error as error:
            self.close()
            raise TransientStorageError(f"listen: {error}", statement_name="listen", server_away=True) from error

    def fileno(self) -> int:
        return int(self._raw.fileno())

    def received(self) -> set[str]:
        try:
            while readable(self._raw):
                before = len(self._raw.notifies)
                self._raw.poll()
                if len(self._raw.notifies) == before:
                    break
        except (self._driver.Error, OSError, ValueError) as error:
            raise TransientStorageError(f"listen: {error}", statement_name="listen", server_away=True) from error
        received = {notice.payload for notice in self._raw.notifies}
        self._raw.notifies.clear()
        return received

    def close(self) -> None:
        if self._raw is not None:
            with suppress(self._driver.Error):
                self._raw.close()


# Without a descriptor of its own, which epoll and kqueue need: a process that has none left must wait nevertheless.
_Selector: type[selectors.BaseSelector] = getattr(selectors, "PollSelector", selectors.SelectSelector)


def readable(*sources: Any, within: float = 0.0) -> list[Any]:
    """Those with something to read, after at most this many seconds. ``select.select`` refuses descriptors from 1,024 on."""
    with _Selector() as selector:
        for source in sources:
            selector.register(source, selectors.EVENT_READ)
        return [key.fileobj for key, _ in selector.select(within)]


# Seconds to wait for the server's answer.
_ANSWER = 5.0


class AsyncpgListener:
    """Listens with asyncpg on a connection of its own, taken out of the engine's pool for good. Made in a greenlet.

    :param broken: called on the event loop when the connection breaks.
    """

    def __init__(self, engine: Engine, broken: Callable[[], None]) -> None:
        driver: Any = engine.dialect.loaded_dbapi
        asyncpg = driver.asyncpg
        # SQLAlchemy translates the errors of statements only.
        self._errors = (driver.Error, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError)
        self._callbacks: dict[str, Callable[..., None]] = {}
        self._process = os.getpid()
        with self._translated("listen"):
            pooled = engine.raw_connection()
        raw: Any = pooled.driver_connection
        self._raw = raw
        pooled.detach()
        self._raw.add_termination_listener(lambda _: broken())

    def is_broken(self) -> bool:
        return bool(self._raw.is_closed())

    async def add(self, channel: str, received: Callable[[str], None]) -> None:
        def callback(_connection: Any, _process: int, _channel: str, text: str) -> None:
            received(text)

        with self._translated("listen"):
            async with asyncio.timeout(_ANSWER):
                await self._raw.add_listener(channel, callback)
        self._callbacks[channel] = callback

    async def remove(self, channel: str) -> None:
        with self._translated("unlisten"):
            async with asyncio.timeout(_ANSWER):
                await self._raw.remove_listener(channel, self._callbacks.pop(channel))

    async def close(self) -> None:
        if self._process != os.getpid():
            return  # it is the parent's
        with suppress(*self._errors):  # asyncpg has closed it nevertheless
            async with asyncio.timeout(_ANSWER):
                await self._raw.close()

    @contextmanager
    def _translated(self, name: str) -> Iterator[None]:
        try:
            yield
        except self._errors as error:
            raise TransientStorageError(f"{name}: {error}", statement_name=name, server_away=True) from error
