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
from queue_db.aio.feeds import AsyncFeed, AsyncFeeds
from queue_db.aio.leased import AsyncLeasedJob, settled
from queue_db.aio.routes import AsyncRoutes, AsyncTopic
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
    """The synchronous database behind :class:`AsyncQueueDB`."""

    _opens: ClassVar[type[Database]] = AsyncDatabase


class AsyncQueueDB:
    """The queues of one database, for the tasks of one event loop.

    ``async with AsyncQueueDB(url) as db:`` opens and closes it; or :meth:`open` and :meth:`close`.

    A verb whose task is cancelled is done or not done, never half, and its connection is closed. Jobs won by a cancelled claim are
    released by the queue's next claim, or return when their leases end.

    :param url_or_engine: a database URL, or a SQLAlchemy AsyncEngine, to share its pool. When the server becomes read-only,
        as after a failover, the engine is disposed, also a caller's own: its idle connections are closed.
    :param strategy: how claims win jobs: ``adaptive``, ``optimistic``, ``skip_locked``, ``pessimistic``, or a Strategy object.
    :param removal: how completed jobs leave: ``delete``, ``lock_then_delete``, ``delete_mark``, or a Removal object.
    :param table: name of the jobs table; the dead table is ``<table>_dead``.
    :param schema: schema prefix of the tables.
    :param worker: the name that claimed jobs show; default host, process id and a random part.
    :param codec: payload ↔ text, JSON by default.
    :param retry_after: a function: attempt number → seconds until the next try; default :func:`queue_db.backoff.exponential`.
        If it raises or returns an impossible wait, that job waits as by default, and an error is logged.
    :param max_payload: largest encoded payload, bytes.
    :param pool_size: connections that stay open while idle, 1 to 1,000; more are opened when needed.
    :param clock: for tests: microseconds since 1970, instead of the database's clock.
    :raises ArgumentError: ``retry_after`` is not a function of one number.
    :raises ConfigurationError: the engine is not for asyncio, or shares one connection between tasks.
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
        self._feeds: dict[str, AsyncFeed] = {}

    async def open(self) -> Self:
        """Connect and check the server; return this object.

        :raises ConfigurationError: unknown scheme, strategy or removal; driver not installed, or not for asyncio.
        :raises UnsupportedError: the server is too old, or lacks a capability that the strategy or the removal needs.
        :raises StorageError: the server does not answer or refuses the login.
        """
        async with self._opening:
            if self._opened is None:
                self._opened = await run(self._make)
        return self

    async def close(self) -> None:
        """Close the connections; a caller's own engine stays open. Every verb raises ConfigurationError from then on."""
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
        """Dead jobs."""
        return AsyncDeadJobs(self._db.dead)

    @property
    def schedules(self) -> AsyncSchedules:
        """Jobs enqueued by cron lines or at intervals."""
        return AsyncSchedules(self._db.schedules)

    @property
    def feeds(self) -> AsyncFeeds:
        """The feeds of the database."""
        return AsyncFeeds(self._db.feeds)

    @property
    def routes(self) -> AsyncRoutes:
        """The routes of the database."""
        return AsyncRoutes(self._db.routes)

    @property
    def streams(self) -> AsyncStreams:
        """Jobs held by Spark streams."""
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
        """Payload schemas by kind."""
        return self._db.schemas

    def queue(self, name: str) -> AsyncQueue:
        """The queue with this name; it need not be created first. The same object for the same name."""
        queue = self._queues.get(name)
        if queue is None:
            queue = self._queues[name] = AsyncQueue(self, self._db.queue(name))
        return queue

    def feed(self, name: str) -> AsyncFeed:
        """The feed with this name; it need not be created first. The same object for the same name."""
        feed = self._feeds.get(name)
        if feed is None:
            feed = self._feeds[name] = AsyncFeed(self._db.feed(name))
        return feed

    def topic(self, name: str) -> AsyncTopic:
        """The topic with this name, to publish to; :attr:`routes` decides where its messages go."""
        return AsyncTopic(self._db.topic(name))

    # --- verbs ------------------------------------------------------------------------------------------------------

    @property
    def url(self) -> str:
        """The database's URL, passwords masked."""
        return self._db.url

    @property
    def counters(self) -> Counters:
        """Counts of claims, settles, retries and errors since this object was made."""
        return self._db.counters

    async def migrate(self, connection: AsyncConnection | None = None, *, revision: str = "head") -> None:
        """Bring the tables to ``revision`` ("head", "base" or a revision's name), up or down.

        With ``connection`` it runs in the caller's transaction, and the caller commits.

        :raises ConfigurationError: when Alembic is not installed (``pip install "queue-db[migrate]"``).
        """
        await run(self._db.migrate, opened(connection), revision=revision)

    def migration_sql(self, revision: str = "head", *, start: str = "base") -> str:
        """The SQL of :meth:`migrate` as text; nothing is executed.

        :param revision: "head", "base" or a revision's name, as for :meth:`migrate`.
        :param start: the revision that the tables are at; "base": an empty database.
        :raises ConfigurationError: there is no such revision, or Alembic is not installed.
        """
        return self._db.migration_sql(revision, start=start)

    async def check(self) -> None:
        """Check that the tables exist and that this version of the package works with them.

        Newer tables that only have additions are accepted, with a log line.

        :raises SchemaOutOfDateError: with the command that fixes it.
        """
        await run(self._db.check)

    async def queues(self) -> list[str]:
        """Names of the queues that have live or dead jobs."""
        return await run(self._db.queues)

    async def upcoming(self, queues: Iterable[str]) -> dict[str, float | None]:
        """Seconds until the next job of each queue is due: 0 or less if one is due, None for an empty queue.

        One statement for all queues; it reads one index entry per priority. A running job counts as due when its lease ends.
        """
        return await run(self._db.upcoming, queues)

    async def get(self, job_id: int) -> Job:
        """The job with this id, live or dead, in any queue.

        :raises JobNotFoundError: it was completed, cancelled or purged, or never existed.
        """
        return await run(self._db.get, job_id)

    async def cancel(self, job_id: int) -> Verdict:
        """:meth:`Queue.cancel`, in whatever queue the job is."""
        return await run(self._db.cancel, job_id)

    async def rescue(self, worker: str) -> int:
        """Release the jobs of a dead worker at once, and its spans of shared cursors; return how many of both.

        Without this they return when their leases end. The attempts count. If the worker is alive after all, it loses its leases.
        """
        return await run(self._db.rescue, worker)

    async def workers(self) -> list[WorkerInfo]:
        """The registered workers with a heartbeat within the last hour, by name."""
        return await run(self._db.workers)

    async def errors(self, job_id: int) -> list[JobError]:
        """The latest failed attempts of a job, also of one that is gone, oldest first; at most ten."""
        return await run(self._db.errors, job_id)

    async def finished(self, job_id: int) -> Finished:
        """The retained result of a completed job, until it expires.

        :raises JobNotFoundError: the job is not completed, its result was not retained, or the result has expired.
        """
        return await run(self._db.finished, job_id)

    async def finished_jobs(
        self, queue: str | None = None, *, kind: str | None = None, limit: int = 100, after: Finished | None = None
    ) -> list[Finished]:
        """The retained results of completed jobs, by id. ``after``: the last one of the previous page."""
        return await run(self._db.finished_jobs, queue, kind=kind, limit=limit, after=after)

    async def wait(self, job_id: int, timeout: float) -> Finished:  # noqa: ASYNC109 - as the other one has it
        """Wait until a job is completed and return its result. Its handler must retain results: ``handles(…, keep=seconds)``.

        :param timeout: seconds.
        :raises JobNotFoundError: it is dead, or it is gone and its result was not retained.
        :raises TimeoutError: it is not completed yet.
        """
        return await run(self._db.wait, job_id, timeout)

    async def batch(self, batch_id: int) -> Batch | None:
        """Progress of a batch of :meth:`Queue.enqueue_batch`; None: all its jobs have left, and its callback job was enqueued."""
        return await run(self._db.batch, batch_id)

    async def prune(self, *, errors_older_than: float = ERRORS_KEPT) -> int:
        """Delete expired results and unique keys, and failed attempts older than ``errors_older_than`` seconds; return the count.

        Workers call it once a minute.
        """
        return await run(self._db.prune, errors_older_than=errors_older_than)

    async def sweep(self, limit: int | None = None) -> int:
        """Delete jobs that were completed under ``removal="delete_mark"``, in batches; return how many.

        The first call reads the whole table, for jobs that other versions marked in their queues; later calls do not.
        """
        return await run(self._db.sweep, limit)


