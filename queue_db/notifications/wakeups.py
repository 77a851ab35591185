"""Notifications that wake waiting workers: of new jobs in a queue, and of a running job that was cancelled. And those that wake
waiting readers: of new messages of a feed.

Those of this process are called directly, others are notified through the database.

A notification may get lost, come late, or come without a reason: workers poll too. So it may be rare. PostgreSQL commits notifying
transactions one after the other, and one notification per job would cost more than the job.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from sqlalchemy import Connection, Table

from queue_db.store import Store

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


class Notifications:
    """Notifies the workers, or the readers of feeds, of one set of tables, from one process.

    :param table: of the jobs, or of the feeds: names the channel.
    """

    def __init__(self, store: Store, table: Table | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._table = store.tables.jobs if table is None else table
        self._clock = clock
        self._notified_at: dict[str, float] = {}
        self._listeners: tuple[Listener, ...] = ()

    def notify(self, connection: Connection, queue: str) -> None:
        """In the transaction that adds jobs or messages: its commit notifies those who wait, if the database can do that."""
        if not self._store.dialect.notifies:
            return
        now = self._clock()
        if now - self._notified_at.get(queue, -EVERY) >= EVERY:
            self._notified_at[queue] = now
            self._store.dialect.notify(connection, self.channel, queue)

    def notify_surely(self, connection: Connection, name: str) -> None:
        """As :meth:`notify`, whenever the last one was: for a caller's transaction, which may commit long after the next one."""
        if self._store.dialect.notifies:
            self._store.dialect.notify(connection, self.channel, name)

    def notify_cancelled(self, connection: Connection, job_id: int) -> None:
        """In the transaction that cancels a running job: its commit notifies the worker that runs it."""
        if self._store.dialect.notifies:
            self._store.dialect.notify(connection, self.channel, f"{CANCELLED}{job_id}")

    def wake(self, queue: str) -> None:
        """After the commit: call the listeners of this process."""
        for listener in self._listeners:
            listener(queue)

    def wake_cancelled(self, job_id: int) -> None:
        """After the commit: call the listeners of this process."""
        self.wake(f"{CANCELLED}{job_id}")

    @property
    def channel(self) -> str:
        """The database's channel for these notifications. If two names are cut to the same one, workers only wake too often."""
        return f"queue_db.{self._table.fullname}"[:63]

    def add(self, listener: Listener) -> None:
        """Call ``listener`` from now on."""
        self._listeners = (*self._listeners, listener)

    def remove(self, listener: Listener) -> None:
        """Call it no more."""
        self._listeners = tuple(one for one in self._listeners if one != listener)
