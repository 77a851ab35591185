"""Waits for messages of feeds: one look for all clients of this process, so that an idle one costs no thread and no statement."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from fastapi import Request
from starlette.concurrency import run_in_threadpool

from queue_db.errors import QueueDBError
from queue_db.feeds.notifications import notifications_of
from queue_db.service.http.requests import Service, of

log = logging.getLogger("queue_db.service")

# Seconds between two looks at the feeds that clients wait for. Messages that this process publishes end the pause.
_LOOK = 0.25


@dataclass(eq=False)
class Waiter:
    """One client that waits.

    :ivar position: up to where it has read; None: it claims, so it tries again also without a new message.
    :ivar ending: the service ends.
    """

    feed: str
    position: str | None = None
    ending: bool = False
    woken: asyncio.Event = field(default_factory=asyncio.Event)

    async def wait(self, seconds: float) -> bool:
        """Wait until there may be something, at most this long; False: the time is over."""
        if self.ending:
            return False
        try:
            await asyncio.wait_for(self.woken.wait(), max(0.0, seconds))
        except TimeoutError:
            return False
        self.woken.clear()
        return not self.ending


class Arrivals:
    """The clients of one event loop that wait for messages."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._db = service.db
        self._waiters: dict[str, list[Waiter]] = {}
        self._task: asyncio.Task[None] | None = None

    @contextmanager
    def waiter(self, feed: str) -> Iterator[Waiter]:
        """Within the block new messages of the feed wake the client."""
        one = Waiter(feed)
        self._waiters.setdefault(feed, []).append(one)
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._look())
        try:
            yield one
        finally:
            rest = self._waiters[feed]
            rest.remove(one)
            if not rest:
                del self._waiters[feed]

    def pass_on(self, feed: str) -> None:
        """A client has claimed something: the next one tries, too."""
        self._wake_claimer(feed)

    async def _look(self) -> None:
        published = asyncio.Event()
        loop = asyncio.get_running_loop()

        def on_publish(_feed: str) -> None:
            loop.call_soon_threadsafe(published.set)

        notifications = notifications_of(self._db.core.store)
        notifications.add(on_publish)
        try:
            while self._waiters:
                published.clear()
                if self._service.ending.is_set():
                    self._end()
                ends = await run_in_threadpool(self._ends, list(self._waiters))
                for feed, end in ends.items():
                    self._wake_readers(feed, end)
                    self._wake_claimer(feed)
                try:
                    await asyncio.wait_for(published.wait(), _LOOK)
                except TimeoutError:
                    continue
        finally:
            notifications.remove(on_publish)

    def _end(self) -> None:
        for one in (one for some in self._waiters.values() for one in some):
            one.ending = True
            one.woken.set()

    def _ends(self, feeds: list[str]) -> dict[str, str | None]:
        found: dict[str, str | None] = {}
        for name in feeds:
            try:
                found[name] = self._db.feed(name).end()
            except QueueDBError as error:
                # The clients read, and get the error themselves.
                log.debug("feed %r: no look at its end: %s", name, error)
                found[name] = None
        return found

    def _wake_readers(self, feed: str, end: str | None) -> None:
        for one in self._waiters.get(feed, ()):
            if one.position is not None and one.position != end:
                one.woken.set()

    def _wake_claimer(self, feed: str) -> None:
        """One after the other: messages become free without a message being new."""
        rest = self._waiters.get(feed, [])
        for one in rest:
            if one.position is None and not one.woken.is_set():
                rest.remove(one)
                rest.append(one)
                one.woken.set()
                return


def arrivals_of(request: Request) -> Arrivals:
    """The arrivals of the application's event loop."""
    state = request.app.state
    if not hasattr(state, "arrivals"):
        state.arrivals = Arrivals(of(request))
    found: Arrivals = state.arrivals
    return found
