"""Notifications to workers: that a queue has new jobs, or that a running job was cancelled.

Listeners in this process are called directly. Other processes are notified through the database.

Workers also poll, so a notification may get lost, come late, or come without a reason. Notifications are kept rare, because
PostgreSQL commits notifying transactions one after the other: a notification for each job would cost more than the job.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable

from sqlalchemy import Connection

from queue_db.store.schema.tables import Tables

#: Seconds between two notifications of one queue through the database. More notifications are not needed, because a worker that was
#: just woken polls more often than this.
EVERY = 0.02

#: The prefix of the notification of a cancelled job; the job's id follows. No queue name contains this character.
CANCELLED = "\x18"

# The length of the notification for the highest job id. Longer texts are skipped: any client may send any text, and Python refuses
# to parse thousands of digits.
_LONGEST = len(CANCELLED) + len(str(2**63))

Listener = Callable[[str], None]
"""A function that gets the name of a queue, or the notification of a cancelled job. Any thread calls it; it returns at once."""


def cancelled_in(received: Iterable[str]) -> set[int]:
    """The ids of the cancelled jobs in these notifications. Other notifications are skipped."""
    return {
        int(text[len(CANCELLED) :])
        for text in received
        if text.startswith(CANCELLED) and len(text) <= _LONGEST and text[len(CANCELLED) :].isdecimal()
    }


# The most names for which the time of the last notification is kept. If there are more names, all times are dropped. Then each name
# may get one notification too many.
_MOST = 10_000


class Notifications:
    """The notifications that one process sends to the workers of one store."""

    #: Seconds between two notifications of one name through the database.
    every = EVERY

    def __init__(self, tables: Tables, clock: Callable[[], float] = time.monotonic) -> None:
        self._tables = tables
        self._clock = clock
        self._notified_at: dict[str, float] = {}
        self._listeners: tuple[Listener, ...] = ()
        #: For tests: called with the connection and the queue before jobs are added in a caller's transaction.
        self.joining: Callable[[Connection, str], None] | None = None

    def due(self, name: str) -> bool:
        """Whether the last notification is at least ``every`` seconds old. If so, record the current time as its time."""
        now = self._clock()
        if now - self._notified_at.get(name, -self.every) < self.every:
            return False
        if len(self._notified_at) >= _MOST:
            self._notified_at.clear()
        self._notified_at[name] = now
        return True

    def unsent(self, name: str) -> None:
        """Make the notification of ``name`` due again, since it was not sent."""
        self._notified_at.pop(name, None)

    def wake(self, *names: str) -> None:
        """After the commit: call each listener of this process with each of ``names``.

        :raises Exception: the first exception of a listener. It is raised after all listeners were called.
        """
        first: Exception | None = None
        for name in names:
            for listener in self._listeners:
                try:
                    listener(name)
                except Exception as error:  # noqa: BLE001 - raised below
                    first = first or error
        if first is not None:
            raise first

    @property
    def channel(self) -> str:
        """The database's channel for these notifications.

        The name is cut to 63 characters. If two stores get the same name, their workers only wake too often.
        """
        return f"queue_db.{self._tables.jobs.fullname}"[:63]

    def add(self, listener: Listener) -> None:
        """Call ``listener`` for each notification from now on."""
        self._listeners = (*self._listeners, listener)

    def remove(self, listener: Listener) -> None:
        """Stop calling ``listener``."""
        self._listeners = tuple(one for one in self._listeners if one != listener)


EndListener = Callable[[Collection[int]], None]
"""Called with the ids of jobs that have ended, in the thread that ended them. It returns at once, and raises nothing."""


class Ends:
    """Tells listeners in this process which jobs have ended: were completed or cancelled by their worker, or have died.

    A listener may miss an end, such as that of a purged job: so it also looks.
    """

    def __init__(self) -> None:
        #: Those who listen. Without any of them nothing needs to be told.
        self.listeners: tuple[EndListener, ...] = ()

    def add(self, listener: EndListener) -> None:
        """Call ``listener`` from now on."""
        self.listeners = (*self.listeners, listener)

    def remove(self, listener: EndListener) -> None:
        """Stop calling ``listener``."""
        self.listeners = tuple(one for one in self.listeners if one != listener)

    def tell(self, ids: Collection[int]) -> None:
        """After the commit: these jobs have ended."""
        for listener in self.listeners:
            listener(ids)
