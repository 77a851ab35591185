"""The public face: :class:`AsyncQueueDB` opens a database, :class:`AsyncQueue` enqueues, claims and settles."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from functools import partial
from typing import Any, ClassVar, Self

from sqlalchemy import URL, Engine
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession
from sqlalchemy.pool import StaticPool

from queue_db import backoff
from queue_db.aio.database import AsyncDatabase
from queue_db.aio.dead import AsyncDeadJobs
from queue_db.aio.leased import AsyncLeasedJob, settled
from queue_db.aio.running import joined, opened, run, within
from queue_db.aio.schedules import AsyncSchedules
from queue_db.aio.streams import AsyncStreams
from queue_db.codecs import Codec, Schema
from queue_db.database.database import Database, wrong_sort
from queue_db.db import ERRORS_KEPT, MAX_PAYLOAD, QueueDB
from queue_db.errors import ConfigurationError
from queue_db.model import (
    Batch,
    Controls,
    Counters,
    DeathReason,
    Finished,
    Job,
    JobError,
    QueueStats,
    RetainedResult,
    Verdict,
    WorkerInfo,
)
from queue_db.queue import Queue
from queue_db.removal import Removal
from queue_db.store.schema import DEFAULT_MAX_ATTEMPTS
from queue_db.strategies import Strategy


class InGreenlets(QueueDB):
    """The synchronous queues, as the verbs here use them."""

    _opens: ClassVar[type[Database]] = AsyncDatabase


class AsyncQueueDB:
    """The queues of one database, for the tasks of one event loop.

    ``async with AsyncQueueDB(url) as db:`` opens and closes it; or :meth:`open` and :meth:`close`.

    A task that is cancelled in the middle of a verb leaves it done or not done, never in between, and its connection is closed.
    What a cancelled claim has won is given back by the queue's next claim, or else when the leases end.

    :param url_or_engine: a database URL, or a SQLAlchemy AsyncEngine whose pool is to be shared. When the server has become
        read-only, as after a failover, the engine is disposed, also a caller's own: its idle connections are closed.
    :param strategy: how claims win jobs: ``adaptive``, ``optimistic``, ``skip_locked``, ``pessimistic``, or a Strategy object.
    :param removal: how completed jobs leave: ``delete``, ``lock_then_delete``, ``delete_mark``, or a Removal object.
    :param table: name of the jobs table; the dead table is called ``<table>_dead``.
    :param schema: schema prefix of the tables.
    :param worker: the name that claimed jobs show; default host, process id and a random part.
    :param codec: payload ↔ text, JSON by default.
    :param retry_after: a function: attempt number → seconds until the next try; default :func:`queue_db.backoff.exponential`.
        Where it raises, or returns no possible wait, that one job waits as by default, and an error is logged.
    :param max_payload: largest encoded payload, bytes.
    :param pool_size: connections that stay open between two uses, 1 to 1,000; more are made when they are needed.
    :param clock: for tests: microseconds since 1970, instead of the database's clock.
    :raises ArgumentError: ``retry_after`` is no function of one number.
    :raises ConfigurationError: an engine that is not for asyncio, or that lets tasks share a connection.
    """

    def __init__(
        self,
        url_or_engine: str | URL | AsyncEngine,
        strategy: str | Strategy = "adaptive",
        removal: str | Removal = "delete",
        table: str = "jobs",
        *,
        schema: str | None = None,
        worker: str | None = None,
        codec: Codec | None = None,
        retry_after: backoff.Backoff | None = None,
        max_payload: int = MAX_PAYLOAD,
        pool_size: int = 5,
        clock: Callable[[], int] | None = None,
    ) -> None:
        if retry_after is not None:
            backoff.checked("retry_after", retry_after)
        if isinstance(url_or_engine, Engine):
            raise ConfigurationError(wrong_sort("an Engine", "an AsyncEngine", asynchronous=True))
        if isinstance(url_or_engine, AsyncEngine) and isinstance(url_or_engine.pool, StaticPool):
            raise ConfigurationError(
                "this engine has one connection for all tasks at once: use a file, or AsyncQueueDB('sqlite://')"
            )
        self._make = partial(
            InGreenlets,
            url_or_engine.sync_engine if isinstance(url_or_engine, AsyncEngine) else url_or_engine,
            strategy,
            removal,
            table,
            schema=schema,
            worker=worker,
            codec=codec,
            retry_after=retry_after,
            max_payload=max_payload,
            pool_size=pool_size,
            clock=clock,
        )
        self._opening = asyncio.Lock()
        self._opened: QueueDB | None = None
        self._queues: dict[str, AsyncQueue] = {}

    async def open(self) -> Self:
        """Connect, and look at the server and the tables; return this object.

        :raises ConfigurationError: unknown scheme, strategy or removal; driver not installed, or not for asyncio.
        :raises UnsupportedError: the server is too old, or lacks what the strategy or removal needs.
        :raises StorageError: the server does not answer or refuses the login.
        """
        async with self._opening:
            if self._opened is None:
                self._opened = await run(self._make)
        return self

    async def close(self) -> None:
        """Close the connections; those of an engine that was passed in stay with their owner.

        Every verb raises ConfigurationError from then on.
        """
        opened, self._opened = self._opened, None
        self._queues.clear()
        if opened is not None:
            await run(opened.close)

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return "<AsyncQueueDB, not open>" if self._opened is None else f"<Async{repr(self._opened)[1:]}"

    @property
    def _db(self) -> QueueDB:
        if self._opened is None:
            raise ConfigurationError("this AsyncQueueDB is not open: async with AsyncQueueDB(url) as db, or await db.open()")
        return self._opened

    # --- its parts --------------------------------------------------------------------------------------------------

    @property
    def worker(self) -> str:
        """The name that jobs claimed here show."""
        return self._db.worker

    @property
    def dead(self) -> AsyncDeadJobs:
        """The jobs that were given up."""
        return AsyncDeadJobs(self._db.dead)

    @property
    def schedules(self) -> AsyncSchedules:
        """Jobs that are enqueued again and again."""
        return AsyncSchedules(self._db.schedules)

    @property
    def streams(self) -> AsyncStreams:
        """Who holds claimed jobs for a stream."""
        return AsyncStreams(self._db.streams)

    @property
    def stamp(self) -> Callable[[], Mapping[str, Any]] | None:
        """Called at each enqueue; its result is added to the headers of the jobs, for example for traces."""
        return self._db.stamp

    @stamp.setter
    def stamp(self, stamp: Callable[[], Mapping[str, Any]] | None) -> None:
        self._db.stamp = stamp

    @property
    def schemas(self) -> dict[str, Schema]:
        """What payloads of a kind must look like."""
        return self._db.schemas

    def queue(self, name: str) -> AsyncQueue:
        """The queue of that name; it needs no creation. The same object for the same name."""
        queue = self._queues.get(name)
        if queue is None:
            queue = self._queues[name] = AsyncQueue(self, self._db.queue(name))
        return queue

    # --- verbs ------------------------------------------------------------------------------------------------------

    @property
    def url(self) -> str:
        """The database's URL, passwords masked."""
        return self._db.url

    @property
    def counters(self) -> Counters:
        """What happened since this object was made."""
        return self._db.counters

    async def migrate(self, connection: AsyncConnection | None = None, *, revision: str = "head") -> None:
        """Bring the tables to ``revision`` ("head", "base" or a revision's name), up or down.

        On a ``connection`` it runs in the caller's transaction, which the caller commits.

        :raises ConfigurationError: when Alembic is not installed (``pip install "queue-db[migrate]"``).
        """
        await run(self._db.migrate, opened(connection), revision=revision)

    def migration_sql(self, revision: str = "head", *, start: str = "base") -> str:
        """The statements of :meth:`migrate` as text; nothing is executed.

        :param revision: "head", "base" or a revision's name, as for :meth:`migrate`.
        :param start: the revision that the tables are at; "base": an empty database.
        :raises ConfigurationError: there is no such revision, or Alembic is not installed.
        """
        return self._db.migration_sql(revision, start=start)

    async def check(self) -> None:
        """Make sure that the tables are there and that this version of the package works with them.

        Tables that are newer are accepted, with a line in the log, as long as they only have additions.

        :raises SchemaOutOfDateError: with the command that fixes it.
        """
        await run(self._db.check)

    async def queues(self) -> list[str]:
        """Names of the queues that have live or dead jobs."""
        return await run(self._db.queues)

    async def upcoming(self, queues: Iterable[str]) -> dict[str, float | None]:
        """Seconds until the next job of each queue is due: 0 or less where one is, None where there is no job.

        One statement for all of them, that reads one index entry for each priority. A running job counts at the end of its lease.
        """
        return await run(self._db.upcoming, queues)

    async def get(self, job_id: int) -> Job:
        """The job of that id, in whatever queue, live or dead.

        :raises JobNotFoundError: completed, cancelled, purged, or never there.
        """
        return await run(self._db.get, job_id)

    async def cancel(self, job_id: int) -> Verdict:
        """:meth:`Queue.cancel`, in whatever queue the job is."""
        return await run(self._db.cancel, job_id)

    async def rescue(self, worker: str) -> int:
        """Give back at once what a worker has in hand that is known to be dead; return how many jobs.

        Without this they come back when their leases run out. These attempts count. Should it live after all, its leases are lost.
        """
        return await run(self._db.rescue, worker)

    async def workers(self) -> list[WorkerInfo]:
        """The workers that have told of themselves within the last hour and have not left, by name."""
        return await run(self._db.workers)

    async def errors(self, job_id: int) -> list[JobError]:
        """The latest failed attempts of a job, live, dead or gone, first to last; at most ten."""
        return await run(self._db.errors, job_id)

    async def finished(self, job_id: int) -> Finished:
        """What is kept of a completed job: its result, until it expires.

        :raises JobNotFoundError: it is not completed, nothing of it is kept, or it has expired.
        """
        return await run(self._db.finished, job_id)

    async def finished_jobs(
        self, queue: str | None = None, *, kind: str | None = None, limit: int = 100, after: Finished | None = None
    ) -> list[Finished]:
        """What is kept of completed jobs, by id; ``after``: the last one of the page before."""
        return await run(self._db.finished_jobs, queue, kind=kind, limit=limit, after=after)

    async def wait(self, job_id: int, timeout: float) -> Finished:  # noqa: ASYNC109 - as the other one has it
        """Wait until a job is completed, and return its result, which its handler must keep (``handles(…, keep=seconds)``).

        :param timeout: seconds.
        :raises JobNotFoundError: it is gone and nothing of it is kept, or it is dead.
        :raises TimeoutError: it is still there.
        """
        return await run(self._db.wait, job_id, timeout)

    async def batch(self, batch_id: int) -> Batch | None:
        """How far a batch is that :meth:`Queue.enqueue_batch` made; None: all of it has left, and the job after it was enqueued."""
        return await run(self._db.batch, batch_id)

    async def prune(self, *, errors_older_than: float = ERRORS_KEPT) -> int:
        """Delete expired results and unique keys, and failed attempts older than so many seconds; return how many rows.

        Workers do this once a minute.
        """
        return await run(self._db.prune, errors_older_than=errors_older_than)

    async def sweep(self, limit: int | None = None) -> int:
        """Delete jobs that were completed under ``removal="delete_mark"``, in batches; return how many.

        The first call looks through the whole table, for jobs that others have marked in their queues; later ones do not.
        """
        return await run(self._db.sweep, limit)


