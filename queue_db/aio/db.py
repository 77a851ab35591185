# Generated from queue_db/db.py. Do not change it: `make aio` writes it anew.
"""QueueDB for asyncio."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from sqlalchemy import URL
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from queue_db import backoff
from queue_db.aio.opening import Opening
from queue_db.aio.queue import AsyncQueue
from queue_db.codecs import Codec, Schema
from queue_db.concurrency.greenlets import joined, opened, run
from queue_db.db import ERRORS_KEPT, GRAPH_KEPT, MAX_PAYLOAD
from queue_db.dialects.borrowed import AsyncUsing
from queue_db.model import Counters, Job, State, Verdict
from queue_db.removal import Removal
from queue_db.slices import load, type_hint
from queue_db.store.wakeups import Notifications
from queue_db.strategies import Strategy

if TYPE_CHECKING:
    from queue_db.dead.aio import AsyncDeadJobs
    from queue_db.feeds.aio.feeds import AsyncFeed, AsyncFeeds
    from queue_db.graphs.aio import AsyncGraphs
    from queue_db.graphs.building import NewGraph
    from queue_db.groups.verbs import Batch
    from queue_db.monitoring.aio import AsyncActions, AsyncMetrics
    from queue_db.monitoring.failures import FailureGroup
    from queue_db.monitoring.model import Finished, JobError, WorkerInfo
    from queue_db.routes.aio import AsyncRoutes, AsyncTopic
    from queue_db.schedules.aio import AsyncSchedules
    from queue_db.spark.streams.aio import AsyncStreams
    from queue_db.steps.aio import AsyncSteps
    from queue_db.tokens.aio import AsyncTokens
else:
    AsyncDeadJobs = type_hint("queue_db.dead.aio", "AsyncDeadJobs")
    AsyncFeed = type_hint("queue_db.feeds.aio.feeds", "AsyncFeed")
    AsyncFeeds = type_hint("queue_db.feeds.aio.feeds", "AsyncFeeds")
    AsyncGraphs = type_hint("queue_db.graphs.aio", "AsyncGraphs")
    NewGraph = type_hint("queue_db.graphs.building", "NewGraph")
    Batch = type_hint("queue_db.groups.verbs", "Batch")
    AsyncActions = type_hint("queue_db.monitoring.aio", "AsyncActions")
    AsyncMetrics = type_hint("queue_db.monitoring.aio", "AsyncMetrics")
    FailureGroup = type_hint("queue_db.monitoring.failures", "FailureGroup")
    Finished = type_hint("queue_db.monitoring.model", "Finished")
    JobError = type_hint("queue_db.monitoring.model", "JobError")
    WorkerInfo = type_hint("queue_db.monitoring.model", "WorkerInfo")
    AsyncRoutes = type_hint("queue_db.routes.aio", "AsyncRoutes")
    AsyncTopic = type_hint("queue_db.routes.aio", "AsyncTopic")
    AsyncSchedules = type_hint("queue_db.schedules.aio", "AsyncSchedules")
    AsyncStreams = type_hint("queue_db.spark.streams.aio", "AsyncStreams")
    AsyncSteps = type_hint("queue_db.steps.aio", "AsyncSteps")
    AsyncTokens = type_hint("queue_db.tokens.aio", "AsyncTokens")


class AsyncQueueDB(Opening):
    """The queues of one database, for the tasks of one event loop.

    ``async with AsyncQueueDB(url) as db:`` opens and closes it; or :meth:`open` and :meth:`close`.

    If the task of a verb is cancelled, the verb takes effect wholly or not at all, and its connection is closed. The queue's next
    claim releases the jobs that a cancelled claim won. Without a next claim they are due again when their leases end.

    :param url_or_engine: a database URL, or a SQLAlchemy AsyncEngine, to share its pool. When the server becomes read-only,
        as after a failover, the engine is disposed: its idle connections are closed. This applies to the caller's engine too.
    :param strategy: how claims win jobs: ``adaptive``, ``optimistic``, ``skip_locked``, ``pessimistic``, or a Strategy object.
    :param removal: how completed jobs leave: ``delete``, ``lock_then_delete``, ``delete_mark``, or a Removal object.
    :param table: name of the jobs table; the dead table is ``<table>_dead``.
    :param schema: schema prefix of the tables.
    :param worker: the name that claimed jobs show; default host, process id and a random part.
    :param codec: payload ↔ text, JSON by default.
    :param schemas: payload schemas by kind: a pydantic model, a msgspec Struct, a dataclass, or a function. An enqueue refuses a
        payload that does not fit. It also accepts an object of the model as the payload.
    :param retry_after: a function: attempt number → seconds until the next try; default :func:`queue_db.backoff.exponential`.
        If it raises or returns an impossible wait, the default wait is used for that job, and an error is logged.
    :param max_payload: largest encoded payload, bytes.
    :param pool_size: connections that stay open while idle, 1 to 1,000; more are opened when needed.
    :param replicas: the URL of replicas of the database, one address or several. From there come ``stats``, lists of jobs, failures
        and actions, the history of metrics, and full pages of ``Feed.read``; from the primary, if no replica answers.
    :param max_replica_lag: a replica that is more than this many seconds behind is not read.
    :param clock: for tests: a function that returns microseconds since 1970, used instead of the database's clock.
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
        schemas: Mapping[str, Any] | None = None,
        retry_after: backoff.Backoff | None = None,
        max_payload: int = MAX_PAYLOAD,
        pool_size: int = 5,
        replicas: str | URL | None = None,
        max_replica_lag: float = 10.0,
        clock: Callable[[], int] | None = None,
    ) -> None:
        super().__init__(
            url_or_engine,
            strategy,
            removal,
            table,
            schema=schema,
            worker=worker,
            codec=codec,
            schemas=schemas,
            retry_after=retry_after,
            max_payload=max_payload,
            pool_size=pool_size,
            replicas=replicas,
            max_replica_lag=max_replica_lag,
            clock=clock,
        )

    @property
    def dead(self) -> AsyncDeadJobs:
        """Dead jobs."""
        twin: AsyncDeadJobs = load("dead.aio", "AsyncDeadJobs")(self._db.dead)
        return twin

    @property
    def schedules(self) -> AsyncSchedules:
        """Jobs enqueued by cron lines or at intervals."""
        twin: AsyncSchedules = load("schedules.aio", "AsyncSchedules")(self._db.schedules)
        return twin

    @property
    def actions(self) -> AsyncActions:
        """The log of what people and programs with tokens changed."""
        twin: AsyncActions = load("monitoring.aio", "AsyncActions")(self._db.actions)
        return twin

    @property
    def metrics(self) -> AsyncMetrics:
        """The numbers of each queue, now and over time."""
        twin: AsyncMetrics = load("monitoring.aio", "AsyncMetrics")(self._db.metrics)
        return twin

    @property
    def feeds(self) -> AsyncFeeds:
        """The feeds of the database."""
        twin: AsyncFeeds = load("feeds.aio.feeds", "AsyncFeeds")(self._db.feeds)
        return twin

    @property
    def routes(self) -> AsyncRoutes:
        """The routes of the database."""
        twin: AsyncRoutes = load("routes.aio", "AsyncRoutes")(self._db.routes)
        return twin

    @property
    def steps(self) -> AsyncSteps:
        """The steps of jobs, and the signals that jobs wait for."""
        twin: AsyncSteps = load("steps.aio", "AsyncSteps")(self._db.steps)
        return twin

    @property
    def tokens(self) -> AsyncTokens:
        """The API tokens of the service."""
        twin: AsyncTokens = load("tokens.aio", "AsyncTokens")(self._db.tokens)
        return twin

    @property
    def streams(self) -> AsyncStreams:
        """Jobs held by Spark streams."""
        twin: AsyncStreams = load("spark.streams.aio", "AsyncStreams")(self._db.streams)
        return twin

    @property
    def graphs(self) -> AsyncGraphs:
        """The graphs of the database."""
        twin: AsyncGraphs = load("graphs.aio", "AsyncGraphs")(self._db.graphs)
        return twin

    @property
    def notifications(self) -> Notifications:
        """Wakes the workers of this process, and notifies other processes."""
        return self._db.notifications

    @property
    def schemas(self) -> dict[str, Schema]:
        """Payload schemas by kind: those given to this object, and those that the handlers of its workers add."""
        return self._db.schemas

    @property
    def url(self) -> str:
        """The database's URL, passwords masked."""
        return self._db.url

    @property
    def worker(self) -> str:
        """The worker name that jobs claimed by this object show."""
        return self._db.worker

    @property
    def counters(self) -> Counters:
        """Counts of claims, settles, retries and errors since this object was made."""
        return self._db.counters

    @property
    def header_provider(self) -> Callable[[], Mapping[str, Any]] | None:
        """Called at each enqueue; its result is added to the headers of the jobs, for example for traces."""
        return self._db.header_provider

    @header_provider.setter
    def header_provider(self, header_provider: Callable[[], Mapping[str, Any]] | None) -> None:
        self._db.header_provider = header_provider

    async def migrate(self, connection: AsyncConnection | None = None, *, revision: str = "head") -> None:
        """Upgrade or downgrade the tables to ``revision`` ("head", "base" or a revision's name).

        With ``connection`` this runs in the caller's transaction, and the caller commits.

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

        :raises SchemaOutOfDateError: the tables are missing or of another version; the message has the command that fixes this.
        """
        await run(self._db.check)

    async def close(self) -> None:
        """Close the connections; a caller's own engine stays open. Every verb raises ConfigurationError from then on."""
        await self._close()

    def queue(self, name: str) -> AsyncQueue:
        """The queue with this name; it need not be created first. The same name always gives the same object."""
        return self._queues[name]

    def feed(self, name: str) -> AsyncFeed:
        """The feed with this name; it need not be created first. The same name always gives the same object."""
        return self._feeds[name]

    def topic(self, name: str) -> AsyncTopic:
        """The topic with this name, to publish to; :attr:`routes` decides where its messages go."""
        found = self._db.topic(name)
        twin: AsyncTopic = load("routes.aio", "AsyncTopic")(found)
        return twin

    def graph(self, name: str | None = None, *, keep: float = GRAPH_KEPT, using: AsyncUsing | None = None) -> NewGraph:
        """Describe a graph of jobs in a ``with`` block; a coroutine uses ``async with``. The end of the block enqueues the jobs.

        All of them are enqueued, in one transaction, or none: also if the block raises an exception.

        :param name: shown with the graph; several graphs may have the same name.
        :param keep: seconds for which the graph and its results are kept after its end.
        :param using: an AsyncConnection or AsyncSession: the jobs commit or roll back with the caller's own data.
        """
        return self._db.graph(name, keep=keep, using=joined(using))

    async def queues(self) -> list[str]:
        """Names of the queues that have live or dead jobs."""
        return await run(self._db.queues)

    async def next_due(self, queues: Iterable[str]) -> dict[str, float | None]:
        """Seconds until the next job of each queue is due: 0 or less if one is due, None for an empty queue.

        One statement for each 100 queues; it reads one index entry per priority. A running job counts as due when its lease ends.
        """
        return await run(self._db.next_due, queues)

    async def now(self) -> datetime:
        """The time of the database's clock, by which jobs are due and leases end."""
        return await run(self._db.now)

    async def get(self, job_id: int, *, using: AsyncUsing | None = None) -> Job:
        """The job with this id, live or dead, in any queue.

        :param using: a transaction of yours, in which the job is read: it sees jobs that the transaction has added.
        :raises JobNotFoundError: it was completed, cancelled or purged, or never existed.
        """
        return await run(self._db.get, job_id, using=joined(using))

    async def state(self, job_id: int) -> State:
        """The state of a job. A job that has left its queue is COMPLETED while its result is retained, afterwards UNKNOWN.

        One statement reads it: a job that is being completed is either RUNNING or COMPLETED. UNKNOWN: nothing is left of the job.
        It was completed without a retained result, cancelled or purged, or it never existed.
        """
        return await run(self._db.state, job_id)

    async def cancel(self, job_id: int, *, version: int | None = None) -> Verdict:
        """:meth:`Queue.cancel` for a job of any queue."""
        return await run(self._db.cancel, job_id, version=version)

    async def rescue(self, worker: str) -> int:
        """Make the jobs of a dead worker, and its spans of shared cursors, due at once; return the number of jobs and spans.

        Without this call they become due when their leases end. The interrupted attempts are counted. A worker that is still alive
        loses its leases.
        """
        return await run(self._db.rescue, worker)

    async def workers(self) -> list[WorkerInfo]:
        """The registered workers with a heartbeat within the last hour, by name."""
        return await run(self._db.workers)

    async def errors(self, job_id: int) -> list[JobError]:
        """The latest failed attempts of a job, at most ten, oldest first; also of a job that has left its queue."""
        return await run(self._db.errors, job_id)

    async def failures(
        self, queue: str | None = None, *, kind: str | None = None, error_class: str | None = None, limit: int = 50
    ) -> list[FailureGroup]:
        """Groups of failed attempts by queue, kind and error class, the largest group first, each with its last error and trace.

        Only the newest 10,000 failed attempts of all queues are read. ``db.dead.redrive`` and ``db.dead.purge`` accept the queue,
        kind and error class of a group.

        :param error_class: only attempts with this error class; empty: only attempts for which a handler gave a reason.
        """
        return await run(self._db.failures, queue, kind=kind, error_class=error_class, limit=limit)

    async def finished(self, job_id: int, *, using: AsyncUsing | None = None) -> Finished:
        """The retained result of a completed job, until it expires.

        :param using: a transaction of yours, in which the result is read.
        :raises JobNotFinishedError: the job is not completed yet.
        :raises JobDeadError: the job is dead.
        :raises JobNotFoundError: its result was not retained or has expired, or it was cancelled or purged, or never existed.
        """
        return await run(self._db.finished, job_id, using=joined(using))

    async def finished_jobs(
        self, queue: str | None = None, *, kind: str | None = None, limit: int = 100, after: Finished | None = None
    ) -> list[Finished]:
        """The retained results of completed jobs, by id. ``after``: the last result of the previous page."""
        return await run(self._db.finished_jobs, queue, kind=kind, limit=limit, after=after)

    async def wait(self, job_id: int, timeout: float) -> Finished:
        """Wait until a job is completed and return its result. Its handler must retain results: ``handles(…, result_ttl=seconds)``.

        :param timeout: seconds.
        :raises JobDeadError: the job is dead.
        :raises JobNotFoundError: its result was not retained or has expired, or it was cancelled or purged, or never existed.
        :raises TimeoutError: the job is not completed after ``timeout`` seconds.
        """
        return await run(self._db.wait, job_id, timeout)

    async def batch(self, batch_id: int) -> Batch | None:
        """Progress of a batch of :meth:`Queue.enqueue_batch`; None: all its jobs have left and the callback job was enqueued."""
        return await run(self._db.batch, batch_id)

    async def batches(self, *, limit: int = 100, after: Batch | int | None = None) -> list[Batch]:
        """The batches with jobs still in a queue, newest first. ``after``: the last batch of the previous page, or its id."""
        return await run(self._db.batches, limit=limit, after=after)

    async def prune(self, *, errors_older_than: float = ERRORS_KEPT) -> int:
        """Delete expired results and unique keys, and failed attempts older than ``errors_older_than`` seconds; return the count.

        It also deletes entries of the action log after 90 days, and idempotency keys of publishes after one day. Workers call it
        once a minute.
        """
        return await run(self._db.prune, errors_older_than=errors_older_than)

    async def sweep(self, limit: int | None = None) -> int:
        """Delete jobs that were completed under ``removal="delete_mark"``, in batches; return how many.

        The first call reads the whole table, to find jobs that other versions of the package marked in their queues.
        """
        return await run(self._db.sweep, limit)
