"""Connections that stay open between two uses: checking one out of the pool costs as much Python time as a claim."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from sqlalchemy import Connection, Engine


class Connections:
    """The connections of one engine, each used by one caller at a time.

    :param keep: how many stay open while idle. 0: each returns to the engine's pool, as it must if the engine is the caller's or
        the pool binds connections to threads.
    """

    def __init__(self, engine: Engine, keep: int) -> None:
        self._engine = engine
        self._keep = keep
        self._closed = threading.Event()
        # append and pop are atomic.
        self._idle: deque[Connection] = deque()
        self._process = os.getpid()
        # Never freed: asyncpg closes what is freed, and so takes its socket from the parent's event loop, too.
        self._inherited: list[object] = []

    @contextmanager
    def one(self) -> Iterator[Connection]:
        """A connection for this block."""
        connection = self.take()
        try:
            yield connection
        finally:
            self.put_back(connection)

    def take(self) -> Connection:
        """A connection for the caller alone, until :meth:`put_back`."""
        self.forget_parents()
        try:
            return self._idle.pop()
        except IndexError:
            return self._engine.connect()

    def forget_parents(self) -> None:
        """In a fork: use the parent's connections no more, nor those of the engine's pool."""
        if self._process != os.getpid():
            self._inherited.append((self._idle, self._engine.pool))
            self._idle = deque()
            self._engine.dispose(close=False)
            self._process = os.getpid()

    def put_back(self, connection: Connection) -> None:
        """Return a connection in any state; a broken one is closed, and each after :meth:`close`."""
        usable = not (connection.closed or connection.invalidated)
        if usable and not self._closed.is_set() and len(self._idle) < self._keep and not connection.in_transaction():
            self._idle.append(connection)
            if self._closed.is_set():  # by another thread meanwhile
                self.close()
        else:
            broken = connection.invalidated
            if usable and self._closed.is_set() and self._keep:
                connection.detach()  # the engine's pool is disposed of, and would leave it open
            connection.close()
            if broken:
                self._drop()

    def _drop(self) -> None:
        """Close the idle connections: if one broke or leads to the wrong server, the others probably do too."""
        with suppress(IndexError):  # another thread has taken the last one
            while self._idle:
                connection = self._idle.pop()
                connection.invalidate()
                connection.close()

    def release(self) -> None:
        """Return the idle connections to the engine's pool."""
        self.forget_parents()
        with suppress(IndexError):  # another thread has taken the last one
            while self._idle:
                self._idle.pop().close()

    def close(self) -> None:
        """Close the idle connections, and from now on each that is put back."""
        self._closed.set()
        self.forget_parents()
        with suppress(IndexError):  # another thread has taken the last one
            while self._idle:
                connection = self._idle.pop()
                connection.detach()  # as in put_back
                connection.close()