class AsyncQueue:
    """One queue: enqueue, claim, settle, look. For the tasks of one event loop; get it from :meth:`AsyncQueueDB.queue`."""

    def __init__(self, db: AsyncQueueDB, queue: Queue) -> None:
        self.db = db
        self.name = queue.name
        self._queue = queue

    def __repr__(self) -> str:
        return f"<AsyncQueue {self.name!r} of {self.db.url}>"

    async def enqueue(
        self,
        kind: str,
        payload: Any = None,
        *,
        delay: float = 0.0,
        run_at: datetime | None = None,
        priority: int = 0,
        unique_key: str | None = None,
        unique_for: float | None = None,
        on_duplicate: str = "raise",
        group: str | None = None,
        max_attempts: int = DEFAULT_MAX_ATTEMPTS,
        headers: Mapping[str, Any] | None = None,
        using: AsyncConnection | AsyncSession | None = None,
    ) -> int | None:
        """Add a job and return its id; None where ``on_duplicate="skip"`` found a live job with the key.

        :param delay: seconds until it is due.
        :param run_at: when it is due (aware datetime); with both, the later one counts.
        :param priority: lower number first; ties by due time, then id.
        :param unique_key: at most one live job of this queue has it, also among concurrent enqueues.
        :param unique_for: seconds for which the key stays taken, from now on, also when the job is done before.
        :param on_duplicate: ``raise``, ``skip``, ``replace`` (the new content takes the live job's place and id; who works on the
            old one loses its lease), or ``debounce``: as ``replace``, so that with a ``delay`` the job waits until nobody has asked
            for it for so long; but who works on the old one keeps it, without its key, and the new one waits beside it.
        :param group: jobs of this queue with the same group run one at a time, or as many as :meth:`limit` says, in the order in
            which they were enqueued: one that waits for its time, or for its next attempt, holds up those behind it.
        :param max_attempts: after so many failed attempts the job is dead.
        :param headers: small mapping for tracing and the like; JSON.
        :param using: an AsyncConnection or AsyncSession: the job commits or rolls back with the caller's own data.
        :raises ArgumentError, PayloadError: nothing was enqueued.
        :raises DuplicateJobError: a live job has the key; nothing was enqueued.
        """
        return await run(
            self._queue.enqueue,
            kind,
            payload,
            delay=delay,
            run_at=run_at,
            priority=priority,
            unique_key=unique_key,
            unique_for=unique_for,
            on_duplicate=on_duplicate,
            group=group,
            max_attempts=max_attempts,
            headers=headers,
            using=joined(using),
        )

    async def enqueue_many(
        self,
        jobs: Iterable[tuple[str, Any] | tuple[str, Any, Mapping[str, Any]]],
        *,
        on_duplicate: str = "raise",
        using: AsyncConnection | AsyncSession | None = None,
    ) -> list[int | None]:
        """Add jobs from any iterable of ``(kind, payload)`` or ``(kind, payload, options)``; return their ids by position.

        ``options`` are the keyword arguments of :meth:`enqueue` that belong to one job. The iterable is read in chunks of 1000 and
        everything is one transaction: all jobs or none. None stands where ``on_duplicate="skip"`` skipped a job.
        """
        return await run(self._queue.enqueue_many, jobs, on_duplicate=on_duplicate, using=joined(using))

    async def enqueue_batch(
        self,
        jobs: Iterable[tuple[str, Any] | tuple[str, Any, Mapping[str, Any]]],
        then: tuple[str, Any] | tuple[str, Any, Mapping[str, Any]],
        *,
        on_duplicate: str = "raise",
        using: AsyncConnection | AsyncSession | None = None,
    ) -> tuple[int, list[int | None]]:
        """Add jobs as :meth:`enqueue_many` does, and a job that is enqueued when all of them have left the queue.

        It is enqueued once, in the transaction in which the last of them leaves: completed, dead or cancelled. Its headers say what
        became of them: ``{"batch": {"id": …, "jobs": …, "dead": …, "cancelled": …}}``. A dead job that is redriven counts no more.

        :param then: that job; its ``options`` may be ``priority``, ``max_attempts`` and ``headers``.
        :param on_duplicate: ``raise`` or ``skip``; skipped jobs are not waited for.
        :return: the batch's id, for :meth:`QueueDB.batch`, and the jobs' ids by position.
        """
        return await run(self._queue.enqueue_batch, jobs, then, on_duplicate=on_duplicate, using=joined(using))

    async def claim(self, limit: int = 1, lease: float = 60.0, *, delete: bool = False) -> list[AsyncLeasedJob]:
        """Take up to ``limit`` due jobs for ``lease`` seconds, lowest priority number first, then longest due.

        The list may be shorter than ``limit`` and may be empty. A claim that lost every candidate to others tries a few times with
        short random pauses, then comes back empty and is counted as ``contended``.

        :param delete: take them out of the table for good, as :meth:`pop` does: nothing is left to settle, every verb answers LOST.
        """
        return [AsyncLeasedJob(job, self) for job in await run(self._queue.claim, limit, lease, delete=delete)]

    async def pop(self, limit: int = 1) -> list[Job]:
        """Take up to ``limit`` due jobs out of the queue for good, in claim order: *at most once*.

        They are gone when this returns, and nothing brings them back: not for work that may be done twice but for work that may
        rather be left undone. One commit per batch instead of two.
        """
        return await run(self._queue.pop, limit)

    async def complete_many(
        self,
        jobs: Sequence[AsyncLeasedJob],
        *,
        using: AsyncConnection | AsyncSession | None = None,
        retained: Sequence[RetainedResult | None] | None = None,
    ) -> list[Verdict]:
        """The work of these jobs is done; one verdict per job, in one or two statements.

        :param retained: the result to keep of each job, for :meth:`QueueDB.finished`; None: nothing.
        """
        return await run(self._queue.complete_many, settled(jobs), using=joined(using), retained=retained)

    async def fail_many(
        self,
        jobs: Sequence[AsyncLeasedJob],
        error: BaseException | str | Sequence[BaseException | str],
        *,
        retry_in: float | Sequence[float | None] | None = None,
        last: Sequence[bool] | None = None,
    ) -> list[Verdict]:
        """These attempts failed, all for one reason or each for its own; jobs out of attempts go to the dead table.

        :param retry_in: seconds until the next attempt, for all or for each; None: the backoff.
        :param last: whether this was the last attempt, for each; default: as its ``max_attempts`` says.
        """
        return await run(self._queue.fail_many, settled(jobs), error, retry_in=retry_in, last=last)

    async def snooze_many(self, jobs: Sequence[AsyncLeasedJob], seconds: float) -> list[Verdict]:
        """Bring these jobs back in ``seconds``; not an attempt."""
        return await run(self._queue.snooze_many, settled(jobs), seconds)

    async def release_many(self, jobs: Sequence[AsyncLeasedJob]) -> list[Verdict]:
        """Give these jobs back at once, unworked; not an attempt."""
        return await run(self._queue.release_many, settled(jobs))

    async def extend_many(self, jobs: Sequence[AsyncLeasedJob], seconds: float) -> list[Verdict]:
        """Hold the leases of these jobs for ``seconds`` from now; their versions go up by one."""
        return await run(self._queue.extend_many, settled(jobs), seconds)

    async def cancel_many(self, jobs: Sequence[AsyncLeasedJob]) -> list[Verdict]:
        """The work of these jobs is no longer wanted."""
        return await run(self._queue.cancel_many, settled(jobs))

    async def bury_many(
        self,
        jobs: Sequence[AsyncLeasedJob],
        error: BaseException | str | Sequence[BaseException | str],
        *,
        reason: DeathReason = DeathReason.REJECTED,
    ) -> list[Verdict]:
        """Send these jobs to the dead table, all with one error text or each with its own.

        :param reason: what log records, events and metrics call it.
        """
        return await run(self._queue.bury_many, settled(jobs), error, reason=reason)

    async def defer_unknown_many(
        self, jobs: Sequence[AsyncLeasedJob], error: BaseException | str, *, grace: float
    ) -> list[Verdict]:
        """Give back jobs for whose kind there is no handler here; not an attempt.

        They come back after a second at first and a minute at last: another worker may have a handler. Those that are still
        without one ``grace`` seconds after the first time go to the dead table, with ``error`` as the text.
        """
        return await run(self._queue.defer_unknown_many, settled(jobs), error, grace=grace)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[AsyncConnection]:
        """A connection in a transaction of the caller's, for ``using=``: committed at the end of the block, or rolled back."""
        async with within(self._queue.transaction()) as connection:
            yield connection

    async def get(self, job_id: int) -> Job:
        """The job as it stands, live or dead.

        :raises JobNotFoundError: completed, cancelled, purged, or never there.
        """
        return await run(self._queue.get, job_id)

    async def peek(self, limit: int = 10) -> list[Job]:
        """The due jobs that claims would find, in their order, without taking them."""
        return await run(self._queue.peek, limit)

    async def stats(self) -> QueueStats:
        """Counts by state and kind, and the age of the longest waiting due job. Reads the whole queue."""
        return await run(self._queue.stats)

    async def pause(self, *, wait: float | None = None) -> bool:
        """Let no worker claim from this queue, until :meth:`resume`, also when they start anew.

        :param wait: seconds to wait until none of its jobs runs any more. Workers notice the pause within 1.5 s: only a queue in
            which nothing has run for so long is at rest, so the answer may come so much later than ``wait``.
        :return: whether none runs; without ``wait`` True.
        """
        return await run(self._queue.pause, wait=wait)

    async def resume(self) -> None:
        """Let workers claim again."""
        await run(self._queue.resume)

    async def limit(
        self, *, concurrency: int | None = None, rate: int | None = None, per: float = 1.0, per_group: int | None = None
    ) -> None:
        """What all workers together may do. Sets all limits at once: what is not given is not limited any more, and ``limit()``
        removes every limit. :meth:`controls` reads them; ``queue-db limit`` changes one and leaves the others.

        It holds for workers and Spark drains, in all processes, within a second; :meth:`claim` by itself does not ask.

        :param concurrency: most jobs of this queue in hand at once.
        :param rate: most jobs begun in ``per`` seconds. After a rest so many may be begun at once.
        :param per_group: most jobs of one group in hand at once; not given: one. This holds for every claim.
        """
        await run(self._queue.limit, concurrency=concurrency, rate=rate, per=per, per_group=per_group)

    async def repair_groups(self) -> None:
        """Unblock the groups of this queue whose next job waits for no other, as after a job was deleted by hand.

        Workers do this once a minute.
        """
        await run(self._queue.repair_groups)

    async def controls(self) -> Controls:
        """What is said about this queue."""
        return await run(self._queue.controls)

    async def cancel(self, job_id: int) -> Verdict:
        """Take a job out of the queue, whatever its state; a worker that has it will find its lease lost.

        LOST: a stream holds the job, which cannot be called back; or others changed it each time.

        :raises JobNotFoundError: there is no such live job.
        """
        return await run(self._queue.cancel, job_id)

    async def purge(self) -> int:
        """Delete all jobs that are there and that nobody works on, due, scheduled and blocked, in batches; return how many."""
        return await run(self._queue.purge)
