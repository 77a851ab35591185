"""The wait of a task on an event loop: the twin of :mod:`queue_db.notifications.wakeup`, with one connection for all tasks."""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from contextlib import suppress
from functools import partial
from time import monotonic

from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.util import await_, greenlet_spawn
from sqlalchemy.util.concurrency import in_greenlet

from queue_db.dialects import LoopListener
from queue_db.errors import QueueDBError
from queue_db.pauses import Pause

log = logging.getLogger("queue_db.notifications")

# Seconds between two tries to open the connection that receives notifications: first, longest.
_RETRY = (0.1, 10.0)


class LoopListening:
    """The database's notifications for the tasks of one event loop. The connection is open while a task waits.

    :param listen: opens the connection; None where the database has no notifications. It calls its argument when it breaks.
    """

    def __init__(self, listen: Callable[[Callable[[], None]], LoopListener | None]) -> None:
        self._listen = listen
        self._unsupported = False
        self._again_at = 0.0
        self._retry = Pause(*_RETRY)
        # A connection does one thing at a time.
        self._turn = asyncio.Lock()
        self._listener: LoopListener | None = None
        #: Those that wait, by channel.
        self._waiting: dict[str, set[LoopWakeup]] = {}
        self._channels: set[str] = set()

    async def join(self, wakeup: LoopWakeup) -> bool:
        """Let ``wakeup`` be set by the notifications of its channel; True if they begin now, so that the caller must query."""
        self._waiting.setdefault(wakeup.channel, set()).add(wakeup)
        if wakeup.listens or self._unsupported or monotonic() < self._again_at:
            return False
        async with self._turn:
            try:
                if self._listener is None:
                    self._listener = await greenlet_spawn(self._listen, self._broken)
                if self._listener is None:
                    self._unsupported = True
                    return False
                if wakeup.channel not in self._channels:
                    await self._listener.add(wakeup.channel, partial(self._received, wakeup.channel))
                    self._channels.add(wakeup.channel)
            except (QueueDBError, SQLAlchemyError) as error:
                log.debug("cannot listen to notifications, so tasks poll: %s", error)
                self._broken()
                return False
            except asyncio.CancelledError:
                self._broken()  # in the middle of a statement
                raise
        self._retry.reset()
        wakeup.listens = True
        return True

    async def leave(self, wakeup: LoopWakeup) -> None:
        """Set ``wakeup`` no more. The last one closes the connection."""
        self.discard(wakeup)
        async with self._turn:
            if self._listener is None:
                return
            if not self._waiting:
                listener, self._listener = self._listener, None
                self._channels.clear()
                await listener.close()
            elif wakeup.channel in self._channels and wakeup.channel not in self._waiting:
                self._channels.remove(wakeup.channel)
                with suppress(QueueDBError):
                    await self._listener.remove(wakeup.channel)

    def retries_in(self) -> float:
        """Seconds until :meth:`join` tries again to listen."""
        return math.inf if self._unsupported else self._again_at - monotonic()

    def discard(self, wakeup: LoopWakeup) -> None:
        """As :meth:`leave`, but without a statement: the next one to leave sends it."""
        waiting = self._waiting.get(wakeup.channel, set())
        waiting.discard(wakeup)
        if not waiting:
            self._waiting.pop(wakeup.channel, None)

    def _received(self, channel: str, name: str) -> None:
        for wakeup in tuple(self._waiting.get(channel, ())):
            wakeup.set(name)

    def _broken(self) -> None:
        """The connection is broken: tasks query, and listen again in their next wait, after a pause."""
        listener, self._listener = self._listener, None
        self._channels.clear()
        self._again_at = monotonic() + self._retry.next()
        if listener is not None:
            listener.abandon()
        for wakeups in self._waiting.values():
            for wakeup in wakeups:
                wakeup.listens = False
                wakeup.set()


class LoopWakeup:
    """One task waits, any task or thread wakes it. Made on the event loop of that task.

    :param listening: sets it by the database's notifications.
    :param channel: whose notifications.
    """

    def __init__(self, listening: LoopListening, channel: str) -> None:
        self.channel = channel
        self.listens = False
        self._listening = listening
        self._loop = asyncio.get_running_loop()
        self._names: deque[str] = deque()
        self._woken = asyncio.Event()

    def set(self, name: str | None = None) -> None:
        """End the wait, or the next one.

        :param name: of a queue that has a new job, a cancelled job, or a feed that has a new message; the wait returns it.
        """
        if name is not None:
            self._names.append(name)
        with suppress(RuntimeError):  # the loop is closed, and no task waits
            self._loop.call_soon_threadsafe(self._woken.set)

    async def arrived(self, seconds: float) -> AbstractSet[str]:
        """Wait until :meth:`set` or a notification, at most this many seconds; return the names that came.

        Returns at once after it has begun to listen: earlier notifications are lost, so the caller must query.
        """
        if await self._listening.join(self):
            return set()
        if not self.listens:
            seconds = min(seconds, self._listening.retries_in())
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, seconds)):
                await self._woken.wait()
        self._woken.clear()
        names: set[str] = set()
        while self._names:
            names.add(self._names.popleft())
        return names

    def wait(self, seconds: float) -> AbstractSet[str]:
        """As :meth:`arrived`, in a greenlet."""
        return await_(self.arrived(seconds))

    async def leave(self) -> None:
        """Receive no more notifications."""
        await self._listening.leave(self)

    def close(self) -> None:
        """As :meth:`leave`, in a greenlet; or anywhere, and then the connection stays open until another task leaves."""
        if in_greenlet():
            await_(self.leave())
        else:
            self._listening.discard(self)
