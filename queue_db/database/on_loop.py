"""Transactions of a synchronous database on an event loop, for handlers that are coroutines."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from weakref import WeakKeyDictionary

from sqlalchemy.ext.asyncio import AsyncConnection

from queue_db.concurrency.greenlets import run, within
from queue_db.database.asynchronous import AsyncDatabase
from queue_db.database.database import Database
from queue_db.database.urls import for_asyncio
from queue_db.errors import ConfigurationError

_INSTEAD = (
    "job.transaction() in a coroutine needs connections for asyncio; or open the transaction on an AsyncEngine of your own, and "
    "await job.complete(using=…) with its connection or session"
)


class LoopDatabases:
    """One :class:`AsyncDatabase` of the same URL for each event loop: a connection belongs to the loop that opened it.

    The database is opened when the loop first needs it. An asynchronous generator keeps it open. When the loop ends,
    ``asyncio.run`` or the worker closes the generator, and the generator closes the database.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._loops: WeakKeyDictionary[asyncio.AbstractEventLoop, _Opening] = WeakKeyDictionary()

    def share(self, loop: asyncio.AbstractEventLoop, database: AsyncDatabase) -> None:
        """Use this open database on its loop; its owner closes it."""
        self._loops[loop] = _Opening(self._database, database)

    async def close_here(self) -> None:
        """Close the database of the running loop, if it was opened here. The next transaction opens it again."""
        opening = self._loops.pop(asyncio.get_running_loop(), None)
        if opening is not None:
            await opening.close()

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[AsyncConnection]:
        """A transaction on the running loop. It is committed at the end of the block, and rolled back if the block raises.

        :raises ConfigurationError: the database cannot be opened for asyncio.
        """
        self._database.check_open()
        opening = self._loops.setdefault(asyncio.get_running_loop(), _Opening(self._database))
        database = await opening.database()
        async with within(database.begin("transaction")) as connection:
            yield connection


class _Opening:
    """The database of one event loop, opened at its first use."""

    def __init__(self, database: Database, opened: AsyncDatabase | None = None) -> None:
        self._original = database
        self._lock = asyncio.Lock()
        self._opened = opened
        self._keeper: AsyncGenerator[AsyncDatabase, None] | None = None

    async def database(self) -> AsyncDatabase:
        async with self._lock:
            if self._opened is None:
                self._keeper = self._keep()
                self._opened = await anext(self._keeper)
            return self._opened

    async def close(self) -> None:
        if self._keeper is not None:
            await self._keeper.aclose()

    async def _keep(self) -> AsyncGenerator[AsyncDatabase, None]:
        original = self._original
        if not original.made_here:
            raise ConfigurationError(f"this QueueDB has an engine of yours, whose settings asyncio cannot take over: {_INSTEAD}")
        if original.dialect.server.in_memory:
            raise ConfigurationError(f"this database is in memory, where only its one connection sees it: use a file: {_INSTEAD}")
        try:
            opened = await run(AsyncDatabase, for_asyncio(original.engine.url, original.dialect.drivers))
        except ConfigurationError as error:
            raise ConfigurationError(f"{error}: {_INSTEAD}") from error
        opened.counters, opened.counting = original.counters, original.counting
        try:
            yield opened
        finally:
            self._opened = None
            await run(opened.close)
