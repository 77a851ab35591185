"""Threads that do the same again and again while a connection is open."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable

from queue_db import QueueDBError

log = logging.getLogger("queue_db.kombu")

#: Seconds until something is tried again after an error.
RETRY = 1.0


class Rounds:
    """A thread that calls a function until it is closed. After a fork the child has none: it is its parent's.

    :param name: of the thread.
    :param one: does one round, and returns the seconds until the next.
    :param first: seconds until the first round.
    """

    def __init__(self, name: str, one: Callable[[], float], *, first: float = 0.0) -> None:
        self._name = name
        self._one = one
        self._first = first
        self._soon = threading.Event()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._pid = os.getpid()
        self.ended = False

    @property
    def is_here(self) -> bool:
        """Whether this is the process of the connection."""
        return self._pid == os.getpid()

    def start(self) -> None:
        """Start the thread, unless it runs."""
        if self._thread is None and not self.ended and self.is_here:
            with self._lock:
                if self._thread is None:
                    self._thread = threading.Thread(target=self._run, name=f"queue_db.kombu {self._name}", daemon=True)
                    self._thread.start()

    def hurry(self) -> None:
        """Begin the next round now."""
        self._soon.set()

    def close(self) -> None:
        """End the thread."""
        self.ended = True
        self._soon.set()
        if self._thread is not None and self.is_here and self._thread is not threading.current_thread():
            self._thread.join(5.0)

    def succeeds(self, what: str, change: Callable[[], object]) -> bool:
        """Whether it succeeded; if not, that is logged. The thread goes on after an error of any class."""
        try:
            change()
        except QueueDBError as error:
            if not self.ended:
                log.warning("%s failed: %s", what, error)
            return False
        except Exception:  # without the thread leases end and queues expire
            log.exception("%s failed", what)
            return False
        return True

    def _run(self) -> None:
        wait = self._first
        while not self.ended:
            self._soon.wait(max(0.0, wait))
            self._soon.clear()
            if not self.ended:
                wait = self._one()
