"""Enqueue jobs into one queue, one or many, in a transaction of our own or the caller's.

Single jobs of several callers may share an insert: jobs that arrive while enough inserts are under way share the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from enum import Enum
from functools import cached_property, partial
from itertools import chain, islice
from typing import TYPE_CHECKING, TypeVar, cast

from sqlalchemy import Connection

from queue_db.concurrency.batching import Batcher
from queue_db.core import Core
from queue_db.database.transaction import OwnTransaction, Run
from queue_db.dialects.transactions import savepoint
from queue_db.errors import DuplicateJobError, QueueDBError, StorageError, TransientStorageError
from queue_db.model import NewJob
from queue_db.store import Transaction, enqueue
from queue_db.store.enqueue import Added, OnDuplicate
from queue_db.verbs.blocks import Block, Blocks, Chunks, from_iterator, from_memory
from queue_db.verbs.new_jobs import CHUNK, due_at_once, policy_for

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

_Answer = TypeVar("_Answer")

# An insert of one job, and a shared insert of the jobs of several callers.
_ALONE = Run("enqueue", lazy=True)
_TOGETHER = Run("enqueue", attempts=1)

# Inserts of the jobs of an iterable. `_ONCE`: of an iterator with several chunks, which cannot be read again.
_MANY = Run("enqueue_many")
_MANY_ONCE = Run("enqueue_many", attempts=1)

# Most simultaneous inserts of single jobs into one queue. With one, a few callers already wait for each other's commits. With four,
# the inserts are smaller, and 64 threads enqueue a fifth less. A database without a server has one writer at a time anyway.
_INSERTS = 2

# Most characters of payload and headers of a job that shares an insert. A larger job would delay the other callers.
_SHARED = 1 << 16


class _Alone(Enum):
    """The shared insert did not happen: the caller inserts its job alone."""

    ALONE = 1


@dataclass(frozen=True, slots=True)
class _Interrupted:
    """The shared insert did not happen: the exception ``by`` interrupted the caller that ran it."""

    by: BaseException


_Outcome = int | _Alone | _Interrupted | None


class Enqueue:
    """Adds jobs to one queue. Safe to share between threads."""

    def __init__(self, core: Core, queue: str) -> None:
        self.core = core
        self.queue = queue

    @cached_property
    def _batcher(self) -> Batcher[NewJob, _Outcome]:
        # Created at first use: most Queue objects never enqueue. Two threads may create one each, which does no harm.
        at_once = _INSERTS if self.core.store.dialect.served else 1
        return Batcher(self._together, callers=self.core.database.callers(), size=_size, at_once=at_once)

    def one(self, job: NewJob, on_duplicate: str, using: Connection | Session | None) -> int | None:
        """Add a job; return its id, or None if the job was skipped.

        :raises ArgumentError: ``on_duplicate`` is no known policy, or the policy needs a unique key that the job does not have.
        """
        policy = OnDuplicate.RAISE if on_duplicate == "raise" else policy_for(job, on_duplicate)
        # A shared insert must not take long, and must not wait for other transactions: a caller's own transaction may have locked a
        # key or a group, and the same caller may wait for the shared insert. On an application's engine no job shares an insert:
        # the engine's listeners may set a value of the current thread for its transaction, such as a tenant.
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

        If the transaction fails, each caller inserts its job alone, with all its attempts, and gets its own error. Only an unknown
        outcome is raised for all callers. The first job is the one of the caller that runs this.
        """
        # Each caller wakes the workers itself: that may wait for another caller, and its errors are not errors of the insert.
        if len(jobs) == 1:
            return self.core.commit(_ALONE, enqueue.insert_jobs, jobs, OnDuplicate.RAISE, self.queue)[0]
        inserted: list[OwnTransaction] = []

        def insert(tx: Transaction) -> list[int | None]:
            ids = enqueue.insert_jobs(tx, jobs, OnDuplicate.RAISE, self.queue)
            inserted.append(cast("OwnTransaction", tx))
            return ids

        try:
            return self.core.commit(_TOGETHER, insert)[0]
        except (KeyboardInterrupt, SystemExit) as error:
            if inserted:
                raise
            # Interrupted before the COMMIT: the other callers insert their jobs alone.
            return [_Interrupted(error), *[_Alone.ALONE] * (len(jobs) - 1)]
        except Exception as error:
            if isinstance(error, StorageError) and error.outcome_unknown:
                raise
            if not inserted or (isinstance(error, StorageError) and not inserted[0].committed):
                return [_Alone.ALONE] * len(jobs)
            if isinstance(error, QueueDBError):
                raise TransientStorageError(
                    f"{error}: a signal handler raised this, so it is unknown whether the enqueue took effect", outcome_unknown=True
                ) from error
            raise

    def _alone(self, job: NewJob, on_duplicate: OnDuplicate, using: Connection | Session | None = None) -> int | None:
        def insert(tx: Transaction) -> list[int | None]:
            ids = enqueue.insert_jobs(tx, [job], on_duplicate, self.queue)
            tx.after_commit(partial(self.core.marks[self.queue].add, job.priority))
            return ids

        # A savepoint is needed only for a job with `unique_for`: the reservation of its key could outlive the refused job.
        return self.run(_ALONE, insert, using, atomic=bool(job.unique_for), listed=False)[0]

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

        :param read: returns the chunks of jobs, from the first.
        :param ids: whether the caller asks for the ids of the jobs.
        :param number: how many jobs there are, if they are in memory and can be read again; None: they come from an iterator.
        """
        self.core.ready()  # before the iterable is read: it may be readable only once
        due = False

        def watched() -> Chunks:
            nonlocal due
            for chunk in read():
                due = due or any(map(due_at_once, chunk))
                yield chunk

        dialect = self.core.store.dialect
        blocks: Blocks | None
        if number is not None and number > CHUNK and dialect.inserts.loaded_from_memory:
            blocks = from_memory(watched, number, dialect.inserts.loaded_from_memory)
        else:
            blocks = from_iterator(watched(), dialect.inserts.loaded_at_once)
        if blocks is None:
            return Added(0, [])

        def enqueue_many(tx: Transaction) -> Added:
            added = self._load(tx, blocks, on_duplicate, ids=ids)
            if due:
                tx.wake(self.queue)
            return added

        again = read if number is not None else blocks.chunks if blocks.repeatable else None
        return self.run(_MANY if blocks.repeatable else _MANY_ONCE, enqueue_many, using, read=again)

    def _load(self, tx: Transaction, blocks: Blocks, on_duplicate: OnDuplicate, *, ids: bool) -> Added:
        """Insert the jobs of all blocks."""
        begun = 0

        def add(block: Block) -> Added:
            nonlocal begun
            before, begun = begun, begun + block.number
            more = blocks.several or block.number > CHUNK
            with enqueue.after(before):
                # Not on a caller's connection: its application may observe the statements, or have changed the table.
                if tx.own:
                    return enqueue.load_jobs(tx, *block, on_duplicate, ids=ids, more=more)
                return enqueue.insert_chunks(tx, block.chunks, on_duplicate, ids=ids, more=more)

        # A second thread sends the blocks, but not on a caller's connection, which another thread may use. And not on an
        # application's engine, whose listeners may need the caller's thread.
        own = tx.own and self.core.database.made_here and not self.core.database.asynchronous
        aside = own and tx.dialect.served and blocks.several and not blocks.lazy
        added = list(_overlapped(blocks.read(), add) if aside else map(add, blocks.read()))
        return Added(sum(part.number for part in added), [job_id for part in added for job_id in part.ids])

    def run(
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

        :param atomic: whether the caller's transaction needs a savepoint for this.
        :param listed: whether the caller gave a list of jobs: then errors name the position of a job in the list.
        :param read: returns the chunks of the list, from the first; None: the list cannot be read again.
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
                        # The jobs that this call had inserted are rolled back and hold no key.
                        there = enqueue.holder(tx, self.queue, error.unique_key, current=True)
                    raise _refused(error, there, listed=listed, read=read) from None
        try:
            answer, tx = self.core.commit(how, insert)
        except DuplicateJobError as error:
            there = error.existing_id
            if listed:
                there = self.core.read("enqueue.holder", enqueue.holder, self.queue, error.unique_key)
            raise _refused(error, there, listed=listed, read=read) from None
        tx.follow()
        return answer


def _refused(error: DuplicateJobError, there: int | None, *, listed: bool, read: Callable[[], Chunks] | None) -> DuplicateJobError:
    """The error as the caller sees it.

    :param there: the id of the job that has the key now; None: look for the key in the list.
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
    """Add the blocks in a second thread: while the server inserts one block, this thread checks and encodes the next."""
    with ThreadPoolExecutor(1) as thread:
        running = None
        for block in blocks:
            if running is not None:
                yield running.result()
            running = thread.submit(add, block)
        if running is not None:
            yield running.result()
