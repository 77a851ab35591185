"""Adds one or many jobs to a queue, in a transaction of our own or of the caller.

Single jobs of several callers may share an insert: jobs that arrive while enough inserts are under way go together in the
next insert.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from enum import Enum
from functools import cached_property, partial
from itertools import chain, islice
from typing import TypeVar, cast

from queue_db.concurrency.batching import Batcher
from queue_db.core import Core
from queue_db.database.transaction import OwnTransaction, Run
from queue_db.dialects.borrowed import Using
from queue_db.dialects.transactions import savepoint
from queue_db.errors import DuplicateJobError, QueueDBError, StorageError, TransientStorageError
from queue_db.model import NewJob
from queue_db.store import Transaction, enqueue
from queue_db.store.enqueue import Added, OnDuplicate
from queue_db.verbs.blocks import Block, Blocks, Chunks, from_iterator, from_memory
from queue_db.verbs.new_jobs import CHUNK, due_at_once, policy_for

_Answer = TypeVar("_Answer")

# How the insert of one job runs.
_ALONE = Run("enqueue", lazy=True)

# How a shared insert of the jobs of several callers runs. It has one attempt: if it fails, each caller inserts its job alone.
_TOGETHER = Run("enqueue", attempts=1)

# How the inserts of many jobs run.
_MANY = Run("enqueue_many")

# How the inserts of an iterator with several blocks run. They have one attempt, since the iterator cannot be read again.
_MANY_ONCE = Run("enqueue_many", attempts=1)

# The most simultaneous inserts of single jobs into one queue. With one insert at a time, even a few callers wait for each other's
# commits. With four, the inserts are smaller, and 64 threads enqueue a fifth fewer jobs per second. A database without a server has
# one insert at a time, since it allows only one writer.
_INSERTS = 2

# The most characters of payload and headers of a job that shares an insert. A larger job would delay the other callers.
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

    def one(self, job: NewJob, on_duplicate: str, using: Using | None) -> int | None:
        """Add a job; return its id, or None if the job was skipped.

        :raises ArgumentError: ``on_duplicate`` is no known policy, or the policy needs a unique key that the job does not have.
        """
        policy = OnDuplicate.RAISE if on_duplicate == "raise" else policy_for(job, on_duplicate)
        # A shared insert must not take long, and must not wait for other transactions. Otherwise callers could wait forever: a
        # caller that waits for the shared insert may have locked a key or a group in a transaction of its own. On an application's
        # engine no job shares an insert: the engine's listeners may set a value that depends on the thread, such as a tenant.
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
        """Insert the jobs of one or more callers in one transaction.

        A transaction with several jobs has one attempt. If it fails, each caller inserts its job alone, with retries, and gets its
        own error. Only an unknown outcome is raised for all callers.

        :param jobs: one job of each caller; the first job is that of the caller that runs this method.
        """
        # The workers are not woken here. Each caller wakes them after the insert: waking may wait for another caller, and an error
        # in waking is not an error of the insert.
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

    def _alone(self, job: NewJob, on_duplicate: OnDuplicate, using: Using | None = None) -> int | None:
        def insert(tx: Transaction) -> list[int | None]:
            ids = enqueue.insert_jobs(tx, [job], on_duplicate, self.queue)
            tx.after_commit(partial(self.core.marks[self.queue].add, job.priority))
            return ids

        # Only a job with `unique_for` needs a savepoint. Without one, its key would stay reserved after the job was refused.
        return self.run(_ALONE, insert, using, atomic=bool(job.unique_for), listed=False)[0]

    def many(
        self,
        read: Callable[[], Chunks],
        on_duplicate: OnDuplicate,
        using: Using | None,
        *,
        ids: bool,
        number: int | None = None,
    ) -> Added:
        """Add jobs, all or none.

        :param read: returns the chunks of jobs, from the first.
        :param ids: whether the caller asks for the ids of the jobs.
        :param number: the number of jobs, if the jobs are in memory and can be read again; None: the jobs come from an iterator.
        """
        self.core.ready()  # before the iterable is read, since it may be readable only once
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
                # `load_jobs` needs our own connection. The application that owns a caller's connection may observe the statements,
                # or may have changed the table.
                if tx.own:
                    return enqueue.load_jobs(tx, *block, on_duplicate, ids=ids, more=more)
                return enqueue.insert_chunks(tx, block.chunks, on_duplicate, ids=ids, more=more)

        # A second thread sends the blocks, with two exceptions. A caller's connection may be in use by another thread. The
        # listeners of an application's engine may need the caller's thread.
        own = tx.own and self.core.database.made_here and not self.core.database.asynchronous
        aside = own and tx.dialect.served and blocks.several and not blocks.lazy
        added = list(_overlapped(blocks.read(), add) if aside else map(add, blocks.read()))
        return Added(sum(part.number for part in added), [job_id for part in added for job_id in part.ids])

    def run(
        self,
        how: Run,
        insert: Callable[[Transaction], _Answer],
        using: Using | None,
        *,
        atomic: bool = True,
        listed: bool = True,
        read: Callable[[], Chunks] | None = None,
    ) -> _Answer:
        """Run ``insert``, all or nothing.

        :param atomic: whether ``insert`` needs a savepoint in a caller's transaction.
        :param listed: whether the caller gave a list of jobs. If so, errors name the position of the refused job in the list.
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
                        # The jobs of this call are rolled back and hold no key any more, so look for the holder again.
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
    """Make the error that the caller gets.

    :param there: the id of the job that has the key now; None: look for the key in the list.
    """
    key, position = error.unique_key, error.position if listed else None
    other = None
    if there is None and position is not None and read is not None:
        before = islice(chain.from_iterable(read()), position)
        other = next((place for place, job in enumerate(before) if job.unique_key == key), None)
    return DuplicateJobError(unique_key=key, existing_id=there, position=position, other=other, unique_for=error.unique_for)


def _size(job: NewJob) -> tuple[int, int]:
    """The size of a job for the batcher: its rows and its characters."""
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
