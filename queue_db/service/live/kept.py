"""What is read once for all who look: values that are kept for some seconds, the database's clock, whether it answers."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from datetime import datetime
from typing import Generic, TypeVar

from anyio import CapacityLimiter, to_thread

from queue_db.db import QueueDB
from queue_db.errors import TransientStorageError
from queue_db.model import from_micros

_T = TypeVar("_T")

# Seconds after which a database that does not answer is away, whatever it does later.
_ANSWERS_WITHIN = 5.0


class Kept(Generic[_T]):
    """A value that is read again when it is older than ``seconds``; while one thread reads, others get the old one."""

    def __init__(self, read: Callable[[], _T], seconds: float) -> None:
        self._read = read
        self._seconds = seconds
        self._lock = threading.Lock()
        self._value: _T | None = None
        self._until = 0.0

    def get(self) -> _T:
        """The value, not much older than that."""
        if self._value is not None and (time.monotonic() < self._until or not self._lock.acquire(blocking=False)):
            return self._value
        if self._value is None:
            self._lock.acquire()
        try:
            if self._value is None or time.monotonic() >= self._until:
                self._value = self._read()
                self._until = time.monotonic() + self._seconds
            return self._value
        finally:
            self._lock.release()


class Clock:
    """The database's clock: it is read once a minute, and what has passed since is added."""

    def __init__(self, db: QueueDB) -> None:
        self._db = db
        self._ahead = Kept(self._read, 60.0)

    def now(self) -> datetime:
        """The time; this machine's wall clock may be wrong.

        :raises StorageError: the database does not answer.
        """
        return from_micros(self._ahead.get() + time.monotonic_ns() // 1000)

    def _read(self) -> int:
        """How far it is ahead of the monotonic clock, microseconds."""
        return self._db.core.now() - time.monotonic_ns() // 1000


class Probe:
    """Whether the database answers. One thread asks for all who want to know: one that hangs must not become ever more."""

    def __init__(self, db: QueueDB) -> None:
        self._db = db
        self._asked: asyncio.Future[None] | None = None

    async def ask(self) -> None:
        """Ask, or wait for the answer that another one waits for.

        :raises SchemaOutOfDateError: it has not the tables of this version.
        :raises StorageError: it does not answer, or not within 5 s.
        """
        asked = self._asked
        if asked is None or asked.done() or asked.get_loop() is not asyncio.get_running_loop():
            # A limit of its own: all other threads may wait for the database.
            asked = self._asked = asyncio.ensure_future(to_thread.run_sync(self._db.check, limiter=CapacityLimiter(1)))
        await asyncio.wait({asked}, timeout=_ANSWERS_WITHIN)
        if not asked.done():
            asked.add_done_callback(_heard)
            raise TransientStorageError(f"no answer within {_ANSWERS_WITHIN:g} s", server_away=True)
        asked.result()


def _heard(asked: asyncio.Future[None]) -> None:
    """Nobody waits for this answer any more."""
    if not asked.cancelled():
        asked.exception()
