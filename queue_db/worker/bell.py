"""What a resting worker waits at: rung by others of its process, by the database's notifications, or by nobody."""

from __future__ import annotations

import logging
import select
import socket
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from time import monotonic
from typing import Any

from sqlalchemy.exc import SQLAlchemyError

from queue_db.dialects import Listener
from queue_db.errors import QueueDBError
from queue_db.worker.pauses import Pause

log = logging.getLogger("queue_db.worker")


class Bell:
    """One thread waits at it; any thread rings it.

    :param listen: opens the connection that hears the database's notifications; None where there are none.
    :param trouble: seconds between two tries to open it: first, longest.
    """

    def __init__(self, listen: Callable[[], Listener | None], trouble: tuple[float, float]) -> None:
        self._listen = listen
        self._listener: Listener | None = None
        self._deaf = False  # there is nothing to listen to
        self._listen_again = 0.0
        self._trouble = Pause(*trouble)
        self._names: deque[str] = deque()
        self._rung = False
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)

    def ring(self, queue: str | None = None) -> None:
        """End the wait, or the next one; ``queue``: there is a new job in it."""
        if queue is not None:
            self._names.append(queue)
        if not self._rung:
            self._rung = True
            try:
                self._writer.send(b"\0")
            except OSError:
                return  # full: it rings already; or closed: nobody waits any more

    def wait(self, seconds: float) -> set[str]:
        """Wait until rung, at most so long; return the queues that were named.

        Returns at once when it has just begun to listen: what was told before that was not heard, so look.
        """
        listener = self._listener
        if listener is None and self._opened():
            return set()
        ready: list[Any] = []
        ears: list[Any] = [self._reader] if listener is None else [self._reader, listener]
        try:
            ready, _, _ = select.select(ears, [], [], max(0.0, seconds))
        except (OSError, ValueError) as error:
            self._broken(error)
        if self._reader in ready:
            # In this order: who rings between the two ends this wait too. The other way round that ring's byte would be taken, and
            # all later ones would believe that it still lies there.
            with suppress(OSError):
                self._reader.recv(4096)
            self._rung = False
        named: set[str] = set()
        while self._names:
            named.add(self._names.popleft())
        if listener is not None and listener in ready:
            try:
                named |= listener.heard()
            except QueueDBError as error:
                self._broken(error)
        return named

    def close(self) -> None:
        """Nobody waits here any more."""
        if self._listener is not None:
            self._listener.close()
        self._reader.close()
        self._writer.close()

    def _opened(self) -> bool:
        if self._deaf or monotonic() < self._listen_again:
            return False
        try:
            self._listener = self._listen()
        except (QueueDBError, SQLAlchemyError) as error:
            self._broken(error)
            return False
        self._deaf = self._listener is None
        self._trouble.reset()
        return not self._deaf

    def _broken(self, error: Exception) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        wait = self._trouble.next()
        self._listen_again = monotonic() + wait
        log.debug("not listening to notifications, looking now and then; next try in %.1f s: %s", wait, error)
