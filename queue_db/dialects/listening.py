"""Connections that receive notifications: of PostgreSQL, with psycopg2 and asyncpg."""

from __future__ import annotations

import select
from collections.abc import Callable
from contextlib import suppress
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
        """Receive no more."""
        ...

    def abandon(self) -> None:
        """Close the connection at once: it is broken, or in the middle of a statement."""
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
            while select.select([self._raw], [], [], 0)[0]:
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


# Seconds to wait for the server's answer when a connection is closed.
_GOODBYE = 5.0


class AsyncpgListener:
    """Listens with asyncpg on a connection of its own, taken out of the engine's pool for good. Made in a greenlet.

    :param broken: called on the event loop when the connection breaks.
    """

    def __init__(self, engine: Engine, broken: Callable[[], None]) -> None:
        driver: Any = engine.dialect.loaded_dbapi
        self._errors = (driver.asyncpg.PostgresError, driver.asyncpg.InterfaceError, OSError)
        self._callbacks: dict[str, Callable[..., None]] = {}
        pooled = engine.raw_connection()
        raw: Any = pooled.driver_connection
        self._raw = raw
        pooled.detach()
        self._broken = lambda _: broken()
        self._raw.add_termination_listener(self._broken)

    async def add(self, channel: str, received: Callable[[str], None]) -> None:
        def callback(_connection: Any, _process: int, _channel: str, text: str) -> None:
            received(text)

        try:
            await self._raw.add_listener(channel, callback)
        except self._errors as error:
            raise TransientStorageError(f"listen: {error}", statement_name="listen", server_away=True) from error
        self._callbacks[channel] = callback

    async def remove(self, channel: str) -> None:
        try:
            await self._raw.remove_listener(channel, self._callbacks.pop(channel))
        except self._errors as error:
            raise TransientStorageError(f"unlisten: {error}", statement_name="unlisten", server_away=True) from error

    async def close(self) -> None:
        self._raw.remove_termination_listener(self._broken)
        try:
            await self._raw.close(timeout=_GOODBYE)
        except (*self._errors, TimeoutError):
            self._raw.terminate()

    def abandon(self) -> None:
        self._raw.remove_termination_listener(self._broken)
        self._raw.terminate()
