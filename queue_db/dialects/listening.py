"""Connections that receive notifications from PostgreSQL, with psycopg2 and asyncpg."""

from __future__ import annotations

import asyncio
import math
import os
import select
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Protocol

from sqlalchemy import Engine

from queue_db.errors import TransientStorageError


class Listener(Protocol):
    """A connection that receives notifications."""

    def fileno(self) -> int:
        """The file descriptor for ``select``. It is readable when a notification has arrived."""

    def received(self) -> set[str]:
        """Return the texts of the notifications since the last call.

        :raises StorageError: the connection is broken.
        """

    def close(self) -> None:
        """Close the connection."""


class LoopListener(Protocol):
    """A connection that receives notifications on an event loop."""

    def is_broken(self) -> bool:
        """Whether the connection is broken or closed."""

    async def add(self, channel: str, received: Callable[[str], None]) -> None:
        """Call ``received`` with each notification of ``channel`` from now on.

        :raises StorageError: the connection is broken.
        """

    async def remove(self, channel: str) -> None:
        """Receive no more notifications of ``channel``.

        :raises StorageError: the connection is broken.
        """

    async def close(self) -> None:
        """Close the connection, even in the middle of a statement."""


class PostgreSQLListener:
    """Listens on a connection that it takes out of the engine's pool and does not return.

    Through a pooler in transaction mode no notification arrives. Workers do not depend on notifications, because they also poll.
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


def readable(*sources: Any, within: float = 0.0) -> list[Any]:
    """Return the sources that have something to read; wait at most ``within`` seconds.

    ``poll`` needs no descriptor of its own, so a process without free descriptors can still wait. ``select`` refuses descriptors
    from 1,024 on, so only systems without ``poll`` use it. The module ``selectors`` is not used, because it makes fourteen calls.

    :raises OSError, ValueError: a source is closed.
    """
    if not hasattr(select, "poll"):
        return select.select(sources, (), (), within)[0]
    poll = select.poll()
    by_descriptor = {source.fileno(): source for source in sources}
    for descriptor in by_descriptor:
        poll.register(descriptor, select.POLLIN)
    return [by_descriptor[descriptor] for descriptor, _ in poll.poll(math.ceil(within * 1000))]


def look_at(source: Any) -> Callable[[], list[Any]]:
    """A function whose result is not empty if ``source`` has something to read or is closed. It does not wait."""
    if not hasattr(select, "poll"):
        return partial(readable, source)
    poll = select.poll()
    poll.register(source, select.POLLIN)
    return partial(poll.poll, 0)


# Seconds to wait for the server's reply.
_ANSWER = 5.0


class AsyncpgListener:
    """Listens with asyncpg on a connection that it takes out of the engine's pool and does not return. Create it in a greenlet.

    :param broken: called on the event loop when the connection breaks.
    """

    def __init__(self, engine: Engine, broken: Callable[[], None]) -> None:
        driver: Any = engine.dialect.loaded_dbapi
        asyncpg = driver.asyncpg
        # SQLAlchemy translates only the errors of statements, so the calls here also raise asyncpg's own exceptions.
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
            return  # the connection belongs to the parent process
        with suppress(*self._errors):  # asyncpg closes the connection also after an error
            async with asyncio.timeout(_ANSWER):
                await self._raw.close()

    @contextmanager
    def _translated(self, name: str) -> Iterator[None]:
        try:
            yield
        except self._errors as error:
            raise TransientStorageError(f"{name}: {error}", statement_name=name, server_away=True) from error
