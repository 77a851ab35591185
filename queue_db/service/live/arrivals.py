"""Clients that wait for messages of feeds."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from fastapi import Request

from queue_db.errors import QueueDBError
from queue_db.service.live.waits import FEED, Waits


@dataclass(eq=False)
class Waiter:
    """One client that waits.

    :ivar position: up to where it has read; None: it claims, so it tries again also without a new message.
    :ivar ending: the service ends.
    """

    position: str | None = None
    ending: bool = False
    woken: asyncio.Event = field(default_factory=asyncio.Event)

    async def wait(self, seconds: float) -> bool:
        """Wait until there may be something, at most this long; False: the time is over."""
        if self.ending:
            return False
        try:
            # Not wait_for: on Python 3.11 it may ignore a cancellation.
            async with asyncio.timeout(max(0.0, seconds)):
                await self.woken.wait()
        except TimeoutError:
            return False
        self.woken.clear()
        return not self.ending


class Arrivals:
    """The clients of one event loop that wait for messages."""

    def __init__(self, waits: Waits) -> None:
        self._waits = waits
        self._lines: dict[str, _Line] = {}

    def waiting(self, feed: str) -> int:
        """How many clients wait for messages of a feed."""
        line = self._lines.get(feed)
        return 0 if line is None else len(line.waiters)

    @contextmanager
    def waiter(self, feed: str) -> Iterator[Waiter]:
        """Within the block new messages of the feed wake the client."""
        one = Waiter(ending=self._waits.ending)
        line = self._lines.get(feed)
        if line is None:
            line = self._lines[feed] = _Line()
        line.waiters.append(one)
        # Also for a second client: it may have looked before the last message, and the line after it.
        self._waits.join((FEED, feed), line)
        try:
            yield one
        finally:
            line.waiters.remove(one)
            if not line.waiters:
                self._waits.leave((FEED, feed))
                del self._lines[feed]

    def pass_on(self, feed: str) -> None:
        """A client has claimed something: the next one tries, too."""
        if line := self._lines.get(feed):
            line.wake_claimer()


class _Line:
    """The clients that wait for messages of one feed."""

    def __init__(self) -> None:
        self.waiters: list[Waiter] = []

    def news(self, found: object = None) -> None:
        """The feed may have new messages, or free ones.

        :param found: its end, if that is known.
        """
        for one in self.waiters:
            if one.position is not None and one.position != found:
                one.woken.set()
        self.wake_claimer()

    def wake_claimer(self) -> None:
        """One after the other: messages become free without a message being new."""
        for one in self.waiters:
            if one.position is None and not one.woken.is_set():
                self.waiters.remove(one)
                self.waiters.append(one)
                one.woken.set()
                return

    def fail(self, error: QueueDBError) -> None:
        """The clients read, and get the error themselves."""
        self.news()

    def end(self) -> None:
        """Nobody waits any more."""
        for one in self.waiters:
            one.ending = True
            one.woken.set()


def arrivals_of(request: Request) -> Arrivals:
    """The arrivals of the application's event loop."""
    found: Arrivals = request.app.state.arrivals
    return found
