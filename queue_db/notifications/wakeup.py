"""Lets an idle worker or reader wait. Other threads, notifications of the database or a timeout end the wait."""

from __future__ import annotations

import logging
import socket
from collections import deque
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from contextlib import suppress
from time import monotonic
from typing import Any

from sqlalchemy.exc import SQLAlchemyError

from queue_db.concurrency.pauses import Pause
from queue_db.dialects import Listener
from queue_db.dialects.listening import readable
from queue_db.errors import QueueDBError

log = logging.getLogger("queue_db.notifications")


class Wakeup:
    """Lets one thread wait until another thread or a notification wakes it.

    :param listen: opens the connection that receives notifications, or returns None if the database has no notifications.
    :param retry: the first and the longest pause, in seconds, between two attempts to open the connection.
    """

    def __init__(self, listen: Callable[[], Listener | None], retry: tuple[float, float]) -> None:
        self._listen = listen
        self._listener: Listener | None = None
        self._unsupported = False
        self._listen_again_at = 0.0
        self._retry = Pause(*retry)
        self._names: deque[str] = deque()
        self._is_set = False
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)

    def set(self, name: str | None = None) -> None:
        """End the current wait. If no thread waits, end the next wait.

        :param name: a text that :meth:`wait` returns, such as the name of a queue that has a new job.
        """
        if name is not None:
            self._names.append(name)
        if not self._is_set:
            self._is_set = True
            try:
                self._writer.send(b"\0")
            except OSError:
                return  # the buffer is full, so the wait ends; or the socket is closed, and no thread waits

    def wait(self, seconds: float) -> AbstractSet[str]:
        """Wait at most ``seconds`` for a call of :meth:`set` or a notification; return the names that came.

        When listening begins, the wait ends at once: earlier notifications are lost, so the caller must query.
        """
        listener = self._listener
        if listener is None and self._opened():
            return set()
        ready: list[Any] = []
        sources: list[Any] = [self._reader] if listener is None else [self._reader, listener]
        try:
            ready = readable(*sources, within=max(0.0, seconds))
        except (OSError, ValueError) as error:
            self._broken(error)
        if self._reader in ready:
            # Read the byte before the flag is cleared. A set() between the two statements then sends no byte, but this wait returns
            # its name. In the other order, the byte of this set() would be read here and the flag would stay set, so later calls of
            # set() would send no byte.
            with suppress(OSError):
                self._reader.recv(4096)
            self._is_set = False
        names: set[str] = set()
        while self._names:
            names.add(self._names.popleft())
        if listener is not None and listener in ready:
            try:
                names |= listener.received()
            except QueueDBError as error:
                self._broken(error)
        return names

    def close(self) -> None:
        """Close the connection and the sockets."""
        if self._listener is not None:
            self._listener.close()
        self._reader.close()
        self._writer.close()

    def _opened(self) -> bool:
        if self._unsupported or monotonic() < self._listen_again_at:
            return False
        try:
            self._listener = self._listen()
        except (QueueDBError, SQLAlchemyError) as error:
            self._broken(error)
            return False
        self._unsupported = self._listener is None
        self._retry.reset()
        return not self._unsupported

    def _broken(self, error: Exception) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        wait = self._retry.next()
        self._listen_again_at = monotonic() + wait
        log.debug("cannot listen to notifications, so this process polls; next try in %.1f s: %s", wait, error)
