"""The engine of all long polls of an application: any number of idle clients, without a thread or a statement for each.

One thread receives the notifications of this process and of the database, and one task asks the database, in one statement for
all queues, one for all jobs, and one look at each feed, as long as somebody waits. Both tell the line of the clients that wait for
the same thing.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from typing import Any, Protocol

from starlette.concurrency import run_in_threadpool

from queue_db.db import QueueDB
from queue_db.errors import QueueDBError
from queue_db.feeds.notifications import notifications_of
from queue_db.notifications.wakeup import Wakeup
from queue_db.store.wakeups import cancelled_in

log = logging.getLogger("queue_db.service")

# Seconds between two reads of when the next jobs are due: shortest, longest.
_DUE = (0.02, 0.5)

# Seconds between two looks at the ends of feeds.
_ENDS = 0.25

# Seconds between two looks for jobs that have left their queues.
_LEFT = 0.25

# Longest time, in seconds, until it is noticed that the server ends.
_LONGEST = 0.5

# Seconds without anybody who waits after which the thread that receives notifications ends.
_LINGER = 5.0

# Longest wait for a notification, seconds.
_LONGEST_WAIT = 60.0

# Seconds between two tries to listen to the database: first, longest.
_RETRY = (0.1, 10.0)

#: What clients wait for: QUEUE, FEED or JOB, and its name or id.
Key = tuple[str, str]

QUEUE = "queue"
FEED = "feed"
JOB = "job"


class Line(Protocol):
    """The clients that wait for the same thing. Its methods are called on the event loop."""

    def news(self, found: Any) -> None:
        """There may be something.

        :param found: what the look has found: of a feed its end; None: a notification came, or the look failed.
        """

    def fail(self, error: QueueDBError) -> None:
        """The database does not answer."""

    def end(self) -> None:
        """The server ends: nobody waits any more."""


class Waits:
    """The lines of one event loop. Its methods run there."""

    def __init__(self, db: QueueDB, ending: threading.Event) -> None:
        self._db = db
        self._ending = ending
        self._lines: dict[Key, Line] = {}
        self._looks: dict[str, Callable[[list[str]], tuple[dict[str, Any], float]]] = {
            QUEUE: self._due,
            FEED: self._ends,
            JOB: self._left,
        }
        # By the clock of the event loop: when each of them is made next.
        self._next: dict[str, float] = {}
        self._poller: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()

    @property
    def ending(self) -> bool:
        """Whether the server ends."""
        return self._ending.is_set()

    def join(self, key: Key, line: Line) -> None:
        """Tell the line from now on, also of what has come a moment ago."""
        loop = asyncio.get_running_loop()
        if self._poller is None or self._poller.done() or self._poller.get_loop() is not loop:
            self._changed = asyncio.Event()
            self._poller = loop.create_task(self._poll())
        self._lines[key] = line
        self._next.pop(key[0], None)
        self._changed.set()

    def leave(self, key: Key) -> None:
        """Tell the line of this key no longer."""
        self._lines.pop(key, None)

    async def _poll(self) -> None:
        loop = asyncio.get_running_loop()
        receiver = _Receiver(self._db, loop, self._received, self._lines)
        receiver.start()
        idle_since: float | None = None
        try:
            while not self._ending.is_set():
                wait = _LONGEST
                if self._lines:
                    idle_since = None
                    wait = await self._look(loop)
                elif idle_since is None:
                    idle_since = loop.time()
                elif loop.time() - idle_since > _LINGER:
                    break
                with suppress(TimeoutError):
                    async with asyncio.timeout(wait):
                        await self._changed.wait()
                self._changed.clear()
        finally:
            receiver.stop()
            for line in list(self._lines.values()):
                line.end()

    async def _look(self, loop: asyncio.AbstractEventLoop) -> float:
        """Make the looks whose time has come; the seconds until the next one."""
        for what in {what for what, _ in self._lines}:
            if self._next.get(what, 0.0) > loop.time():
                continue
            names = [name for of, name in self._lines if of == what]
            self._next[what] = 0.0
            pause = _LONGEST
            try:
                found, pause = await run_in_threadpool(self._looks[what], names)
            except QueueDBError as error:
                for name in names:
                    if line := self._lines.get((what, name)):
                        line.fail(error)
            else:
                for name, one in found.items():
                    self._tell((what, name), one)
            if what in self._next:  # otherwise a line has come meanwhile
                self._next[what] = loop.time() + pause
        return max(0.0, min([_LONGEST, *(self._next.get(what, 0.0) - loop.time() for what, _ in self._lines)]))

    def _tell(self, key: Key, found: Any = None) -> None:
        if line := self._lines.get(key):
            line.news(found)

    def _received(self, keys: Iterable[Key]) -> None:
        for key in keys:
            self._tell(key)

    # --- in a thread ------------------------------------------------------------------------------------------------

    def _due(self, queues: list[str]) -> tuple[dict[str, Any], float]:
        """The queues that have due jobs, and the seconds until the next look."""
        waits = self._db.next_due(queues)
        known = {queue: wait for queue, wait in waits.items() if wait is not None}
        pause = min([_DUE[1], *(wait for wait in known.values() if wait > 0)])
        return {queue: wait for queue, wait in known.items() if wait <= 0}, max(_DUE[0], pause)

    def _ends(self, feeds: list[str]) -> tuple[dict[str, Any], float]:
        """The ends of feeds, and the seconds until the next look."""
        found: dict[str, str | None] = {}
        for name in feeds:
            try:
                found[name] = self._db.feed(name).end()
            except QueueDBError as error:
                # The clients read, and get the error themselves.
                log.debug("feed %r: no look at its end: %s", name, error)
                found[name] = None
        return found, _ENDS

    def _left(self, jobs: list[str]) -> tuple[dict[str, Any], float]:
        """The jobs that have left their queues, and the seconds until the next look."""
        live = self._db.core.inspection.live([int(job) for job in jobs])
        return {job: None for job in jobs if int(job) not in live}, _LEFT


class _Receiver(threading.Thread):
    """Receives the notifications of this process and of the database.

    :param receive: called on the event loop with the keys that came.
    :param lines: what is waited for: of all jobs that end, only these are told.
    """

    def __init__(
        self,
        db: QueueDB,
        loop: asyncio.AbstractEventLoop,
        receive: Callable[[Iterable[Key]], None],
        lines: Collection[Key],
    ) -> None:
        super().__init__(name="queue_db-service-notifications", daemon=True)
        self._loop = loop
        self._receive = receive
        self._lines = lines
        self._stopped = False
        self._lock = threading.Lock()
        self._came: set[Key] = set()
        self._sources = ((db.notifications, self._of_queue), (notifications_of(db.core.store), self._of_feed))
        self._ends = db.core.ends
        self._ends.add(self._of_jobs)
        self._wakeup = Wakeup(lambda: db.database.listen(db.notifications.channel), _RETRY)
        for notifications, receiver in self._sources:
            notifications.add(receiver)

    def run(self) -> None:
        """Until :meth:`stop`."""
        try:
            while not self._stopped:
                for name in self._wakeup.wait(_LONGEST_WAIT):
                    self._of_queue(name)
        finally:
            self._wakeup.close()

    def stop(self) -> None:
        """End the thread soon."""
        self._stopped = True
        for notifications, receiver in self._sources:
            notifications.remove(receiver)
        self._ends.remove(self._of_jobs)
        self._wakeup.set()

    def _of_queue(self, name: str) -> None:
        self._take((QUEUE, name))
        self._of_jobs(cancelled_in((name,)))

    def _of_jobs(self, ids: Collection[int]) -> None:
        for key in ((JOB, str(job_id)) for job_id in ids):
            if key in self._lines:
                self._take(key)

    def _of_feed(self, name: str) -> None:
        self._take((FEED, name))

    def _take(self, key: Key) -> None:
        """In any thread."""
        with self._lock:
            first = not self._came
            self._came.add(key)
        if first:
            with suppress(RuntimeError):  # the loop is closed, and no client waits
                self._loop.call_soon_threadsafe(self._tell)

    def _tell(self) -> None:
        with self._lock:
            came, self._came = self._came, set()
        self._receive(came)
