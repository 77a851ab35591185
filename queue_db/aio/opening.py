"""The part of AsyncQueueDB that is written by hand: it opens, closes, and keeps the queues and feeds. The rest is generated."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

from sqlalchemy import URL, Engine
from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.pool import StaticPool

from queue_db import backoff
from queue_db.aio.queue import AsyncQueue
from queue_db.codecs import Schema
from queue_db.concurrency.greenlets import run
from queue_db.concurrency.keyed_cache import KeyedCache
from queue_db.database.asynchronous import AsyncDatabase
from queue_db.database.database import Database
from queue_db.database.urls import url_for_threads, wrong_sort
from queue_db.db import QueueDB
from queue_db.errors import ConfigurationError
from queue_db.slices import load, type_hint

if TYPE_CHECKING:
    from queue_db.aio.db import AsyncQueueDB
    from queue_db.feeds.aio.feeds import AsyncFeed
else:
    AsyncFeed, AsyncQueueDB = (type_hint("queue_db.aio", name) for name in ("AsyncFeed", "AsyncQueueDB"))


class InGreenlets(QueueDB):
    """The synchronous database behind an AsyncQueueDB."""

    _opens: ClassVar[type[Database]] = AsyncDatabase


class ForThreads(QueueDB):
    """The database for the threads of a worker, beside an AsyncQueueDB: of the same URL, with the same settings.

    A job that is enqueued by the AsyncQueueDB wakes the worker, and transactions on its event loop use its connections.
    """

    #: The AsyncQueueDB.
    beside: AsyncQueueDB
    _opened: QueueDB | None = None

    def join(self) -> None:
        """Connect this object to the AsyncQueueDB, if that is open now."""
        opened, loop = self.beside.opened_on
        if opened is None or loop is None or opened is self._opened:
            return
        self._opened = opened
        opened.notifications.add(self.notifications.wake)
        self.core.on_loops.share(loop, cast("AsyncDatabase", opened.database))

    def close(self) -> None:
        if self._opened is not None:
            self._opened.notifications.remove(self.notifications.wake)
        super().close()


class Opening:
    """The queues of one database, for the tasks of one event loop.

    ``async with AsyncQueueDB(url) as db:`` opens and closes it; or :meth:`open` and :meth:`close`.

    If the task of a verb is cancelled, the verb takes effect wholly or not at all, and its connection is closed. The queue's next
    claim releases the jobs that a cancelled claim won. Without a next claim they are due again when their leases end.

    :param url_or_engine: a database URL, or a SQLAlchemy AsyncEngine, to share its pool. When the server becomes read-only,
        as after a failover, the engine is disposed: its idle connections are closed. This applies to the caller's engine too.
    :raises ArgumentError: ``retry_after`` is not a function of one number.
    :raises ConfigurationError: the engine is not for asyncio, or shares one connection between tasks.
    """

    def __init__(
        self, url_or_engine: str | URL | AsyncEngine, *given: Any, retry_after: backoff.Backoff | None, **named: Any
    ) -> None:
        if retry_after is not None:
            backoff.checked("retry_after", retry_after)
        if isinstance(url_or_engine, Engine):
            raise ConfigurationError(wrong_sort("an Engine", "an AsyncEngine", asynchronous=True))
        if isinstance(url_or_engine, AsyncEngine) and isinstance(url_or_engine.pool, StaticPool):
            raise ConfigurationError(
                "this engine has one connection for all tasks at once: use a file, or AsyncQueueDB('sqlite://')"
            )
        sync = url_or_engine.sync_engine if isinstance(url_or_engine, AsyncEngine) else url_or_engine
        self._make: partial[InGreenlets] = partial(InGreenlets, sync, *given, retry_after=retry_after, **named)
        self._opening = asyncio.Lock()
        self._opened: QueueDB | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._learned: dict[str, Schema] = {}
        self._forget()

    def _forget(self) -> None:
        """Drop the queues and feeds: after a close they belong to a closed database."""
        whole = cast("AsyncQueueDB", self)
        self._queues: KeyedCache[AsyncQueue] = KeyedCache(lambda name: AsyncQueue(whole, self._db.queue(name)))
        self._feeds: KeyedCache[AsyncFeed] = KeyedCache(lambda name: load("feeds.aio.feeds", "AsyncFeed")(self._db.feed(name)))

    async def open(self) -> Self:
        """Connect and check the server; return this object.

        :raises ConfigurationError: unknown scheme, strategy or removal; driver not installed, or not for asyncio.
        :raises UnsupportedError: the server is too old, or lacks a capability that the strategy or the removal needs.
        :raises StorageError: the server does not answer or refuses the login.
        """
        async with self._opening:
            if self._opened is None:
                self._opened = await run(self._make)
                self._opened.schemas.update(self._learned)
                self._loop = asyncio.get_running_loop()
        return self

    def learn(self, kind: str, schema: Schema) -> None:
        """Check payloads of this kind with a schema, also when this object is opened later."""
        self._learned[kind] = schema
        if self._opened is not None:
            self._opened.schemas[kind] = schema

    def for_threads(self) -> ForThreads:
        """Open a QueueDB of the same database, with the same settings, for threads such as those of a worker. This blocks.

        The caller closes it.

        :raises ConfigurationError: its driver is not installed, the engine is the caller's, or the database is in memory.
        :raises StorageError: the server does not answer or refuses the login.
        """
        target, *given = self._make.args
        if isinstance(target, Engine):
            raise ConfigurationError(
                "this AsyncQueueDB has an engine of yours, whose settings the threads of a worker cannot take over: give the "
                "worker a QueueDB of the same database, Worker(QueueDB(url), …), or give AsyncQueueDB the URL"
            )
        try:
            made = ForThreads(url_for_threads(target), *given, **self._make.keywords | {"replicas": None})
        except ConfigurationError as error:
            raise ConfigurationError(f"the threads of a worker need a driver that is not for asyncio: {error}") from error
        if made.database.dialect.server.in_memory:
            made.close()
            raise ConfigurationError(
                "this database is in memory, where only the connection of its AsyncQueueDB sees it: a worker needs a file"
            )
        made.schemas.update(self._learned)
        made.beside = cast("AsyncQueueDB", self)
        made.join()
        return made

    @property
    def opened_on(self) -> tuple[QueueDB, asyncio.AbstractEventLoop] | tuple[None, None]:
        """The synchronous database behind this object, and the event loop on which it was opened; None: it is not open."""
        return (None, None) if self._opened is None or self._loop is None else (self._opened, self._loop)

    async def _close(self) -> None:
        opened, self._opened, self._loop = self._opened, None, None
        self._forget()
        if opened is not None:
            await run(opened.close)

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(self, *exc: object) -> None:
        await cast("AsyncQueueDB", self).close()

    def __repr__(self) -> str:
        return "<AsyncQueueDB, not open>" if self._opened is None else f"<Async{repr(self._opened)[1:]}"

    @property
    def _db(self) -> QueueDB:
        if self._opened is None:
            raise ConfigurationError("this AsyncQueueDB is not open: async with AsyncQueueDB(url) as db, or await db.open()")
        return self._opened
