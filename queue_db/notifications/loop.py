"""Lets tasks of an event loop wait, as :mod:`queue_db.notifications.wakeup` does for threads. All tasks share one connection."""

from __future__ import annotations

import asyncio
import logging
import os
from collections import deque
from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet
from contextlib import suppress
from functools import partial

from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.util import await_, greenlet_spawn
from sqlalchemy.util.concurrency import in_greenlet

from queue_db.concurrency.pauses import Pause
from queue_db.dialects import LoopListener
from queue_db.errors import QueueDBError, TransientStorageError

log = logging.getLogger("queue_db.notifications")

# The first and the longest pause, in seconds, between two attempts to open the connection that receives notifications.
_RETRY = (0.1, 10.0)


class LoopListening:
    """The database's notifications for the tasks of one event loop.

    While tasks wait, a separate task keeps one connection open. No other task uses this connection, so no other task can break it.
    Without the connection, tasks poll.

    :param listen: opens the connection, or returns None if the database has no notifications. Its argument is a function that is
        called when the connection breaks.
    """

    def __init__(self, listen: Callable[[Callable[[], None]], LoopListener | None]) -> None:
        self._listen = listen
        #: Whether listening is off, because the database has no notifications or is closed.
        self._off = False
        self._process = os.getpid()
        #: Waiting tasks, by channel.
        self._waiting: dict[str, set[LoopWakeup]] = {}
        #: The task that keeps the connection.
        self._keeper: asyncio.Task[None] | None = None
        #: Set when the set of channels or of waiting tasks has changed, or when the connection broke.
        self._changed = asyncio.Event()
        # After forks: the parent's keeper tasks. If they were freed, asyncpg would close their connection and remove its socket
        # from the parent's event loop.
        self._inherited: list[object] = []

    def join(self, wakeup: LoopWakeup) -> None:
        """From now on, set ``wakeup`` at each notification of its channel, and once when listening begins."""
        self._forget_parents()
        if self._off:
            return
        self._waiting.setdefault(wakeup.channel, set()).add(wakeup)
        if self._keeper is None or self._keeper.done() or self._keeper.get_loop().is_closed():
            self._changed = asyncio.Event()
            self._keeper = asyncio.get_running_loop().create_task(self._keep())
        elif not wakeup.listens:
            self._call(self._changed.set)

    def leave(self, wakeup: LoopWakeup) -> None:
        """Stop setting ``wakeup``. When no wakeup is left, the connection is closed."""
        self._forget_parents()
        waiting = self._waiting.get(wakeup.channel, set())
        waiting.discard(wakeup)
        if not waiting:
            self._waiting.pop(wakeup.channel, None)
            self._call(self._changed.set)

    def close(self) -> None:
        """Close the connection; from now on tasks poll. In a greenlet, wait until the connection is closed."""
        self._forget_parents()
        self._off = True
        if self._keeper is not None and not self._keeper.done():
            self._call(self._keeper.cancel)
            if in_greenlet() and self._keeper.get_loop() is asyncio.get_running_loop():
                await_(asyncio.wait({self._keeper}))

    def _call(self, function: Callable[[], object]) -> None:
        """Call ``function`` on the event loop of the connection, from any thread."""
        if self._keeper is not None:
            with suppress(RuntimeError):  # the loop is closed
                self._keeper.get_loop().call_soon_threadsafe(function)

    def _forget_parents(self) -> None:
        """After a fork, forget the connection and the waiting tasks: they belong to the parent process."""
        if self._process != os.getpid():
            self._inherited.append(self._keeper)
            self._keeper = None
            self._waiting = {}
            self._process = os.getpid()

    async def _keep(self) -> None:
        """Keep a connection open while tasks wait."""
        retry = Pause(*_RETRY)
        while self._waiting and not self._off:
            try:
                listener = await greenlet_spawn(self._listen, self._changed.set)
                if listener is None:
                    self._off = True
                    return
                try:
                    await self._receive(listener, retry)
                finally:
                    self._silent()
                    await listener.close()
            except (QueueDBError, SQLAlchemyError) as error:
                log.debug("cannot listen to notifications, so tasks poll: %s", error)
                await asyncio.sleep(retry.next())

    async def _receive(self, listener: LoopListener, retry: Pause) -> None:
        """Receive the notifications of all channels for which tasks wait, until no task waits.

        :raises StorageError: the connection is broken.
        """
        channels: set[str] = set()
        while self._waiting:
            self._changed.clear()
            for channel in self._waiting.keys() - channels:
                await listener.add(channel, partial(self._received, channel))
                channels.add(channel)
            for channel in channels - self._waiting.keys():
                await listener.remove(channel)
                channels.remove(channel)
            retry.reset()
            for wakeup in self._wakeups(channels):
                if not wakeup.listens:
                    wakeup.listens = True
                    wakeup.set()
            await self._changed.wait()
            if listener.is_broken():
                raise TransientStorageError("listen: the connection broke", statement_name="listen", server_away=True)

    def _received(self, channel: str, name: str) -> None:
        for wakeup in self._wakeups({channel}):
            wakeup.set(name)

    def _silent(self) -> None:
        """Wake all tasks, because no more notifications arrive, so the tasks must query."""
        for wakeup in self._wakeups(self._waiting):
            wakeup.listens = False
            wakeup.set()

    def _wakeups(self, channels: Iterable[str]) -> list[LoopWakeup]:
        """The wakeups that wait for one of these channels."""
        return [wakeup for channel in channels for wakeup in self._waiting.get(channel, ())]


class LoopWakeup:
    """Lets one task wait until any task or thread wakes it. Create the object on the event loop of the waiting task.

    :param listening: sets the wakeup at notifications of the database.
    :param channel: the channel of these notifications.
    """

    def __init__(self, listening: LoopListening, channel: str) -> None:
        self.channel = channel
        self.listens = False
        self._listening = listening
        self._loop = asyncio.get_running_loop()
        self._names: deque[str] = deque()
        self._woken = asyncio.Event()

    def set(self, name: str | None = None) -> None:
        """End the current wait. If no task waits, end the next wait.

        :param name: a text that the wait returns, such as the name of a queue that has a new job.
        """
        if name is not None:
            self._names.append(name)
        with suppress(RuntimeError):  # the loop is closed, and no task waits
            self._loop.call_soon_threadsafe(self._woken.set)

    async def arrived(self, seconds: float) -> AbstractSet[str]:
        """Wait at most ``seconds`` for a call of :meth:`set` or a notification; return the names that came.

        The wait also ends when listening begins: earlier notifications are lost, so the caller must query.
        """
        self._listening.join(self)
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, seconds)):
                await self._woken.wait()
        self._woken.clear()
        names: set[str] = set()
        while self._names:
            names.add(self._names.popleft())
        return names

    def wait(self, seconds: float) -> AbstractSet[str]:
        """Do what :meth:`arrived` does, in a greenlet."""
        return await_(self.arrived(seconds))

    def close(self) -> None:
        """Receive no more notifications."""
        self._listening.leave(self)
