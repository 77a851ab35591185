"""The wait of the idle slots of one shared cursor: one of them looks for all."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from queue_db.core import Core
from queue_db.feeds.waiting import Waiting

_Span = TypeVar("_Span")


class IdlePoller:
    """One idle slot waits for notifications of new messages.

    It looks after each notification and from time to time, while the other slots wait for its place. When it has found something,
    it gives up the place. The next slot looks at once, since there may be more.

    :param feed: its name.
    :param longest: seconds between two looks, at most.
    :param leave: whether to end the wait.
    """

    def __init__(self, core: Core, feed: str, longest: float, leave: Callable[[], bool]) -> None:
        self._place = threading.Lock()
        self._waiting = Waiting(core, feed, longest)
        self._leave = leave

    def wait(self, look: Callable[[], _Span | None]) -> _Span | None:
        """Wait until ``look`` has found something; None: :meth:`wake` has ended the wait."""
        # The caller has just looked: if the place is free, it waits first.
        waited = not self._place.acquire(blocking=False)
        if waited:
            self._place.acquire()
        try:
            span = look() if waited and not self._leave() else None
            while span is None and not self._leave():
                self._waiting.wait()
                if not self._leave():
                    span = look()
            self._waiting.found()
            return span
        finally:
            self._place.release()

    def wake(self) -> None:
        """End the wait if it has to end now. From any thread."""
        self._waiting.wake()

    def close(self, timeout: float) -> None:
        """Close the connection that receives notifications, unless the slot that waits there does not leave."""
        if self._place.acquire(timeout=timeout):
            self._waiting.close()
            self._place.release()
