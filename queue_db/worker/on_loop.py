"""The part of a worker for event loops: ``async with``, and the database object of a worker that got an AsyncQueueDB."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Self, cast

from queue_db.codecs import Schema
from queue_db.db import QueueDB
from queue_db.slices import type_hint
from queue_db.worker.handlers import Handlers
from queue_db.worker.hosted import Hosted
from queue_db.worker.options import Options

if TYPE_CHECKING:
    from queue_db.aio import AsyncQueueDB
    from queue_db.aio.opening import ForThreads
else:
    AsyncQueueDB = type_hint("queue_db.aio", "AsyncQueueDB")


class OnLoop:
    """What a worker needs to run on an event loop. :class:`queue_db.worker.worker.Worker` is the only subclass."""

    options: Options
    handlers: Handlers
    given: QueueDB | AsyncQueueDB
    _db: QueueDB | None
    _lock: threading.Lock
    _runs_in: int | None
    #: The ``async with`` block in which the worker runs; None: it is in no such block.
    hosted: Hosted | None = None

    if TYPE_CHECKING:

        @property
        def running(self) -> bool: ...
        def stop(self, grace: float | None = None) -> None: ...
        def check_start(self) -> None: ...
        def _begin(self) -> None: ...
        def _work(self, *, until_empty: bool = False, started: Callable[[], None] | None = None) -> Any: ...
        def _discard_commands(self) -> None: ...

    # --- the database -----------------------------------------------------------------------------------------------

    @property
    def db(self) -> QueueDB:
        """The database that the worker's threads use.

        If the worker got an AsyncQueueDB, its first use opens one with the same settings, and the end of a run closes it.

        :raises ConfigurationError: the AsyncQueueDB has no counterpart for threads.
        """
        if self._db is None:
            opened = cast("AsyncQueueDB", self.given).for_threads()
            if self._keep(opened) is not opened:
                opened.close()  # another thread was faster
        return cast("QueueDB", self._db)

    def _keep(self, opened: QueueDB) -> QueueDB:
        with self._lock:
            self._db = self._db or opened
            return self._db

    def _close_own(self) -> None:
        """Close the database if it was opened here."""
        if self._db is not None and self._db is not self.given:
            self._db.close()
            self._db = None

    def _learn(self, kind: str, schema: Schema) -> None:
        """Check payloads of this kind when they are enqueued, also by an AsyncQueueDB."""
        if self._db is not None:
            self._db.schemas[kind] = schema
        if not isinstance(self.given, QueueDB):
            self.given.learn(kind, schema)

    @property
    def _needs_loop(self) -> bool:
        """Whether :meth:`run` must open the AsyncQueueDB on a loop of its own."""
        if isinstance(self.given, QueueDB) or self.given.opened_on[0] is not None:
            return False
        return asyncio._get_running_loop() is None  # noqa: SLF001 - get_running_loop raises

    # --- the runs ---------------------------------------------------------------------------------------------------

    async def _run_on_loop(self, *, until_empty: bool, started: Callable[[], None] | None) -> None:
        """Open the AsyncQueueDB on a loop in this thread, where its coroutines can use it, and run there."""
        work = partial(self._work_hosted, until_empty=until_empty, then=started)
        try:
            async with cast("AsyncQueueDB", self.given):
                self.hosted = Hosted(self.stop)
                await self.hosted.start(work, f"queue_db worker of {self.options.names}")
                await self.hosted.wait()
        finally:
            if self.hosted is None:  # it could not be opened: no thread has begun
                self._runs_in = None
            self._leave()

    async def __aenter__(self) -> Self:
        """Run in the background until the end of the block, with the coroutines on the running event loop.

        The start does not block the loop. The end of the block stops the worker: running jobs have ``grace`` seconds, while the
        loop goes on. A cancellation of the task at the end releases them at once.

        :raises SchemaOutOfDateError: the tables are missing or of another version.
        :raises ConfigurationError: no event loop of asyncio runs, the worker has no handlers or runs already, or a cursor of
            ``feeds`` is not a shared one.
        """
        self.handlers.require(self.options.names)
        hosted = Hosted(self.stop)
        self._begin()
        self.hosted = hosted
        try:
            await hosted.start(self._work_hosted, f"queue_db worker of {self.options.names}")
        except BaseException:
            self._leave()
            raise
        return self

    async def __aexit__(self, *exc: object) -> None:
        hosted = self.hosted
        try:
            if hosted is not None:
                await hosted.end()
                # What handlers have opened for job.transaction(). Without such a handler nothing is imported for it.
                if self._db is not None and "on_loops" in vars(self._db.core):
                    await self._db.core.on_loops.close_here()
        finally:
            self._leave()

    def _leave(self) -> None:
        self.hosted = None
        if not self.running:
            self._discard_commands()

    def _work_hosted(
        self, started: Callable[[], None], *, until_empty: bool = False, then: Callable[[], None] | None = None
    ) -> None:
        def begins() -> None:
            started()
            if then is not None:
                then()

        try:
            if not isinstance(self.given, QueueDB):
                cast("ForThreads", self.db).join()
            self.check_start()
            self._work(until_empty=until_empty, started=begins)
        finally:
            self._close_own()
            self._discard_commands()
            self._runs_in = None
