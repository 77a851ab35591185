"""Waits until queues have due jobs, for consumers that are not a :class:`~queue_db.worker.Worker`, such as adapters."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from types import TracebackType
from typing import Self

from queue_db import arguments
from queue_db.concurrency.pauses import Idle
from queue_db.core import Core
from queue_db.errors import ConfigurationError
from queue_db.notifications.wakeup import Wakeup
from queue_db.store.schema import QUEUE_LENGTH
from queue_db.verbs.next_due import next_due

# The first and the longest pause, in seconds, between two attempts to open the connection that receives notifications.
_RETRY = (0.1, 10.0)


class Arrivals:
    """Waits for due jobs as a worker does: for notifications where the database has them, and by polls that get rarer.

    ``db.arrivals()`` returns one. One thread waits, and closes it; any thread may call :meth:`wake`. It is a context manager. After
    a fork the child opens another one.

    :param poll: the longest pause between two polls, seconds.
    """

    def __init__(self, core: Core, poll: float) -> None:
        self._core = core
        self._poll = arguments.seconds("poll", poll, zero=False) / 1e6
        self._idle = Idle(self._poll)
        self._wakeup = Wakeup(lambda: core.database.listen(core.notifications.channel), _RETRY)
        self._woken = False
        self._lock = threading.Lock()
        self._waits = False
        self._closed = False
        core.notifications.add(self._wakeup.set)

    def look(self, queues: Iterable[str]) -> set[str]:
        """Those of the queues that have due jobs now: one statement for each 100 queues.

        :raises ArgumentError: ``queues`` is not a list of names.
        :raises ConfigurationError: it is closed.
        :raises StorageError: the database did not answer.
        """
        self._require_open()
        due = {queue for queue, seconds in self._due(_checked(queues)).items() if seconds is not None and seconds <= 0}
        if due:
            self._idle.worked()
        return due

    def wait(self, queues: Iterable[str], seconds: float) -> set[str]:
        """Wait at most ``seconds`` until some of the queues probably have due jobs, and return these.

        Another process may have claimed them. The set is empty after ``seconds``, or after a call of :meth:`wake` or :meth:`close`.

        :raises ArgumentError: ``queues`` is not a list of names, or ``seconds`` not a number of seconds.
        :raises ConfigurationError: it is closed.
        :raises StorageError: the database did not answer a poll.
        """
        ends = time.monotonic() + arguments.seconds("seconds", seconds) / 1e6
        names = _checked(queues)
        with self._lock:
            self._require_open()
            self._waits = True
        try:
            return self._wait(names, ends)
        finally:
            with self._lock:
                self._waits = False
                closed = self._closed
            if closed:
                self._wakeup.close()

    def _wait(self, names: list[str], ends: float) -> set[str]:
        while not self._closed:
            waits = self._due(names)
            if due := {queue for queue, wait in waits.items() if wait is not None and wait <= 0}:
                self._idle.worked()
                return due
            left = ends - time.monotonic()
            if left <= 0:
                return set()
            named = self._wakeup.wait(min([left, self._idle.next(), *(wait for wait in waits.values() if wait is not None)]))
            if told := set(names) & named:
                self._idle.worked()
                return told
            if self._woken:
                self._woken = False
                return set()
        return set()

    def wake(self) -> None:
        """End the current wait, or the next one."""
        self._woken = True
        self._wakeup.set()

    def close(self) -> None:
        """Close the connection that receives notifications. A thread that waits returns an empty set."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            waits = self._waits
        self._core.notifications.remove(self._wakeup.set)
        if waits:
            self._wakeup.set()  # the thread that waits uses the sockets, so it closes them
        else:
            self._wakeup.close()

    def _require_open(self) -> None:
        if self._closed:
            raise ConfigurationError("these arrivals are closed: wait inside their with block, or open others with db.arrivals()")

    def _due(self, names: list[str]) -> dict[str, float | None]:
        return next_due(self._core, names) if names else {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def _checked(queues: Iterable[str]) -> list[str]:
    return [arguments.name("queue", name, QUEUE_LENGTH) for name in arguments.members("queues", queues, "names")]
