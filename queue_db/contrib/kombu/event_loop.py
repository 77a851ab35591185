"""Lets an event loop of Kombu deliver messages: a thread waits for them and makes a socket readable.

Thread and loop take turns: the thread waits for the queues that the loop has named, and rests while the loop delivers.
"""

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
    """Between the thread that waits and the event loop that delivers.

    :param loop: a hub of Kombu. It calls the deliveries, so errors of the database reach who runs it.
    """

    def __init__(self, transport: Transport, loop: Any) -> None:
        self._transport, self._loop = transport, loop
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)
        #: What the loop gives to the thread, and what the thread gives back.
        self._wanted: list[str] = []
        self._due: set[str] | None = None
        self._turn = threading.Event()
        self._ended = threading.Event()
        loop.add_reader(self._reader, self._deliver)
        self._thread = threading.Thread(target=self._run, name="queue_db.kombu arrivals", daemon=True)
        self._thread.start()
        self._hand_over()

    def close(self) -> None:
        """End the thread."""
        self._ended.set()
        self._turn.set()
        self._transport.wake()
        self._thread.join(5.0)
        with suppress(Exception):  # the loop is closed
            self._loop.remove_reader(self._reader)
        self._reader.close()
        self._writer.close()

    # --- the thread -------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while self._turn.wait() and not self._ended.is_set():
            self._turn.clear()
            try:
                self._due = self._transport.wait(self._wanted, _WAIT)
            except Exception as error:  # the thread goes on: without it nothing is delivered
                if self._ended.is_set():
                    return  # the connection is closed
                if isinstance(error, QueueDBError):
                    log.warning("waiting for messages failed: %s", error)
                else:
                    log.exception("waiting for messages failed")
                self._ended.wait(_RETRY)
                self._due = set(self._wanted)  # the loop tries, and meets the error if it lasts
            self._signal()

    def _signal(self) -> None:
        with suppress(OSError):  # the loop has not read the last one, or the connection was closed meanwhile
            self._writer.send(b"\0")

    # --- the loop ---------------------------------------------------------------------------------------------------

    def _hand_over(self) -> None:
        self._wanted = self._transport.wanted()
        self._turn.set()

    def _take_over(self) -> set[str] | None:
        with suppress(BlockingIOError):
            self._reader.recv(4096)
        due, self._due = self._due, None
        return due

    def _deliver(self) -> None:
        """Deliver messages of one queue. If there may be more, others of the loop come between."""
        more = False
        try:
            more = self._transport.deliver_due(self._take_over())
        finally:
            if more:
                self._signal()
            else:
                self._hand_over()

    def wait(self, seconds: float) -> set[str]:
        """For one who drains events without the loop: what the thread has found; empty after ``seconds``."""
        self._hand_over()
        self._reader.settimeout(seconds)
        try:
            self._reader.recv(1)
        except TimeoutError:
            return set()
        finally:
            self._reader.setblocking(False)
        return self._take_over() or set()
