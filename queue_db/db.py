""":class:`QueueDB`: it opens a database and gives access to its queues, and to everything that belongs to no single queue."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar, Self

from sqlalchemy import URL, Connection, Engine

from queue_db import arguments, backoff, codecs
from queue_db.codecs import Codec, JSONCodec, Schema
from queue_db.concurrency.keyed_cache import KeyedCache
from queue_db.core import Core
from queue_db.database.database import Database
from queue_db.database.replicas import Replicas
from queue_db.database.transaction import Run
from queue_db.dialects.borrowed import Using
from queue_db.model import Counters, Job, State, Verdict, from_micros
from queue_db.queue import Queue
from queue_db.removal import Removal, removal_for
from queue_db.slices import load, slices, type_hint
from queue_db.store import Store, settle
from queue_db.store.schema import QUEUE_LENGTH, WORKER_LENGTH
from queue_db.store.schema.tables import tables
from queue_db.store.wakeups import Notifications
from queue_db.strategies import Strategy, strategy_for
from queue_db.verbs.arrivals import Arrivals
from queue_db.verbs.next_due import next_due

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from queue_db.dead import DeadJobs
    from queue_db.feeds import Feed, Feeds
    from queue_db.graphs.building import NewGraph
    from queue_db.graphs.registry import Graphs
    from queue_db.groups.verbs import Batch
    from queue_db.monitoring.actions import Actions
    from queue_db.monitoring.failures import FailureGroup
    from queue_db.monitoring.metrics import Metrics
    from queue_db.monitoring.model import Finished, JobError, WorkerInfo
    from queue_db.routes import Routes, Topic
    from queue_db.schedules import Schedules
    from queue_db.spark.streams.registry import Streams
    from queue_db.steps.registry import Steps
    from queue_db.tokens.tokens import Tokens
else:  # the queue imports no slice
    Session = type_hint("sqlalchemy.orm", "Session")
    Batch, FailureGroup, Feed, Finished, JobError, NewGraph, Topic, WorkerInfo = (
        type_hint("queue_db", name)
        for name in ("Batch", "FailureGroup", "Feed", "Finished", "JobError", "NewGraph", "Topic", "WorkerInfo")
    )

#: Largest encoded payload, bytes. A job is a message: keep a file elsewhere and enqueue its name.
MAX_PAYLOAD = 4 * 1024 * 1024

#: Graphs and the results of their nodes are kept for this many seconds after their end.
GRAPH_KEPT = 86_400.0

#: Failed attempts are kept for this many seconds.
ERRORS_KEPT = 30 * 86_400.0

#: Largest ``pool_size``.
MOST_CONNECTIONS = 1000


class QueueDB:
    """The queues of one database.

    :param url_or_engine: a database URL, or a SQLAlchemy Engine, to share its pool. When the server becomes read-only, as
        after a failover, the engine is disposed: its idle connections are closed. This applies to the caller's engine too.
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
    :raises ArgumentError: ``retry_after`` is not a function of one number, or another value is outside its allowed range.
    :raises ConfigurationError: unknown scheme, strategy or removal; driver not installed.
    :raises UnsupportedError: the server is too old, or lacks a capability that the strategy or the removal needs.
    :raises StorageError: the server does not answer or refuses the login.
    """

    _opens: ClassVar[type[Database]] = Database

    def __init__(
        self,
        url_or_engine: str | URL | Engine,
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
        chosen_strategy, chosen_removal = strategy_for(strategy), removal_for(removal)
        worker = None if worker is None else arguments.name("worker", worker, WORKER_LENGTH)
        known = codecs.schemas_of(schemas)
        codec = JSONCodec() if codec is None else codecs.checked(codec)
        retry_after = backoff.exponential() if retry_after is None else backoff.checked("retry_after", retry_after)
        arguments.whole("max_payload", max_payload, 1)
        arguments.whole("pool_size", pool_size, 1, MOST_CONNECTIONS)
        max_replica_lag = arguments.seconds("max_replica_lag", max_replica_lag) / 1_000_000
        if clock is not None and not callable(clock):
            raise arguments.wrong("clock", clock, ": must be a function that returns microseconds since 1970")
        tables(table, schema)  # refuses bad names before anything is opened
        self.database = self._opens(url_or_engine, pool_size=pool_size)
        try:
            self.core = Core(
                self.database,
                tables(table, schema, unique_queue=self.database.dialect.unique_queue),
                strategy=chosen_strategy,
                removal=chosen_removal,
                codec=codec,
                schemas=known,
                retry_after=retry_after,
                max_payload=max_payload,
                worker=worker,
                clock=clock,
            )
            if replicas is not None:
                self.core.replicas = Replicas(replicas, self.database, self.core.store, max_replica_lag)
        except BaseException:
            self.database.close()
            raise
        self._queues: KeyedCache[Queue] = KeyedCache(lambda name: Queue(self.core, name, self))
        self._show_parts()

    def _show_parts(self) -> None:
        self.strategy, self.removal, self.codec = self.core.strategy, self.core.removal, self.core.codec
        #: Wakes the workers of this process, and notifies other processes.
        self.notifications: Notifications = self.core.notifications
        #: Reports the jobs that die in this process to listeners.
        self.deaths = self.core.deaths
        #: Payload schemas by kind: those given to this object, and those that the handlers of its workers add.
        self.schemas: dict[str, Schema] = self.core.schemas
        #: Dead jobs.
        self.dead: DeadJobs = load("dead.dead_jobs", "DeadJobs")(self.core)
        #: Jobs held by Spark streams.
        self.streams: Streams = load("spark.streams.registry", "Streams")(self.core)
        #: Jobs enqueued by cron lines or at intervals.
        self.schedules: Schedules = load("schedules.registry", "Schedules")(self.core)
        #: The steps of jobs, and the signals that jobs wait for.
        self.steps: Steps = load("steps.registry", "Steps")(self.core)
        #: The API tokens of the service.
        self.tokens: Tokens = load("tokens.tokens", "Tokens")(self.core)
        #: The log of what people and programs with tokens changed.
        self.actions: Actions = load("monitoring.actions", "Actions")(self.core)
        #: The numbers of each queue, now and over time.
        self.metrics: Metrics = load("monitoring.metrics", "Metrics")(self.core)
        #: The feeds of the database.
        self.feeds: Feeds = load("feeds.registry", "Feeds")(self.core)
        #: The routes of the database.
        self.routes: Routes = load("routes.registry", "Routes")(self.core, self.feed)
        #: The graphs of the database.
        self.graphs: Graphs = load("graphs.registry", "Graphs")(self.core)

    # --- the database -----------------------------------------------------------------------------------------------

    @property
    def url(self) -> str:
        """The database's URL, passwords masked."""
        return self.database.url

    @property
    def worker(self) -> str:
        """The worker name that jobs claimed by this object show."""
        return self.core.worker

    @property
    def counters(self) -> Counters:
        """Counts of claims, settles, retries and errors since this object was made."""
        return self.database.counters

    @property
    def store(self) -> Store:
        """The tables, for functions of :mod:`queue_db.store`."""
        return self.core.store

    @property
    def header_provider(self) -> Callable[[], Mapping[str, Any]] | None:
        """Called at each enqueue; its result is added to the headers of the jobs, for example for traces."""
        return self.core.header_provider

    @header_provider.setter
    def header_provider(self, header_provider: Callable[[], Mapping[str, Any]] | None) -> None:
        self.core.header_provider = header_provider

    def migrate(self, connection: Connection | None = None, *, revision: str = "head") -> None:
        """Upgrade or downgrade the tables to ``revision`` ("head", "base" or a revision's name).

        With ``connection`` this runs in the caller's transaction, and the caller commits.

        :raises ConfigurationError: when Alembic is not installed (``pip install "queue-db[migrate]"``).
        """
        self.core.migrate(connection, revision)

    def migration_sql(self, revision: str = "head", *, start: str = "base") -> str:
        """The SQL of :meth:`migrate` as text; nothing is executed.

        :param revision: "head", "base" or a revision's name, as for :meth:`migrate`.
        :param start: the revision that the tables are at; "base": an empty database.
        :raises ConfigurationError: there is no such revision, or Alembic is not installed.
        """
        dialect, tables = self.database.engine.dialect, self.store.tables
        sql: str = load("administration.migrate", "offline_sql")(dialect, tables, revision, start=start)
        return sql

    def check(self) -> None:
        """Check that the tables exist and that this version of the package works with them.

        Newer tables that only have additions are accepted, with a log line.

        :raises SchemaOutOfDateError: the tables are missing or of another version; the message has the command that fixes this.
        """
        self.core.check()

    def ready(self) -> None:
        """:meth:`check`, unless an earlier check of this object succeeded."""
        self.core.ready()

    def close(self) -> None:
        """Close the connections; a caller's own engine stays open. Every verb raises ConfigurationError from then on."""
        try:
            self.database.close()
        finally:
            # After the database is closed: closing the listener wakes tasks, which must find it closed.
            self.core.loop_listening.close()
            if self.core.replicas is not None:
                self.core.replicas.close()

    def __enter__(self) -> Self:
        self.database.check_open()
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return (
            f"<QueueDB {self.url} table={self.store.tables.name!r} strategy={self.strategy.name!r} removal={self.removal.name!r}>"
        )

    # --- queues -----------------------------------------------------------------------------------------------------

    def queue(self, name: str) -> Queue:
        """The queue with this name; it need not be created first. The same name always gives the same object."""
        return self._queues[arguments.name("queue", name, QUEUE_LENGTH)]

    def watch(self, *, queues: Callable[[Queue], None] | None = None, feeds: Callable[[Feed], None] | None = None) -> None:
        """Call a function with each queue, or feed, of this object: now with those that exist, with others before their first use.

        What watches verbs, such as tracing, sets others in their place on the object, so that it costs nothing elsewhere; they call
        what was there before. If the function raises, so does the call that has led to it: this one, and then the function is not
        called again, or :meth:`queue` or :meth:`feed`, and then it is called again by the next use of the name.
        """
        if queues is not None:
            self._queues.each(queues)
        if feeds is not None:
            self.feeds.each(feeds)

    def feed(self, name: str) -> Feed:
        """The feed with this name; it need not be created first. The same name always gives the same object."""
        return self.feeds.named(name)

    def topic(self, name: str) -> Topic:
        """The topic with this name, to publish to; :attr:`routes` decides where its messages go."""
        return self.routes.topic(name)

    def graph(self, name: str | None = None, *, keep: float = GRAPH_KEPT, using: Using | None = None) -> NewGraph:
        """Describe a graph of jobs in a ``with`` block; a coroutine uses ``async with``. The end of the block enqueues the jobs.

        All of them are enqueued, in one transaction, or none: also if the block raises an exception.

        :param name: shown with the graph; several graphs may have the same name.
        :param keep: seconds for which the graph and its results are kept after its end.
        :param using: a Connection or Session: the jobs commit or roll back with the caller's own data.
        """
        made: NewGraph = load("graphs.building", "new_graph")(self.core, name, keep, using)
        return made

    def queues(self) -> list[str]:
        """Names of the queues that have live or dead jobs."""
        return self.core.inspection.queues()

    def next_due(self, queues: Iterable[str]) -> dict[str, float | None]:
        """Seconds until the next job of each queue is due: 0 or less if one is due, None for an empty queue.

        One statement for each 100 queues; it reads one index entry per priority. A running job counts as due when its lease ends.
        """
        if isinstance(queues, str):
            raise arguments.wrong("queues", queues, f": must be a list of names: [{arguments.shown(queues)}]")
        names = [arguments.name("queue", name, QUEUE_LENGTH) for name in arguments.members("queues", queues, "names")]
        return next_due(self.core, names)

    def arrivals(self, *, poll: float = 0.5) -> Arrivals:
        """An object that waits until queues have due jobs, as a worker does; close it.

        :param poll: the longest pause between two polls, seconds.
        """
        return Arrivals(self.core, poll)

    def now(self) -> datetime:
        """The time of the database's clock, by which jobs are due and leases end."""
        return from_micros(self.core.now())

    def get(self, job_id: int, *, using: Using | None = None) -> Job:
        """The job with this id, live or dead, in any queue.

        :param using: a transaction of yours, in which the job is read: it sees jobs that the transaction has added.
        :raises JobNotFoundError: it was completed, cancelled or purged, or never existed.
        """
        return self.core.administration.get(job_id, using=using)

    def state(self, job_id: int) -> State:
        """The state of a job. A job that has left its queue is COMPLETED while its result is retained, afterwards UNKNOWN.

        One statement reads it: a job that is being completed is either RUNNING or COMPLETED. UNKNOWN: nothing is left of the job.
        It was completed without a retained result, cancelled or purged, or it never existed.
        """
        return self.core.inspection.state(job_id)

    def cancel(self, job_id: int, *, version: int | None = None) -> Verdict:
        """:meth:`Queue.cancel` for a job of any queue."""
        return self.core.administration.cancel(job_id, None, version)

    def rescue(self, worker: str) -> int:
        """Make the jobs of a dead worker, and its spans of shared cursors, due at once; return the number of jobs and spans.

        Without this call they become due when their leases end. The interrupted attempts are counted. A worker that is still alive
        loses its leases.
        """
        arguments.name("worker", worker, WORKER_LENGTH)
        return self.core.run(Run("rescue"), settle.rescue, worker) + sum(
            self.core.write(f"{name}.rescue", part.rescue, worker) or 0
            for name, part in slices().items()
            if part.rescue is not None
        )

    def workers(self) -> list[WorkerInfo]:
        """The registered workers with a heartbeat within the last hour, by name."""
        return self.core.inspection.workers()

    def errors(self, job_id: int) -> list[JobError]:
        """The latest failed attempts of a job, at most ten, oldest first; also of a job that has left its queue."""
        return self.core.inspection.errors(job_id)

    def failures(
        self, queue: str | None = None, *, kind: str | None = None, error_class: str | None = None, limit: int = 50
    ) -> list[FailureGroup]:
        """Groups of failed attempts by queue, kind and error class, the largest group first, each with its last error and trace.

        Only the newest 10,000 failed attempts of all queues are read. ``db.dead.redrive`` and ``db.dead.purge`` accept the queue,
        kind and error class of a group.

        :param error_class: only attempts with this error class; empty: only attempts for which a handler gave a reason.
        """
        return self.core.inspection.failures(queue, kind, error_class, limit)

    def finished(self, job_id: int, *, using: Using | None = None) -> Finished:
        """The retained result of a completed job, until it expires.

        :param using: a transaction of yours, in which the result is read.
        :raises JobNotFinishedError: the job is not completed yet.
        :raises JobDeadError: the job is dead.
        :raises JobNotFoundError: its result was not retained or has expired, or it was cancelled or purged, or never existed.
        """
        return self.core.inspection.finished(job_id, using)

    def finished_jobs(
        self, queue: str | None = None, *, kind: str | None = None, limit: int = 100, after: Finished | None = None
    ) -> list[Finished]:
        """The retained results of completed jobs, by id. ``after``: the last result of the previous page."""
        return self.core.inspection.finished_jobs(queue, kind, limit, after)

    def wait(self, job_id: int, timeout: float) -> Finished:
        """Wait until a job is completed and return its result. Its handler must retain results: ``handles(…, result_ttl=seconds)``.

        :param timeout: seconds.
        :raises JobDeadError: the job is dead.
        :raises JobNotFoundError: its result was not retained or has expired, or it was cancelled or purged, or never existed.
        :raises TimeoutError: the job is not completed after ``timeout`` seconds.
        """
        return self.core.inspection.wait(job_id, timeout)

    def batch(self, batch_id: int) -> Batch | None:
        """Progress of a batch of :meth:`Queue.enqueue_batch`; None: all its jobs have left and the callback job was enqueued."""
        return self.core.groups.batch(batch_id)

    def batches(self, *, limit: int = 100, after: Batch | int | None = None) -> list[Batch]:
        """The batches with jobs still in a queue, newest first. ``after``: the last batch of the previous page, or its id."""
        return self.core.groups.batches(limit, after)

    def prune(self, *, errors_older_than: float = ERRORS_KEPT) -> int:
        """Delete expired results and unique keys, and failed attempts older than ``errors_older_than`` seconds; return the count.

        It also deletes entries of the action log after 90 days, and idempotency keys of publishes after one day. Workers call it
        once a minute.
        """
        return self.core.administration.prune(errors_older_than)

    def sweep(self, limit: int | None = None) -> int:
        """Delete jobs that were completed under ``removal="delete_mark"``, in batches; return how many.

        The first call reads the whole table, to find jobs that other versions of the package marked in their queues.
        """
        return self.core.administration.sweep(limit)
