"""A database on an event loop: while the synchronous code waits, the loop goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any, ClassVar

import stamina
from sqlalchemy import URL, Engine
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.util import await_

from queue_db.database.database import Database


class AsyncDatabase(Database):
    """Everything here runs within ``greenlet_spawn``."""

    asynchronous: ClassVar[bool] = True

    def pause(self, seconds: float) -> None:
        await_(asyncio.sleep(seconds))

    def _engine(self, url: URL, **options: Any) -> Engine:
        return create_async_engine(url, **options).sync_engine

    def _tries(self, **options: Any) -> Iterator[AbstractContextManager[object]]:
        attempts = aiter(stamina.retry_context(**options))
        while True:
            try:
                attempt = await_(anext(attempts))
            except StopAsyncIteration:
                return
            yield attempt

    def _keeps(self, pool_size: int) -> int:
        return 0  # tasks that wait for a connection wait for the engine's pool, so each must go back there


class Turn:
    """A reentrant lock between tasks; the event loop goes on while a task waits for it."""

    def __init__(self) -> None:
        self._free = asyncio.Lock()
        self._holder: object = None
        self._times = 0

    def acquire(self, blocking: bool = True) -> bool:
        """Acquire the lock; if not ``blocking``, only if it is free. Return whether it was acquired."""
        me = asyncio.current_task()
        if self._holder is not me:
            if not blocking and self._free.locked():
                return False
            await_(self._free.acquire())
            self._holder = me
        self._times += 1
        return True

    def release(self) -> None:
        """Release the lock."""
        self._times -= 1
        if not self._times:
            self._holder = None
            self._free.release()

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *exc: object) -> None:
        self.release()
