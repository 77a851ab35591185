"""The storage: the queue of Huey is a queue of jobs, the rest is in tables of its own."""

from __future__ import annotations

import logging
import random
import time
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any, TypeVar

from huey.api import Huey
from huey.constants import EmptyData
from huey.exceptions import ConfigurationError as HueyConfigurationError
from huey.storage import BaseStorage
from sqlalchemy import URL, Connection
from sqlalchemy.exc import IntegrityError

from queue_db import Job, QueueDB, StorageError, TransientStorageError
from queue_db.contrib.huey.tables import Key, Stored, Tables
from queue_db.publishing import current_transaction

log = logging.getLogger("queue_db.huey")

_T = TypeVar("_T")

#: The kind of the jobs: what a task is, only Huey can read.
KIND = "huey"

#: Most tasks that ``enqueued_items`` reads.
_LISTED = 10_000

#: Tries of a change that another process makes at the same moment.
_TRIES = 10


class QueueStorage(BaseStorage):
    """Tasks are jobs of the queue ``name``. Huey takes a task out before it runs it: at most once.

    :param name: of the Huey, and of its queue.
    :param database: a database URL, or a :class:`~queue_db.QueueDB`, which stays open.
    :param create_tables: create the tables, also those of the queue; without it, they must be there.
    :param table: the name of the jobs table, if a URL is given.
    :param schema: the schema of the tables, if a URL is given.
    :param prefix: of the tables for the schedule, results and counters.
    :raises ConfigurationError: there is no ``database``, or a table is missing.
    :raises StorageError: the database does not answer.
    """

    def __init__(
        self,
        name: str = "huey",
        database: str | URL | QueueDB | None = None,
        *,
        create_tables: bool = True,
        table: str = "jobs",
        schema: str | None = None,
        prefix: str = "huey",
    ) -> None:
        super().__init__(name)
        if database is None:
            raise HueyConfigurationError("QueueStorage requires database=, a URL or a QueueDB.")
        self._opened_here = not isinstance(database, QueueDB)
        self.db = database if isinstance(database, QueueDB) else QueueDB(database, table=table, schema=schema)
        self._queue = self.db.queue(name)
        self._tables = Tables(prefix, schema, name)
        try:
            self._prepare(create_tables)
        except BaseException:
            self.close()
            raise

    def _prepare(self, create_tables: bool) -> None:
        if create_tables:
            self.db.migrate()
        if missing := self._in(self._tables.missing):
            if not create_tables:
                raise HueyConfigurationError(f"These tables are missing: {', '.join(missing)}. Use create_tables=True once.")
            try:
                self._in(self._tables.create)
            except StorageError:  # another process may have created them at the same moment
                if self._in(self._tables.missing):
                    raise

    def close(self) -> None:
        """Close the database, unless it is the caller's."""
        if self._opened_here:
            self.db.close()

    def _in(self, change: Callable[[Connection], _T]) -> _T:
        """Run a change in a transaction; again, if another process stored the same key first, or the database asks for it."""
        for tries in range(1, _TRIES + 1):
            try:
                with self._queue.transaction() as connection:
                    return change(connection)
            except StorageError as error:
                if not (_is_taken(error) or _may_be_repeated(error)) or tries == _TRIES:
                    raise
                time.sleep(min(0.5, 0.01 * 2**tries) * random.random())
        raise AssertionError  # the last try has returned or raised

    def _now(self) -> int:
        """Milliseconds since 1970, by the clock of the database."""
        return int(1000 * self.db.now().timestamp())

    def _fresh(self, found: Stored | None) -> Any:
        """The value, unless there is none or it has expired."""
        if found is None or (found.expires is not None and found.expires <= self._now()):
            return EmptyData
        return found.value

    # --- the queue ----------------------------------------------------------------------------------------------------

    def enqueue(self, data: bytes, priority: float | None = None) -> None:
        """Add a task; higher priorities come first."""
        self._queue.enqueue(KIND, b64encode(data).decode(), priority=-round(priority or 0), using=current_transaction())

    def dequeue(self) -> bytes | None:
        """Take the next task out of the queue, for ever."""
        while jobs := self._queue.pop():
            for job in jobs:
                if _is_task(job):
                    return b64decode(job.payload)
                log.error("job %d (%s) in %r is no task of Huey, and was dropped", job.id, job.kind, job.queue)
        return None

    def queue_size(self) -> int:
        """How many tasks are due."""
        return self._queue.stats().available

    def enqueued_items(self, limit: int | None = None) -> list[bytes]:
        """The next tasks, at most 10,000."""
        return [b64decode(job.payload) for job in self._queue.peek(min(limit or _LISTED, _LISTED)) if _is_task(job)]

    def flush_queue(self) -> None:
        """Delete all tasks."""
        self._queue.purge()

    # --- the schedule -------------------------------------------------------------------------------------------------

    def add_to_schedule(self, data: bytes, ts: datetime) -> None:
        """Add a task for later."""
        self._in(lambda connection: self._tables.schedule(connection, data, ts))

    def read_schedule(self, ts: datetime) -> list[bytes]:
        """Take out what is due."""
        return self._in(lambda connection: self._tables.take_due(connection, ts))

    def schedule_size(self) -> int:
        """How many tasks are scheduled."""
        return self._in(self._tables.scheduled_size)

    def scheduled_items(self, limit: int | None = None) -> list[bytes]:
        """The scheduled tasks, soonest first."""
        return self._in(lambda connection: self._tables.scheduled(connection, limit))

    def flush_schedule(self) -> None:
        """Delete all scheduled tasks."""
        self._in(self._tables.flush_scheduled)

    # --- results and other values -------------------------------------------------------------------------------------

    def put_data(self, key: Key, value: bytes, is_result: bool = False) -> None:
        """Store a value."""
        self._in(lambda connection: self._tables.put(connection, key, value))

    def peek_data(self, key: Key) -> Any:
        """The value, or ``EmptyData``."""
        return self._fresh(self._in(lambda connection: self._tables.get(connection, key)))

    def peek_many(self, keys: Iterable[Key]) -> dict[Key, bytes]:
        """The values of those keys that have one."""
        found = self._in(lambda connection: self._tables.get_many(connection, keys))
        return {key: value for key, one in found.items() if (value := self._fresh(one)) is not EmptyData}

    def pop_data(self, key: Key) -> Any:
        """Take the value out, or ``EmptyData``."""
        return self._fresh(self._in(lambda connection: self._tables.pop(connection, key)))

    def has_data_for_key(self, key: Key) -> bool:
        """Whether the key has a value."""
        return bool(self.peek_many([key]))

    def put_if_empty(self, key: Key, value: bytes, ttl: float | None = None) -> bool:
        """Store the first value of a key; of several processes one succeeds.

        :param ttl: seconds until it expires, by the clock of the database.
        """
        now = self._now()
        expires = None if ttl is None else now + int(1000 * ttl)
        return self._in(lambda connection: self._tables.add(connection, key, value, expires, now))

    def result_store_size(self) -> int:
        """How many values there are."""
        now = self._now()
        return self._in(lambda connection: self._tables.size(connection, now))

    def result_items(self) -> dict[str, bytes]:
        """All values by key."""
        now = self._now()
        return self._in(lambda connection: self._tables.items(connection, now))

    def flush_results(self) -> None:
        """Delete all values."""
        self._in(self._tables.flush_values)

    # --- counters -----------------------------------------------------------------------------------------------------

    def incr(self, key: Key, amount: int = 1) -> int:
        """Add to a counter; return its new value."""
        return self._in(lambda connection: self._tables.add_to_counter(connection, key, amount))

    def delete_counter(self, key: Key) -> None:
        """Delete a counter, if there is one."""
        self._in(lambda connection: self._tables.delete_counter(connection, key))

    def flush_counters(self) -> None:
        """Delete all counters."""
        self._in(self._tables.flush_counters)


class QueueHuey(Huey):
    """A Huey with a :class:`QueueStorage`: ``QueueHuey("shop", database="postgresql://…")``."""

    storage_class = QueueStorage


def _is_taken(error: StorageError) -> bool:
    return isinstance(error.__cause__, IntegrityError)


def _may_be_repeated(error: StorageError) -> bool:
    return isinstance(error, TransientStorageError) and not error.outcome_unknown


def _is_task(job: Job) -> bool:
    return job.kind == KIND and isinstance(job.payload, str)
