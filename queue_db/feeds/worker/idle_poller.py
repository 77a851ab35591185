"""The wait of the idle slots of one shared cursor: one slot looks for new messages for all of them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from queue_db.core import Core
from queue_db.feeds.waiting import Waiting

_Span = TypeVar("_Span")


class IdlePoller:
    """One idle slot waits for notifications of new messages.

    It looks for a span after each notification and from time to time, while the other slots wait for its place. When it has found a
    span, it gives up the place. The next slot looks at once, since there may be more messages.

    :param feed: the name of the feed.
    :param longest: the most seconds between two looks.
    :param leave: returns whether the wait must end.
    """

    def __init__(self, core: Core, feed: str, longest: float, leave: Callable[[], bool]) -> None:
        self._place = threading.Lock()
        self._waiting = Waiting(core, feed, longest)
        self._leave = leave

    def wait(self, look: Callable[[], _Span | None]) -> _Span | None:
        """Wait until ``look`` has found something; None: :meth:`wake` has ended the wait."""
        # The caller has just looked. So if the place is free, it waits before it looks again.
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
        """End the wait if ``leave`` returns True. Any thread may call this."""
        self._waiting.wake()

    def close(self, timeout: float) -> None:
        """Close the connection that receives notifications, unless a slot still waits there after ``timeout`` seconds."""
        if self._place.acquire(timeout=timeout):
            self._waiting.close()
            self._place.release()
