"""What is read once for all who look: values that are kept for some seconds, and the database's clock."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import datetime
from typing import Generic, TypeVar

from queue_db.db import QueueDB
from queue_db.model import from_micros

_T = TypeVar("_T")


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
