"""How jobs get into one queue: one, many, or a batch with a callback, in a transaction of our own or the caller's."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, TypeVar

from sqlalchemy import Connection

from queue_db.database.database import ATTEMPTS, Database
from queue_db.dialects.transactions import savepoint
from queue_db.model import NewJob
from queue_db.notifications import Hints
from queue_db.store import Store, callbacks, enqueue
from queue_db.store.enqueue import OnDuplicate
from queue_db.verbs.new_jobs import due_at_once

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

Chunks = Iterator[list[NewJob]]

_Answer = TypeVar("_Answer")
_Add = Callable[[Connection, list[NewJob]], list[int | None]]


@dataclass(frozen=True, slots=True)
class Enqueuing:
    """The way into the queue ``name``. Safe to share between threads."""

    database: Database
    store: Store
    hints: Hints
    name: str

    def one(self, job: NewJob, on_duplicate: OnDuplicate, using: Connection | Session | None) -> int | None:
        """Add a job; its id, None where it was skipped."""
        due = due_at_once(job)

        def insert(connection: Connection) -> int | None:
            job_id = enqueue.insert_jobs(connection, self.store, [job], on_duplicate)[0]
            if due:
                self.hints.tell(connection, self.name)
            return job_id

        if using is not None:
            with self.database.joined(using, "enqueue") as connection:
                if not job.unique_for:
                    return insert(connection)
                with savepoint(connection):  # a refused one must not leave its key taken
                    return insert(connection)
        job_id = self.database.run(insert, name="enqueue")
        if due:
            self.hints.ring(self.name)
        return job_id

    def many(self, chunks: Chunks, on_duplicate: OnDuplicate, using: Connection | Session | None) -> list[int | None]:
        """Add jobs, all or none; their ids by position."""
        first = next(chunks, [])
        if not first:
            return []
        second = next(chunks, None)
        due = any(map(due_at_once, first))
        several = second is not None

        def add(connection: Connection, chunk: list[NewJob]) -> list[int | None]:
            return enqueue.insert_jobs(connection, self.store, chunk, on_duplicate, more=several)

        def insert(connection: Connection) -> list[int | None]:
            every = chain([first], () if second is None else chain([second], chunks))
            # Not in a transaction of the caller's, who may be doing anything with its connection.
            aside = several and using is None and self.store.dialect.served and not self.database.asynchronous
            ids = _meanwhile(connection, every, add) if aside else [job_id for chunk in every for job_id in add(connection, chunk)]
            if due:
                self.hints.tell(connection, self.name)
            return ids

        return self._run(insert, "enqueue_many", using, again=not several, due=due)

    def batch(
        self, chunks: Chunks, then: NewJob, on_duplicate: OnDuplicate, using: Connection | Session | None
    ) -> tuple[int, list[int | None]]:
        """Add jobs and ``then``, which is enqueued when all of them have left; the batch's id, and theirs by position."""
        first = next(chunks, [])
        second = next(chunks, None)
        several = second is not None

        def insert(connection: Connection) -> tuple[int, list[int | None]]:
            self.store.dialect.begin(connection)
            callback = callbacks.make(connection, self.store, then)
            ids: list[int | None] = []
            for chunk in chain([first], () if second is None else chain([second], chunks)):
                counted = [job._replace(callback_id=callback) for job in chunk]
                ids += enqueue.insert_jobs(connection, self.store, counted, on_duplicate, more=several)
            due = callbacks.expect(connection, self.store, callback, len(ids) - ids.count(None))
            enqueue.insert_jobs(connection, self.store, due, on_duplicate)
            self.hints.tell(connection, self.name)
            return callback, ids

        return self._run(insert, "enqueue_batch", using, again=not several, due=True)

    def _run(
        self, insert: Callable[[Connection], _Answer], name: str, using: Connection | Session | None, *, again: bool, due: bool
    ) -> _Answer:
        """Run ``insert``, all or nothing; ``again``: it can be run again if the database asks for that."""
        if using is not None:
            # In the caller's transaction a savepoint makes it all or none.
            with self.database.joined(using, name) as connection, savepoint(connection):
                return insert(connection)
        # A second chunk means that the iterable is being used up: it cannot be run again.
        answer = self.database.run(insert, name=name, attempts=ATTEMPTS if again else 1)
        if due:
            self.hints.ring(self.name)
        return answer


def _meanwhile(connection: Connection, chunks: Iterable[list[NewJob]], add: _Add) -> list[int | None]:
    """While the server inserts one chunk, the next is checked and encoded here."""
    ids: list[int | None] = []
    with ThreadPoolExecutor(1) as aside:
        running = None
        for chunk in chunks:
            if running is not None:
                ids += running.result()
            running = aside.submit(add, connection, chunk)
        if running is not None:
            ids += running.result()
    return ids
