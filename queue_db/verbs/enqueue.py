"""Enqueue jobs into one queue: one, many, or a batch with a callback, in a transaction of our own or the caller's.

Single jobs of several callers may share an insert: those that come while enough inserts are under way go together in the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from enum import Enum
from functools import cached_property, partial
from itertools import chain, islice
from typing import TYPE_CHECKING, TypeVar

from sqlalchemy import Connection

from queue_db.concurrency.batching import Batcher
from queue_db.core import ONCE, Core, Run, name_of
from queue_db.dialects.transactions import savepoint
from queue_db.errors import DuplicateJobError, QueueDBError, StorageError
from queue_db.model import NewJob
from queue_db.store import Store, callbacks, enqueue
from queue_db.store.enqueue import Added, OnDuplicate
from queue_db.verbs.blocks import Block, Blocks, Chunks, from_iterator, from_memory
from queue_db.verbs.new_jobs import CHUNK, due_at_once

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

_Answer = TypeVar("_Answer")

_AGAIN = Run()

# The insert begins a transaction if it needs one.
_ONE = Run(direct=True)

# Inserts of single jobs into one queue at a time. With one, few callers wait for each other's commits; with four, inserts are
# smaller and 64 threads enqueue a fifth less. A database without a server has one writer at a time anyway.
_INSERTS = 2

# Characters of payload and headers of a job that shares an insert: a larger one would make the others wait.
_SHARED = 1 << 16


class _Alone(Enum):
    """The shared insert did not happen: the caller inserts its job alone."""

    ALONE = 1


@dataclass(frozen=True, slots=True)
class _Interrupted:
    """The shared insert did not happen: its caller was interrupted by this."""

    by: BaseException


_Outcome = int | _Alone | _Interrupted | None


class Enqueue:
    """Adds jobs to one queue. Safe to share between threads."""

    def __init__(self, core: Core, queue: str) -> None:
        self.core = core
        self.queue = queue

    @cached_property
    def _batcher(self) -> Batcher[NewJob, _Outcome]:
        # Made when it is used: most queues that are named only give jobs. Two threads may make two, which does no harm.
        at_once = _INSERTS if self.core.store.dialect.served else 1
        return Batcher(self._together, callers=self.core.database.callers(), size=_size, at_once=at_once)

    def one(self, job: NewJob, on_duplicate: OnDuplicate, using: Connection | Session | None) -> int | None:
        """Add a job; return its id, None where it was skipped."""
        # The listeners of an application's engine may set something of the current thread for its transaction, such as a tenant.
        if using is not None or not self.core.database.made_here or not _shares(job):
            return self._alone(job, on_duplicate, using)
        outcome = self._batcher.submit(job)
        if isinstance(outcome, _Interrupted):
            raise outcome.by
        if isinstance(outcome, _Alone):
            return self._alone(job, on_duplicate)
        if due_at_once(job):
            self.core.notifications.wake(self.queue)
        return outcome

    def _together(self, jobs: Sequence[NewJob]) -> Sequence[_Outcome]:
        """Insert the jobs of several callers in one transaction, tried once.

        If it fails, each caller tries alone, for as long as it would have done without the others, and gets its own error. Only an
        unknown outcome goes to all of them. The first is the caller that runs this.
        """
        several = len(jobs) > 1
        insert = self._insert(jobs, OnDuplicate.RAISE)
        inserted = False

        def enqueue_(connection: Connection, store: Store) -> list[int | None]:
            nonlocal inserted
            ids = insert(connection, store)
            inserted = True
            return ids

        try:
            return self.core.run(ONCE if several else _ONE, enqueue_)
        except (KeyboardInterrupt, SystemExit) as error:
            if inserted or not several:
                raise
            # It was before the COMMIT: the others need not know.
            return [_Interrupted(error), *[_Alone.ALONE] * (len(jobs) - 1)]
        except QueueDBError as error:
            if not several or (isinstance(error, StorageError) and error.outcome_unknown):
                raise
            return [_Alone.ALONE] * len(jobs)
        except Exception:  # of a listener on the engine
            if inserted or not several:
                raise
            return [_Alone.ALONE] * len(jobs)

    def _alone(self, job: NewJob, on_duplicate: OnDuplicate, using: Connection | Session | None = None) -> int | None:
        # Only a window can outlive a refused job.
        alone = self._insert([job], on_duplicate)
        return self._run(alone, using, atomic=bool(job.unique_for), how=_ONE, due=due_at_once(job), listed=False)[0]

    def _insert(self, jobs: Sequence[NewJob], on_duplicate: OnDuplicate) -> Callable[[Connection, Store], list[int | None]]:
        due = any(map(due_at_once, jobs))
        plain = all(job.unique_key is None and job.group_key is None for job in jobs)
        notifications = self.core.notifications

        def enqueue_(connection: Connection, store: Store) -> list[int | None]:
            # Several callers share a transaction: until its COMMIT their jobs can be inserted again. One job needs none.
            if not (plain and len(jobs) == 1 and store.dialect.known_alive(connection)):
                store.dialect.begin(connection)
            if due and plain:
                # All of them are inserted, so the insert itself notifies.
                notice = notifications.notice(self.queue)
                try:
                    return enqueue.insert_jobs(connection, store, jobs, on_duplicate, notice=notice)
                except BaseException:
                    notifications.unsent(self.queue)
                    raise
            ids = enqueue.insert_jobs(connection, store, jobs, on_duplicate)
            if due:
                notifications.notify(connection, self.queue)
            return ids

        return enqueue_

    def many(
        self,
        read: Callable[[], Chunks],
        on_duplicate: OnDuplicate,
        using: Connection | Session | None,
        *,
        ids: bool,
        number: int | None = None,
    ) -> Added:
        """Add jobs, all or none.

        :param read: returns the chunks of jobs, from their beginning.
        :param ids: whether the caller asks for them.
        :param number: how many jobs there are, if they are in memory, so that reading waits for nothing and can be repeated.
        """
        self.core.ready()  # before the iterable is read: it may be readable only once
        due = False

        def watched() -> Chunks:
            nonlocal due
            for chunk in read():
                due = due or any(map(due_at_once, chunk))
                yield chunk

        database, dialect = self.core.database, self.core.store.dialect
        blocks: Blocks | None
        if number is not None and number > CHUNK and dialect.loaded_from_memory:
            blocks = from_memory(watched, number, dialect.loaded_from_memory)
        else:
            blocks = from_iterator(watched(), dialect.loaded_at_once)
        if blocks is None:
            return Added(0, [])

        def enqueue_many(connection: Connection, store: Store) -> Added:
            begun = 0

            def add(block: Block) -> Added:
                nonlocal begun
                before, begun = begun, begun + block.number
                more = blocks.several or block.number > CHUNK
                with enqueue.after(before):
                    # The caller's own connection may be observed, or its table be anything.
                    if using is None:
                        return enqueue.load_jobs(connection, store, *block, on_duplicate, ids=ids, more=more)
                    return enqueue.insert_chunks(connection, store, block.chunks, on_duplicate, ids=ids, more=more)

            # Not in the caller's transaction: its connection may be in use by another thread. Nor where listeners want this one.
            own = using is None and database.made_here and not database.asynchronous
            aside = own and store.dialect.served and blocks.several and not blocks.lazy
            added = list(_overlapped(blocks.read(), add) if aside else map(add, blocks.read()))
            if due:
                self.core.notifications.notify(connection, self.queue)
            return Added(sum(part.number for part in added), [job_id for part in added for job_id in part.ids])

        again = read if number is not None else blocks.chunks if blocks.repeatable else None
        added = self._run(enqueue_many, using, how=_AGAIN if blocks.repeatable else ONCE, due=False, read=again)
        if due and using is None:
            self.core.notifications.wake(self.queue)
        return added

    def batch(
        self, chunks: Chunks, then: NewJob, on_duplicate: OnDuplicate, using: Connection | Session | None
    ) -> tuple[int, list[int | None]]:
        """Add jobs, and ``then`` when all of them have left the queue; return the batch's id, and theirs by position."""
        self.core.ready()  # as in :meth:`many`
        first = next(chunks, [])
        second = next(chunks, None)
        several = second is not None

        def enqueue_batch(connection: Connection, store: Store) -> tuple[int, list[int | None]]:
            store.dialect.begin(connection)
            callback = callbacks.make(connection, store, then)
            ids: list[int | None] = []
            for chunk in chain([first], () if second is None else chain([second], chunks)):
                counted = [job._replace(callback_id=callback) for job in chunk]
                with enqueue.after(len(ids)):
                    ids += enqueue.insert_jobs(connection, store, counted, on_duplicate, more=several)
            due = callbacks.expect(connection, store, callback, len(ids) - ids.count(None))
            enqueue.insert_jobs(connection, store, due, on_duplicate)
            self.core.notifications.notify(connection, self.queue)
            return callback, ids

        again = None if several else partial(iter, [first])
        return self._run(enqueue_batch, using, how=ONCE if several else _AGAIN, due=True, read=again)

    def _run(
        self,
        insert: Callable[[Connection, Store], _Answer],
        using: Connection | Session | None,
        *,
        how: Run,
        due: bool,
        atomic: bool = True,
        listed: bool = True,
        read: Callable[[], Chunks] | None = None,
    ) -> _Answer:
        """Run ``insert``, all or nothing, and wake workers if a job is ``due``.

        :param how: :data:`ONCE` if the jobs come from an iterable of several chunks: it is used up and cannot be read again.
        :param atomic: in the caller's transaction a savepoint makes it all or nothing.
        :param listed: whether the jobs are a list of the caller's, whose errors name the place of a job.
        :param read: returns the chunks of the list, from its beginning, if it can be read again.
        """
        if using is not None:
            with self.core.joined(using, name_of(insert)) as connection:
                if self.core.notifications.joining is not None:
                    self.core.notifications.joining(connection, self.queue)
                try:
                    with savepoint(connection) if atomic else nullcontext():
                        return insert(connection, self.core.store)
                except DuplicateJobError as error:
                    there = error.existing_id
                    if listed:
                        # What this call had inserted is undone: it holds no key.
                        there = enqueue.holder(connection, self.core.store, self.queue, error.unique_key, current=True)
                    raise _refused(error, there, listed=listed, read=read) from None
        try:
            answer = self.core.run(how, insert)
        except DuplicateJobError as error:
            there = error.existing_id
            if listed:
                there = self.core.read(enqueue.holder, self.queue, error.unique_key)
            raise _refused(error, there, listed=listed, read=read) from None
        if due:
            self.core.notifications.wake(self.queue)
        return answer


