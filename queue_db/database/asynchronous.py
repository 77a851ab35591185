"""A database on an event loop: while the synchronous code waits for the database, the loop runs other tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from typing import Any, ClassVar, TypeVar

from sqlalchemy import URL, Engine
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.util import await_, greenlet_spawn

from queue_db.concurrency.batching import Callers
from queue_db.database.database import Database

_T = TypeVar("_T")


class Tasks:
    """The callers of a batcher (:mod:`queue_db.concurrency.batching`) are the tasks of an event loop."""

    def __init__(self) -> None:
        self._working: set[asyncio.Task[None]] = set()

    def signal(self) -> TaskSignal:
        """A new signal for the current task."""
        return TaskSignal()

    def current(self) -> Hashable:
        """The current task."""
        return asyncio.current_task()

    def detach(self, work: Callable[[], None], ended: Callable[[], None]) -> None:
        """Run ``work`` in a new task, and then ``ended``.

        Both functions run even if this caller is cancelled, because other callers wait for them.
        """
        task = asyncio.get_running_loop().create_task(_spawned(work))
        self._working.add(task)  # the loop has only a weak reference to the task
        task.add_done_callback(self._working.discard)
        task.add_done_callback(lambda _: ended())
        await_(asyncio.shield(task))


class TaskSignal:
    """A signal for which one task waits."""

    __slots__ = ("_set",)

    def __init__(self) -> None:
        self._set = asyncio.get_running_loop().create_future()

    def wait(self) -> None:
        """Wait until :meth:`set` has been called. Meanwhile the event loop runs other tasks."""
        await_(self._set)

    def set(self) -> None:
        """End the wait."""
        if not self._set.done():
            self._set.set_result(None)


async def _spawned(work: Callable[[], None]) -> None:
    await greenlet_spawn(work)


class AsyncDatabase(Database):
    """A database whose methods run within ``greenlet_spawn``."""

    asynchronous: ClassVar[bool] = True
    callers: ClassVar[type[Callers]] = Tasks

    def pause(self, seconds: float) -> None:
        await_(asyncio.sleep(seconds))

    def _aside(self, work: Callable[[Engine], _T], engine: Engine) -> _T:
        return await_(asyncio.to_thread(work, engine))

    def _engine(self, url: URL, **options: Any) -> Engine:
        return create_async_engine(url, **options).sync_engine

    def _keeps(self, pool_size: int) -> int:
        return 0  # tasks wait for a connection of the engine's pool, so each connection must return to the pool
