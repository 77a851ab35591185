"""Lets an event loop of Kombu deliver messages: a thread waits for them and makes a socket readable."""

from __future__ import annotations

import logging
import socket
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from queue_db import QueueDBError

if TYPE_CHECKING:
    from queue_db.contrib.kombu.transport import Transport

log = logging.getLogger("queue_db.kombu")

# Seconds of one wait, and after an error.
_WAIT, _RETRY = 60.0, 1.0


class Bridge:
    """Between the thread that waits and the event loop that delivers, one after the other."""

    def __init__(self, transport: Transport, connection: Any, loop: Any) -> None:
        self._transport, self._connection, self._loop = transport, connection, loop
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._delivered = threading.Event()
        self._ended = threading.Event()
        loop.add_reader(self._reader, self._deliver)
        self._thread = threading.Thread(target=self._wait, name="queue_db.kombu arrivals", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread."""
        self._ended.set()
        self._delivered.set()
        self._transport.wake()
        self._thread.join(5.0)
        with suppress(Exception):  # the loop is closed
            self._loop.remove_reader(self._reader)
        self._reader.close()
        self._writer.close()

    def _wait(self) -> None:
        while not self._ended.is_set():
            try:
                self._transport.arrivals.wait(self._transport.wanted(), _WAIT)
            except QueueDBError as error:
                log.warning("waiting for messages failed: %s", error)
                self._ended.wait(_RETRY)
            except Exception:  # the thread goes on: without it nothing is delivered
                log.exception("waiting for messages failed")
                self._ended.wait(_RETRY)
            if self._ended.is_set():
                return
            self._delivered.clear()
            self._writer.send(b"\0")
            self._delivered.wait()

    def _deliver(self) -> None:
        """On the loop: deliver what there is."""
        with suppress(BlockingIOError):
            self._reader.recv(4096)
        try:
            with suppress(TimeoutError):
                while True:
                    self._transport.drain_events(self._connection, timeout=0)
        finally:
            self._delivered.set()
