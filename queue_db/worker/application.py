"""The lifespan of a web application in which a worker runs. FastAPI and Starlette take it; this module imports neither."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, Protocol

from queue_db import arguments
from queue_db.db import QueueDB
from queue_db.errors import ArgumentError
from queue_db.slices import type_hint
from queue_db.worker.worker import Worker

if TYPE_CHECKING:
    from queue_db.aio import AsyncQueueDB
else:
    AsyncQueueDB = type_hint("queue_db.aio", "AsyncQueueDB")

Lifespan = Callable[[Any], AbstractAsyncContextManager[Any]]
"""A function of an application: an asynchronous context manager for the time in which the application serves."""


class MakesWorker(Protocol):
    """An object that makes a worker of a database, such as a registry of tasks."""

    def worker(self, db: Any) -> Worker:
        """A worker of this database."""


def lifespan(
    db: QueueDB | AsyncQueueDB, runs: Worker | MakesWorker | None = None, *, also: Lifespan | None = None
) -> Callable[[Any], AbstractAsyncContextManager[Any]]:
    """The lifespan of an application that runs a worker on its event loop: ``FastAPI(lifespan=lifespan(db, worker))``.

    At the start of the application: an AsyncQueueDB is opened, ``also`` is entered, the worker begins. At its end, in the opposite
    order: the worker stops, within its ``grace``; ``also`` is left; the AsyncQueueDB is closed. So handlers can use what ``also``
    opens.

    :param db: an AsyncQueueDB, or a QueueDB, which its owner closes.
    :param runs: a worker, or an object whose method ``worker(db)`` makes one; None: no worker runs.
    :param also: the application's own lifespan; what it yields is yielded.
    :raises ArgumentError: an argument is of another type.
    """
    if isinstance(db, Worker) or not (isinstance(db, QueueDB) or hasattr(db, "for_threads")):
        raise ArgumentError(f"db={arguments.shown(db)}: must be a QueueDB or an AsyncQueueDB: lifespan(db, worker)")
    if not (runs is None or isinstance(runs, Worker) or callable(getattr(runs, "worker", None))):
        raise ArgumentError(f"runs={arguments.shown(runs)}: must be a Worker, or have a method worker(db) that makes one")
    if also is not None and not callable(also):
        raise ArgumentError(f"also={arguments.shown(also)}: must be a function of the application, with @asynccontextmanager")

    @asynccontextmanager
    async def of_application(app: Any) -> AsyncIterator[Any]:
        async with AsyncExitStack() as stack:
            if not isinstance(db, QueueDB):
                await stack.enter_async_context(db)
            state = None if also is None else await stack.enter_async_context(also(app))
            if runs is not None:
                await stack.enter_async_context(runs if isinstance(runs, Worker) else runs.worker(db))
            yield state

    return of_application
