"""Connections that receive notifications: of PostgreSQL, with psycopg2."""

from __future__ import annotations

import select
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
