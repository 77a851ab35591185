"""Notifications that wake waiting workers: of new jobs in a queue, and of a running job that was cancelled.

Those of this process are called directly, others are notified through the database.

A notification may get lost, come late, or come without a reason: workers poll too. So it may be rare. PostgreSQL commits notifying
transactions one after the other, and one notification per job would cost more than the job.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from sqlalchemy import Connection

from queue_db.dialects import Dialect
from queue_db.store.schema import Tables

#: Seconds between two notifications of one queue through the database. A worker that was just woken polls more often than this.
EVERY = 0.02

#: Begins the notification of a cancelled job, before its id. No queue name contains this character.
CANCELLED = "\x18"

# The length of a notification with the highest id. Any client may send any text, and Python refuses to parse thousands of digits.
_LONGEST = len(CANCELLED) + len(str(2**63))

Listener = Callable[[str], None]
"""Called with the name of the queue, or with the text of a cancelled job, from any thread; must return at once."""


def cancelled_in(received: Iterable[str]) -> set[int]:
    """The ids of the cancelled jobs among received notifications; other texts are skipped."""
    return {
        int(text[len(CANCELLED) :])
        for text in received
        if text.startswith(CANCELLED) and len(text) <= _LONGEST and text[len(CANCELLED) :].isdecimal()
    }


# Most names whose last notification is remembered. When they are forgotten each is notified once more than needed.
_MOST = 10_000


class Notifications:
    """Notifies the workers of one set of tables, from one process."""

    #: Seconds between two notifications of one name through the database.
    every = EVERY

    def __init__(self, dialect: Dialect, tables: Tables, clock: Callable[[], float] = time.monotonic) -> None:
        self._dialect = dialect
        self._tables = tables
        self._clock = clock
        self._notified_at: dict[str, float] = {}
        self._listeners: tuple[Listener, ...] = ()
        #: For tests: called with the connection of a caller and the queue when jobs are added in the caller's transaction.
        self.joining: Callable[[Connection, str], None] | None = None

    def due(self, name: str) -> bool:
        """Whether the caller must notify now: the database can, and the last notification is at least ``every`` seconds old."""
        if not self._dialect.notifies:
            return False
        now = self._clock()
        if now - self._notified_at.get(name, -self.every) < self.every:
            return False
        if len(self._notified_at) >= _MOST:
            self._notified_at.clear()
        self._notified_at[name] = now
        return True

    def unsent(self, name: str) -> None:
        """What was due was not sent, so it is due again."""
        self._notified_at.pop(name, None)

    def wake(self, *names: str) -> None:
        """After the commit: call each listener of this process with each of ``names``.

        :raises Exception: the first exception of a listener; it is raised after all listeners were called.
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
        """The database's channel for these notifications. If two names are cut to the same one, workers only wake too often."""
        return f"queue_db.{self._tables.jobs.fullname}"[:63]

    def add(self, listener: Listener) -> None:
        """Call ``listener`` from now on."""
        self._listeners = (*self._listeners, listener)

    def remove(self, listener: Listener) -> None:
        """Stop calling ``listener``."""
        self._listeners = tuple(one for one in self._listeners if one != listener)