def _refused(error: DuplicateJobError, there: int | None, *, listed: bool, read: Callable[[], Chunks] | None) -> DuplicateJobError:
    """The error as the caller sees it.

    :param there: the job that has the key now; None: it is looked for in the list.
    """
    key, position = error.unique_key, error.position if listed else None
    other = None
    if there is None and position is not None and read is not None:
        before = islice(chain.from_iterable(read()), position)
        other = next((place for place, job in enumerate(before) if job.unique_key == key), None)
    return DuplicateJobError(unique_key=key, existing_id=there, position=position, other=other)


def _shares(job: NewJob) -> bool:
    """Whether a job may share an insert: its own must not wait for other transactions, nor take long.

    A key or a group may be locked by another caller's own transaction, and that caller may be among those that would share.
    """
    return job.unique_key is None and job.group_key is None and _size(job)[1] <= _SHARED


def _size(job: NewJob) -> tuple[int, int]:
    """Rows and characters of a job."""
    return 1, len(job.payload) + len(job.headers or "")


def _overlapped(blocks: Iterable[Block], add: Callable[[Block], Added]) -> Iterator[Added]:
    """While the server inserts one block, the next is checked and encoded here."""
    with ThreadPoolExecutor(1) as thread:
        running = None
        for block in blocks:
            if running is not None:
                yield running.result()
            running = thread.submit(add, block)
        if running is not None:
            yield running.result()