class AsyncQueue:
    """One queue: enqueue, claim, settle, inspect. For the tasks of one event loop; get it from :meth:`AsyncQueueDB.queue`."""

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
        """Add a job and return its id; None if ``on_duplicate="skip"`` found a live job with the key.

        :param delay: seconds until it is due.
        :param run_at: when it is due (aware datetime); with ``delay`` too, the later one counts.
        :param priority: lower number first; ties by due time, then id.
        :param unique_key: at most one live job of this queue has this key, also with concurrent enqueues.
        :param unique_for: seconds from now for which the key stays taken, even if the job is done earlier.
        :param on_duplicate: ``raise``; ``skip``; ``replace``: the new content takes over the live job's row and id, and a worker
            that runs the old one loses its lease; or ``debounce``: ``replace``, but a running job keeps its lease and loses its
            key, and the new job waits beside it. With ``delay`` a debounced job runs once no enqueue came for that time.
        :param group: jobs of this queue with the same group run one at a time, or as many at once as :meth:`limit` allows, in the
            order in which they were enqueued: a job that waits for its due time or its next attempt blocks those behind it.
        :param max_attempts: after this many failed attempts the job is dead.
        :param headers: a small mapping, for example for tracing; JSON.
        :param using: an AsyncConnection or AsyncSession: the job commits or rolls back with the caller's own data.
        :raises ArgumentError: an argument is out of range; nothing was enqueued.
        :raises PayloadError: the payload cannot be stored, or does not fit the handler's schema; nothing was enqueued.
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

        ``options`` are the arguments of :meth:`enqueue` that belong to one job. The iterable is read in chunks of 1000, in one
        transaction: all jobs or none. The id is None where ``on_duplicate="skip"`` skipped a job.
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
        """Add jobs as :meth:`enqueue_many` does, and a callback job that is enqueued when all of them have left the queue.

        It is enqueued once, in the transaction in which the last of them is completed, dies or is cancelled. Its headers count
        them: ``{"batch": {"id": …, "jobs": …, "dead": …, "cancelled": …}}``. A dead job that is redriven does not count again.

        :param then: the callback job; its ``options`` may be ``priority``, ``max_attempts`` and ``headers``.
        :param on_duplicate: ``raise`` or ``skip``; the batch does not wait for skipped jobs.
        :return: the batch's id, for :meth:`QueueDB.batch`, and the jobs' ids by position.
        """
        return await run(self._queue.enqueue_batch, jobs, then, on_duplicate=on_duplicate, using=joined(using))

    async def claim(self, limit: int = 1, lease: float = 60.0, *, delete: bool = False) -> list[AsyncLeasedJob]:
        """Lease up to ``limit`` due jobs for ``lease`` seconds, lowest priority number first, then longest due.

        The list may be shorter than ``limit``, or empty. A claim that lost every candidate to other workers tries a few times with
        short random pauses; then it returns an empty list and counts as ``contended``.

        :param delete: delete them from the table, as :meth:`pop` does: nothing is left to settle, every verb returns LOST.
        """
        return [AsyncLeasedJob(job, self) for job in await run(self._queue.claim, limit, lease, delete=delete)]

    async def pop(self, limit: int = 1) -> list[Job]:
        """Claim up to ``limit`` due jobs and delete them in the same transaction: *at most once*.

        A crash after this call loses them: use it for work that may rather be skipped than done twice. One commit per batch
        instead of two.
        """
        return await run(self._queue.pop, limit)

    async def complete_many(
        self,
        jobs: Sequence[AsyncLeasedJob],
        *,
        using: AsyncConnection | AsyncSession | None = None,
        retained: Sequence[RetainedResult | None] | None = None,
    ) -> list[Verdict]:
        """Complete these jobs, in one or two statements; one verdict per job.

        :param retained: the result to keep of each job, for :meth:`QueueDB.finished`; None: none.
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
        """Fail these attempts, all with one error or each with its own. Jobs out of attempts go to the dead table.

        :param retry_in: seconds until the next attempt, for all or for each; None: the backoff.
        :param last: whether this was the last attempt, for each; default: by its ``max_attempts``.
        """
        return await run(self._queue.fail_many, settled(jobs), error, retry_in=retry_in, last=last)

    async def snooze_many(self, jobs: Sequence[AsyncLeasedJob], seconds: float) -> list[Verdict]:
        """Make these jobs due again in ``seconds``; this does not count as an attempt."""
        return await run(self._queue.snooze_many, settled(jobs), seconds)

    async def release_many(self, jobs: Sequence[AsyncLeasedJob]) -> list[Verdict]:
        """Make these jobs due again now; this does not count as an attempt."""
        return await run(self._queue.release_many, settled(jobs))

    async def extend_many(self, jobs: Sequence[AsyncLeasedJob], seconds: float) -> list[Verdict]:
        """Extend the leases of these jobs to ``seconds`` from now; their versions go up by one."""
        return await run(self._queue.extend_many, settled(jobs), seconds)

    async def cancel_many(self, jobs: Sequence[AsyncLeasedJob]) -> list[Verdict]:
        """Cancel these jobs: they leave the queue."""
        return await run(self._queue.cancel_many, settled(jobs))

    async def bury_many(
        self,
        jobs: Sequence[AsyncLeasedJob],
        error: BaseException | str | Sequence[BaseException | str],
        *,
        reason: DeathReason = DeathReason.REJECTED,
    ) -> list[Verdict]:
        """Send these jobs to the dead table, all with one error text or each with its own.

        :param reason: shown by log records, events and metrics.
        """
        return await run(self._queue.bury_many, settled(jobs), error, reason=reason)

    async def defer_unknown_many(
        self, jobs: Sequence[AsyncLeasedJob], error: BaseException | str, *, grace: float
    ) -> list[Verdict]:
        """Give back jobs of kinds without a handler here; this does not count as an attempt.

        They return after a second at first, later after up to a minute: another worker may have a handler. Jobs that still have
        none ``grace`` seconds after the first time go to the dead table with ``error`` as the text.
        """
        return await run(self._queue.defer_unknown_many, settled(jobs), error, grace=grace)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[AsyncConnection]:
        """A transaction for ``using=``: committed at the end of the block, rolled back if the block raises."""
        async with within(self._queue.transaction()) as connection:
            yield connection

    async def get(self, job_id: int) -> Job:
        """The job as it is now, live or dead.

        :raises JobNotFoundError: it was completed, cancelled or purged, or never existed.
        """
        return await run(self._queue.get, job_id)

    async def peek(self, limit: int = 10) -> list[Job]:
        """The due jobs, in claim order, without claiming them."""
        return await run(self._queue.peek, limit)

    async def stats(self) -> QueueStats:
        """Counts by state and kind, and the age of the oldest due job. Reads the whole queue."""
        return await run(self._queue.stats)

    async def pause(self, *, wait: float | None = None) -> bool:
        """Stop all workers from claiming from this queue until :meth:`resume`, also across restarts.

        :param wait: seconds to wait until none of its jobs runs. Workers notice the pause within 1.5 s, so the queue is at rest
            when no job has run for that time; the call may take that much longer than ``wait``.
        :return: whether no job runs; without ``wait`` True.
        """
        return await run(self._queue.pause, wait=wait)

    async def resume(self) -> None:
        """Let workers claim from this queue again."""
        await run(self._queue.resume)

    async def limit(
        self, *, concurrency: int | None = None, rate: int | None = None, per: float = 1.0, per_group: int | None = None
    ) -> None:
        """Set the limits of this queue over all workers together. A limit that is not given is removed; ``limit()`` removes all.

        :meth:`controls` reads them; ``queue-db limit`` changes one and leaves the others. Workers and Spark drains in all processes
        obey within 1.5 s; :meth:`claim` by itself does not.

        :param concurrency: most running jobs at once.
        :param rate: most jobs started in ``per`` seconds. After an idle time that many may start at once.
        :param per_group: most running jobs of one group at once, default one. Every claim obeys it.
        """
        await run(self._queue.limit, concurrency=concurrency, rate=rate, per=per, per_group=per_group)

    async def repair_groups(self) -> None:
        """Unblock the groups of this queue whose next job waits for no other, as after a job was deleted by hand.

        Workers call it once a minute.
        """
        await run(self._queue.repair_groups)

    async def controls(self) -> Controls:
        """The pause and the limits of this queue."""
        return await run(self._queue.controls)

    async def cancel(self, job_id: int) -> Verdict:
        """Cancel a live job in any state. A worker that runs it loses its lease.

        LOST: a stream holds the job and cannot give it back, or the job changed during each of five tries.

        :raises JobNotFoundError: there is no such live job.
        """
        return await run(self._queue.cancel, job_id)

    async def purge(self) -> int:
        """Delete all due, scheduled and blocked jobs, but no running ones, in batches; return how many."""
        return await run(self._queue.purge)
