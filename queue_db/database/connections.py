"""Connections that stay open between two uses: to open and close one costs as much as claiming a job does in Python."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from sqlalchemy import Connection, Engine


class Connections:
    """The connections of one engine, each used by one caller at a time.

    :param keep: how many may stay open while nobody uses them. 0: each goes back to the engine's pool, as it must where the engine
        is somebody else's, or where the pool minds the thread.
    """

    def __init__(self, engine: Engine, keep: int) -> None:
        self._engine = engine
        self._keep = keep
        # append and pop are atomic.
        self._idle: deque[Connection] = deque()
        self._process = os.getpid()

    @contextmanager
    def one(self) -> Iterator[Connection]:
        """A connection for this block."""
        connection = self.take()
        try:
            yield connection
        finally:
            self.put_back(connection)

    def take(self) -> Connection:
        """A connection for the caller alone, until it is put back."""
        if self._process != os.getpid():
            # We are a fork: these are our parent's.
            self._idle = deque()
            self._engine.dispose(close=False)
            self._process = os.getpid()
        try:
            return self._idle.pop()
        except IndexError:
            return self._engine.connect()

    def put_back(self, connection: Connection) -> None:
        """The caller is done with it, whatever has become of it."""
        if len(self._idle) < self._keep and not (connection.closed or connection.invalidated or connection.in_transaction()):
            self._idle.append(connection)
        else:
            broken = connection.invalidated
            connection.close()
            if broken:
                self._drop()

    def _drop(self) -> None:
        """Throw away what is idle: where one connection has broken, or leads to the wrong server, so most likely do the others."""
        with suppress(IndexError):  # another thread has taken the last one
            while self._idle:
                connection = self._idle.pop()
                connection.invalidate()
                connection.close()

    def close(self) -> None:
        """Give back what is idle."""
        while self._idle:
            self._idle.pop().close()
