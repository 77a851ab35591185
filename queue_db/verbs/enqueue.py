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
from queue_db.core import Core
from queue_db.database.transaction import Run
from queue_db.dialects.transactions import savepoint
from queue_db.errors import DuplicateJobError, QueueDBError, StorageError
from queue_db.model import NewJob
from queue_db.store import Transaction, batches, enqueue
from queue_db.store.enqueue import Added, OnDuplicate
from queue_db.verbs.blocks import Block, Blocks, Chunks, from_iterator, from_memory
from queue_db.verbs.new_jobs import CHUNK, due_at_once, policy_for

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

_Answer = TypeVar("_Answer")

# An insert of one job, and a shared insert of the jobs of several callers.
_ALONE = Run("enqueue", lazy=True)
_TOGETHER = Run("enqueue", attempts=1)

# Jobs of an iterable, and one of several chunks: it is used up and cannot be read again.
_MANY = Run("enqueue_many")
_MANY_ONCE = Run("enqueue_many", attempts=1)
_BATCH = Run("enqueue_batch")
_BATCH_ONCE = Run("enqueue_batch", attempts=1)

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

    def one(self, job: NewJob, on_duplicate: str, using: Connection | Session | None) -> int | None:
        """Add a job; return its id, None where it was skipped.

        :raises ArgumentError: there is no policy ``on_duplicate``, or it needs a unique key that the job does not have.
        """
        policy = OnDuplicate.RAISE if on_duplicate == "raise" else policy_for(job, on_duplicate)
        # A shared insert must not wait for other transactions, nor take long: a caller's own transaction may have locked a key or a
        # group, and that caller may be among those that would share. And the listeners of an application's engine may set something
        # of the current thread for its transaction, such as a tenant.
        keyed = job.unique_key is not None or job.group_key is not None
        if keyed or using is not None or not self.core.database.made_here or _size(job)[1] > _SHARED:
            return self._alone(job, policy, using)
        outcome = self._batcher.submit(job)
        if isinstance(outcome, _Interrupted):
            raise outcome.by
        if isinstance(outcome, _Alone):
            return self._alone(job, policy)
        self.core.marks[self.queue].add(job.priority)
        if not (job.after or job.not_before):
            self.core.notifications.wake(self.queue)
        return outcome

    def _together(self, jobs: Sequence[NewJob]) -> Sequence[_Outcome]:
        """Insert the jobs of several callers in one transaction, tried once.

        If it fails, each caller tries alone, for as long as it would have done without the others, and gets its own error. Only an
        unknown outcome goes to all of them. The first is the caller that runs this.
        """
        # What follows is each caller's: it may wait for another caller, and its errors are none of the insert.
        if len(jobs) == 1:
            return self.core.commit(_ALONE, enqueue.insert_jobs, jobs, OnDuplicate.RAISE, self.queue)[0]
        inserted = False

        def insert(tx: Transaction) -> list[int | None]:
            nonlocal inserted
            ids = enqueue.insert_jobs(tx, jobs, OnDuplicate.RAISE, self.queue)
            inserted = True
            return ids

        try:
            return self.core.commit(_TOGETHER, insert)[0]
        except (KeyboardInterrupt, SystemExit) as error:
            if inserted:
                raise
            # It was before the COMMIT: the others need not know.
            return [_Interrupted(error), *[_Alone.ALONE] * (len(jobs) - 1)]
        except QueueDBError as error:
            if isinstance(error, StorageError) and error.outcome_unknown:
                raise
            return [_Alone.ALONE] * len(jobs)
        except Exception:  # of a listener on the engine
            if inserted:
                raise
            return [_Alone.ALONE] * len(jobs)

    def _alone(self, job: NewJob, on_duplicate: OnDuplicate, using: Connection | Session | None = None) -> int | None:
        def insert(tx: Transaction) -> list[int | None]:
            ids = enqueue.insert_jobs(tx, [job], on_duplicate, self.queue)
            tx.after_commit(partial(self.core.marks[self.queue].add, job.priority))
            return ids

        # Only a window can outlive a refused job.
        return self._run(_ALONE, insert, using, atomic=bool(job.unique_for), listed=False)[0]

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

        def enqueue_many(tx: Transaction) -> Added:
            begun = 0

            def add(block: Block) -> Added:
                nonlocal begun
                before, begun = begun, begun + block.number
                more = blocks.several or block.number > CHUNK
                with enqueue.after(before):
                    # The caller's own connection may be observed, or its table be anything.
                    if using is None:
                        return enqueue.load_jobs(tx, *block, on_duplicate, ids=ids, more=more)
                    return enqueue.insert_chunks(tx, block.chunks, on_duplicate, ids=ids, more=more)

            # Not in the caller's transaction: its connection may be in use by another thread. Nor where listeners want this one.
            own = using is None and database.made_here and not database.asynchronous
            aside = own and tx.dialect.served and blocks.several and not blocks.lazy
            added = list(_overlapped(blocks.read(), add) if aside else map(add, blocks.read()))
            if due:
                tx.wake(self.queue)
            return Added(sum(part.number for part in added), [job_id for part in added for job_id in part.ids])

        again = read if number is not None else blocks.chunks if blocks.repeatable else None
        return self._run(_MANY if blocks.repeatable else _MANY_ONCE, enqueue_many, using, read=again)

    def batch(
        self, chunks: Chunks, then: NewJob, on_duplicate: OnDuplicate, using: Connection | Session | None
    ) -> tuple[int, list[int | None]]:
        """Add jobs, and the job ``then``, which waits until all of them have left the queue.

        Returns the id of the batch, and the ids of the jobs by position.
        """
        self.core.ready()  # as in :meth:`many`
        first = next(chunks, [])
        second = next(chunks, None)
        several = second is not None

        def enqueue_batch(tx: Transaction) -> tuple[int, list[int | None]]:
            tx.begin()
            batch = batches.make(tx, then)
            ids: list[int | None] = []
            for chunk in chain([first], () if second is None else chain([second], chunks)):
                counted = [job._replace(callback_id=batch) for job in chunk]
                with enqueue.after(len(ids)):
                    ids += enqueue.insert_jobs(tx, counted, on_duplicate, more=several)
            due = batches.expect(tx, batch, len(ids) - ids.count(None))
            enqueue.insert_jobs(tx, due, on_duplicate)
            tx.wake(self.queue)
            return batch, ids

        again = None if several else partial(iter, [first])
        return self._run(_BATCH_ONCE if several else _BATCH, enqueue_batch, using, read=again)

    def _run(
        self,
        how: Run,
        insert: Callable[[Transaction], _Answer],
        using: Connection | Session | None,
        *,
        atomic: bool = True,
        listed: bool = True,
        read: Callable[[], Chunks] | None = None,
    ) -> _Answer:
        """Run ``insert``, all or nothing.

        :param atomic: in the caller's transaction a savepoint makes it all or nothing.
        :param listed: whether the jobs are a list of the caller's, whose errors name the place of a job.
        :param read: returns the chunks of the list, from its beginning, if it can be read again.
        """
        if using is not None:
            with self.core.joined(using, how.name) as tx:
                if self.core.notifications.joining is not None:
                    self.core.notifications.joining(tx.connection, self.queue)
                try:
                    with savepoint(tx.connection) if atomic else nullcontext():
                        return insert(tx)
                except DuplicateJobError as error:
                    there = error.existing_id
                    if listed:
                        # What this call had inserted is undone: it holds no key.
                        there = enqueue.holder(tx, self.queue, error.unique_key, current=True)
                    raise _refused(error, there, listed=listed, read=read) from None
        try:
            answer, tx = self.core.commit(how, insert)
        except DuplicateJobError as error:
            there = error.existing_id
            if listed:
                there = self.core.read(enqueue.holder, self.queue, error.unique_key)
            raise _refused(error, there, listed=listed, read=read) from None
        tx.follow()
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
