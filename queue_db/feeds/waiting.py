"""The wait of a reader for new messages of a feed: ended by a publisher's notification, or by the next look."""

from __future__ import annotations

import math
from time import monotonic
from typing import Self

from queue_db.concurrency.pauses import Pause
from queue_db.core import Core
from queue_db.feeds.notifications import notifications_of
from queue_db.notifications.loop import LoopWakeup
from queue_db.notifications.wakeup import Wakeup

#: Seconds between two looks at a feed without new messages: first, and the longest unless it is set.
FIRST_LOOK = 0.01
LONGEST_LOOK = 0.5

# Seconds between two tries to open the connection that receives notifications: first, longest.
_RETRY = (0.1, 10.0)


class Waiting:
    """Waits of one reader, in one thread or task. The first one opens a connection that receives notifications, if the database
    has them; the tasks of an event loop share one.

    :param feed: its name.
    :param longest: seconds between two looks, at most.
    """

    def __init__(self, core: Core, feed: str, longest: float = LONGEST_LOOK) -> None:
        self._core = core
        self._feed = feed
        self._pause = Pause(FIRST_LOOK, longest)
        self._wakeup: Wakeup | LoopWakeup | None = None

    def found(self) -> None:
        """There were messages just now: the next look comes soon."""
        self._pause.reset()

    def wait(self, most: float = math.inf) -> None:
        """Wait until the next look, at most ``most`` seconds. It may end early without a new message."""
        seconds = min(most, self._pause.next())
        if self._wakeup is None:
            self._wakeup = self._new_wakeup()
            notifications_of(self._core.store).add(self._published)
        until = monotonic() + seconds
        while True:
            # Without a name it is the end of the wait, or it has begun to listen and what came before is unknown.
            names = self._wakeup.wait(until - monotonic())
            if self._feed in names:
                self._pause.reset()  # the publisher may be ranking
                return
            if not names or monotonic() >= until:
                return

    def wake(self) -> None:
        """End the wait, or the next one. From any thread."""
        wakeup = self._wakeup
        if wakeup is not None:
            wakeup.set()

    def _new_wakeup(self) -> Wakeup | LoopWakeup:
        channel = notifications_of(self._core.store).channel_of(self._feed)
        if self._core.database.asynchronous:
            return LoopWakeup(self._core.loop_listening, channel)
        return Wakeup(lambda: self._core.database.listen(channel), _RETRY)

    def _published(self, feed: str) -> None:
        wakeup = self._wakeup  # close() may end it now
        if feed == self._feed and wakeup is not None:
            wakeup.set(feed)

    def close(self) -> None:
        """Close the connection."""
        if self._wakeup is not None:
            notifications_of(self._core.store).remove(self._published)
            self._wakeup.close()
            self._wakeup = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
