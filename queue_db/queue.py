"""The public face: :class:`QueueDB` opens a database, :class:`Queue` enqueues, claims and settles.

Every transaction of the package begins here (through ``database.run``), save those of the migrations. The work itself is in
``store/``, which takes a Connection; that is what lets the same verbs run on an asynchronous engine.
"""

from __future__ import annotations

import json
import os
import random
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar, Self

from sqlalchemy import URL, Connection, Engine

from queue_db import arguments, backoff, intake, migrate, progress, upcoming
from queue_db.claiming import Claiming, Won
from queue_db.codecs import Codec, JSONCodec
from queue_db.database import ATTEMPTS, Database
from queue_db.dead import DeadJobs, job_from_row
from queue_db.enqueuing import Enqueuing
from queue_db.errors import ArgumentError, JobNotFoundError
from queue_db.hints import Hints
from queue_db.leased import LeasedJob
from queue_db.model import (
    Batch,
    Controls,
    Counters,
    Finished,
    Job,
    JobError,
    Kept,
    NewJob,
    QueueStats,
    Said,
    State,
    Verdict,
    WorkerInfo,
    from_micros,
)
from queue_db.payloads import Schema
from queue_db.removal import Removal, removal_for
from queue_db.schedules import Schedules
from queue_db.schema import DEFAULT_MAX_ATTEMPTS, KIND_LENGTH, QUEUE_LENGTH, WORKER_LENGTH, tables
from queue_db.settling import Settling
from queue_db.store import (
    Marks,
    Store,
    callbacks,
    controls,
    groups,
    history,
    insight,
    leaving,
    presence,
    settle,
    sweep,
    windows,
)
from queue_db.store.callbacks import Fate
from queue_db.strategies import Strategy, strategy_for
from queue_db.streams import Streams

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

#: Largest encoded payload, bytes. A job is a message; put files where files belong and enqueue their names.
MAX_PAYLOAD = 4 * 1024 * 1024

#: Most jobs in one claim.
MAX_CLAIM = 10_000

#: Failed attempts are remembered for so many seconds.
ERRORS_KEPT = 30 * 86_400.0

# Seconds between two looks of a wait for a result: first, longest.
_FIRST_WAIT = 0.005
_LONGEST_WAIT = 0.25

#: Within so many seconds workers heed what is said about a queue.
HEED_WITHIN = 1.5

# Seconds between two looks whether a paused queue has come to rest.
_BETWEEN_LOOKS = 0.05

# Looks at a job that changes between look and deletion.
_LOOKS = 5

# Microseconds; nobody ever sees such a lease.
_POP_LEASE = 60_000_000

_SWEEP_BATCH = 1000


def process_name(pid: int) -> str:
    """What a process of this machine is called as a worker, unless it says otherwise."""
    return f"{socket.gethostname()[:80]}:{pid}"


class QueueDB:
    """The queues of one database.

    :param url_or_engine: a database URL, or a SQLAlchemy Engine whose pool is to be shared.
    :param strategy: how claims win jobs: ``adaptive``, ``optimistic``, ``skip_locked``, ``pessimistic``, or a Strategy object.
    :param removal: how completed jobs leave: ``delete``, ``lock_then_delete``, ``delete_mark``, or a Removal object.
    :param table: name of the jobs table; the dead table is called ``<table>_dead``.
    :param schema: schema prefix of the tables.
    :param worker: the name that claimed jobs show; default host and process id.
    :param codec: payload ↔ text, JSON by default.
    :param retry_after: attempt number → seconds until the next try; default :func:`queue_db.backoff.exponential`.
    :param max_payload: largest encoded payload, bytes.
    :param clock: for tests: microseconds since 1970, instead of the database's clock.
    :raises ConfigurationError: unknown scheme, strategy or removal; driver not installed.
    :raises UnsupportedError: the server is too old, or lacks what the strategy or removal needs.
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
        retry_after: backoff.Backoff | None = None,
        max_payload: int = MAX_PAYLOAD,
        pool_size: int = 5,
        clock: Callable[[], int] | None = None,
    ) -> None:
        self.strategy = strategy_for(strategy)
        self.removal = removal_for(removal)
        self.worker = arguments.name("worker", worker or process_name(os.getpid()), WORKER_LENGTH)
        self.codec: Codec = codec or JSONCodec()
        self.retry_after = retry_after or backoff.exponential()
        self.max_payload = arguments.whole("max_payload", max_payload, 1)
        named = tables(table, schema)
        self.database = self._opens(url_or_engine, pool_size=pool_size)
        try:
            self.database.require(self.strategy.needs, f"strategy {self.strategy.name!r}")
            self.database.require(self.removal.needs, f"removal {self.removal.name!r}")
            self.store = Store(named, self.database.dialect, self.database.capabilities, clock)
            self._schema_seen = self._look()
        except BaseException:
            self.database.close()
            raise
        self.hints = Hints(self.store)
        self.dead = DeadJobs(self)
        self.streams = Streams(self)
        self.schedules = Schedules(self)
        self._queues: dict[str, Queue] = {}
        #: Called at each enqueue; what it returns is added to the headers of the jobs: for traces.
        self.stamp: Callable[[], Mapping[str, Any]] | None = None
        #: What payloads of a kind must look like; a worker's handlers add theirs.
        self.schemas: dict[str, Schema] = {}

    # --- the database -----------------------------------------------------------------------------------------------

    @property
    def url(self) -> str:
        """The database's URL, passwords masked."""
        return self.database.url

    @property
    def counters(self) -> Counters:
        """What happened since this object was made."""
        return self.database.counters

    def migrate(self, connection: Connection | None = None, *, revision: str = "head") -> None:
        """Bring the tables to ``revision`` ("head", "base" or a revision's name), up or down.

        On a ``connection`` it runs in the caller's transaction, which the caller commits.

        :raises ConfigurationError: when Alembic is not installed (``pip install "queue-db[migrate]"``).
        """
        migrate.run(self.database, self.store.tables, connection, revision)
        self._schema_seen = None

    def migration_sql(self, revision: str = "head") -> str:
        """The statements of :meth:`migrate` on an empty database, as text; nothing is executed."""
        return migrate.offline_sql(self.database.engine.dialect, self.store.tables, revision)

    def check(self) -> None:
        """Make sure that the tables are there and of this version.

        :raises SchemaOutOfDateError: with the command that fixes it.
        """
        self._schema_seen = QueueDB._look(self)
        migrate.require(self._schema_seen, self.store.tables, self.url)

    def _look(self) -> str | None:
        """The revision that the tables are at, read when the database is opened, so that no verb has to."""
        return migrate.found(self.database, self.store.tables)

    def ready(self) -> None:
        """:meth:`check` once: every verb calls it before its first statement."""
        if self._schema_seen != migrate.HEAD:
            self.check()

    def close(self) -> None:
        """Close the connections; those of an engine that was passed in stay with their owner."""
        self.database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return (
            f"<QueueDB {self.url} table={self.store.tables.name!r} strategy={self.strategy.name!r} removal={self.removal.name!r}>"
        )

    # --- queues -----------------------------------------------------------------------------------------------------

    def queue(self, name: str) -> Queue:
        """The queue of that name; it needs no creation. The same object for the same name."""
        arguments.name("queue", name, QUEUE_LENGTH)
        queue = self._queues.get(name)
        if queue is None:
            queue = self._queues.setdefault(name, Queue(self, name))
        return queue

    def queues(self) -> list[str]:
        """Names of the queues that have live or dead jobs."""
        self.ready()
        return self.database.run(lambda connection: insight.queues(connection, self.store), name="queues", write=False)

    def upcoming(self, queues: Iterable[str]) -> dict[str, float | None]:
        """Seconds until the next job of each queue is due: 0 or less where one is, None where there is no job.

        One statement for all of them, that reads one index entry for each priority. A running job counts at the end of its lease.
        """
        marks = {name: self.queue(name).marks for name in queues}
        self.ready()
        return upcoming.look(self.database, self.store, marks) if marks else {}

    def get(self, job_id: int) -> Job:
        """The job of that id, in whatever queue, live or dead.

        :raises JobNotFoundError: completed, cancelled, purged, or never there.
        """
        return self.look(None, job_id)

    def cancel(self, job_id: int) -> Verdict:
        """:meth:`Queue.cancel`, in whatever queue the job is."""
        return self.queue(self.get(job_id).queue).cancel(job_id)

    def look(self, queue: str | None, job_id: int) -> Job:
        """The job of that id in ``queue``, or in any."""
        arguments.whole("job_id", job_id, 0, 2**63 - 1)
        self.ready()
        found = self.database.run(partial(insight.find, store=self.store, queue=queue, job_id=job_id), name="get", write=False)
        if found is None:
            raise JobNotFoundError(job_id, "any queue" if queue is None else f"queue {queue!r}")
        row, state = found
        return job_from_row(row, state, self.codec)

    def rescue(self, worker: str) -> int:
        """Give back at once what a worker has in hand that is known to be dead; return how many jobs.

        Without this they come back when their leases run out. These attempts count. Should it live after all, its leases are lost.
        """
        arguments.name("worker", worker, WORKER_LENGTH)
        self.ready()

        def give_back(connection: Connection) -> int:
            self.store.dialect.begin(connection)
            controls.drop_shares(connection, self.store, worker)
            return settle.rescue(connection, self.store, worker)

        return self.database.run(give_back, name="rescue")

    def workers(self) -> list[WorkerInfo]:
        """The workers that have told of themselves within the last hour and have not left, by name."""
        self.ready()
        rows = self.database.run(partial(presence.everybody, store=self.store), name="workers", write=False)
        return [
            WorkerInfo(
                name=row.name,
                host=row.host.partition("/")[0],
                pid=row.pid,
                queues=json.loads(row.queues),
                state=row.state,
                in_hand=row.in_hand,
                counters=json.loads(row.counters),
                started_at=from_micros(row.started_at),
                seen_at=from_micros(row.seen_at),
                silent=max(0.0, (row.now - row.seen_at) / 1_000_000),
            )
            for row in rows
        ]

    def errors(self, job_id: int) -> list[JobError]:
        """The latest failed attempts of a job, live, dead or gone, first to last; at most ten."""
        arguments.whole("job_id", job_id, 0, 2**63 - 1)
        self.ready()
        rows = self.database.run(partial(history.errors_of, store=self.store, job_id=job_id), name="errors", write=False)
        return [
            JobError(row.attempt, from_micros(row.failed_at), row.worker, row.error_class, row.message, row.trace) for row in rows
        ]

    def finished(self, job_id: int) -> Finished:
        """What is kept of a completed job: its result, until it expires.

        :raises JobNotFoundError: it is not completed, nothing of it is kept, or it has expired.
        """
        arguments.whole("job_id", job_id, 0, 2**63 - 1)
        self.ready()
        row = self.database.run(partial(history.finished, store=self.store, job_id=job_id), name="finished", write=False)
        if row is None:
            raise JobNotFoundError(job_id, "the finished jobs")
        return self._finished(row)

    def finished_jobs(
        self, queue: str | None = None, *, kind: str | None = None, limit: int = 100, after: Finished | None = None
    ) -> list[Finished]:
        """What is kept of completed jobs, by id; ``after``: the last one of the page before.

        Looks through all that are kept, of whatever queue.
        """
        if queue is not None:
            arguments.name("queue", queue, QUEUE_LENGTH)
        if kind is not None:
            arguments.name("kind", kind, KIND_LENGTH)
        arguments.whole("limit", limit, 1)
        self.ready()
        above = -1 if after is None else after.id
        page = partial(history.finished_page, store=self.store, queue=queue, kind=kind, above=above, limit=limit)
        return [self._finished(row) for row in self.database.run(page, name="finished jobs", write=False)]

    def _finished(self, row: Any) -> Finished:
        return Finished(
            id=row.id,
            queue=row.queue,
            kind=row.kind,
            payload=None if row.payload is None else self.codec.decode(row.payload),
            result=None if row.result is None else self.codec.decode(row.result),
            attempts=row.attempts,
            worker=row.worker,
            created_at=from_micros(row.created_at),
            finished_at=from_micros(row.finished_at),
            expires_at=from_micros(row.expires_at),
        )

    def wait(self, job_id: int, timeout: float) -> Finished:
        """Wait until a job is completed, and return its result, which its handler must keep (``handles(…, keep=seconds)``).

        :param timeout: seconds.
        :raises JobNotFoundError: it is gone and nothing of it is kept, or it is dead.
        :raises TimeoutError: it is still there.
        """
        until = time.monotonic() + arguments.seconds("timeout", timeout) / 1_000_000
        pause = _FIRST_WAIT
        while True:
            try:
                return self.finished(job_id)
            except JobNotFoundError:
                try:
                    state = self.get(job_id).state
                except JobNotFoundError:
                    return self.finished(job_id)  # between the two looks it may have been completed
            if state is State.DEAD:
                raise JobNotFoundError(job_id, "the live jobs", state=state.value)
            left = until - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"job {job_id} is still {state.value} after {timeout:g} s")
            self.database.pause(min(left, pause * random.uniform(0.5, 1.0)))
            pause = min(2 * pause, _LONGEST_WAIT)

    def batch(self, batch_id: int) -> Batch | None:
        """How far a batch is that :meth:`Queue.enqueue_batch` made; None: all of it has left, and the job after it was enqueued."""
        arguments.whole("batch_id", batch_id, 0, 2**63 - 1)
        self.ready()
        row = self.database.run(partial(callbacks.find, store=self.store, callback=batch_id), name="batch", write=False)
        if row is None:
            return None
        return Batch(row.id, row.queue, row.jobs, row.pending, row.dead, row.cancelled, from_micros(row.created_at))

    def forget(self, *, errors_older_than: float = ERRORS_KEPT) -> int:
        """Delete results and keys that have expired, and failed attempts from longer than so many seconds ago; return how many.

        Workers do this once a minute.
        """
        age = arguments.seconds("errors_older_than", errors_older_than)
        self.ready()
        gone = 0
        for work in (
            partial(history.forget_finished, store=self.store, limit=_SWEEP_BATCH),
            partial(history.forget_errors, store=self.store, age=age, limit=_SWEEP_BATCH),
            partial(windows.forget, store=self.store, limit=_SWEEP_BATCH),
        ):
            while True:
                batch = self.database.run(work, name="forget")
                gone += batch
                if batch < _SWEEP_BATCH:
                    break
        return gone

    def sweep(self, limit: int | None = None) -> int:
        """Delete jobs that were completed under ``removal="delete_mark"``, in batches; return how many."""
        self.ready()
        swept = 0
        while limit is None or swept < limit:
            batch = _SWEEP_BATCH if limit is None else min(_SWEEP_BATCH, limit - swept)
            gone = self.database.run(partial(sweep.delete_marked, store=self.store, limit=batch), name="sweep")
            swept += gone
            if gone < batch:
                break
        return swept


class Queue:
    """One queue: enqueue, claim, settle, look. Safe to share between threads; get it from :meth:`QueueDB.queue`."""

    def __init__(self, db: QueueDB, name: str) -> None:
        self.db = db
        self.name = name
        self._intake = intake.Intake(name, db.codec, db.max_payload, db.schemas)
        self._enqueuing = Enqueuing(db.database, db.store, db.hints, name)
        self._claiming = Claiming(db.database, db.store, db.strategy, name, db.worker)
        self._settling = Settling(db.database, db.store, db.removal, db.retry_after, self, db.worker, db.hints)

    def __repr__(self) -> str:
        return f"<Queue {self.name!r} of {self.db.url}>"

    @property
    def marks(self) -> Marks:
        """Where its claims start."""
        return self._claiming.marks

    # --- enqueue ----------------------------------------------------------------------------------------------------

    def enqueue(
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
        using: Connection | Session | None = None,
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
        :param using: a Connection or Session: the job commits or rolls back with the caller's own data.
        :raises ArgumentError, PayloadError: nothing was enqueued.
        :raises DuplicateJobError: a live job has the key; nothing was enqueued.
        """
        if self.db.stamp is not None:
            headers = {**self.db.stamp(), **(headers or {})}
        options = {
            "delay": delay,
            "run_at": run_at,
            "priority": priority,
            "unique_key": unique_key,
            "unique_for": unique_for,
            "group": group,
            "max_attempts": max_attempts,
            "headers": headers,
        }
        job = self._intake.job(kind, payload, options)
        policy = intake.policy(on_duplicate)
        self.db.ready()
        job_id = self._enqueuing.one(job, policy, using)
        if using is None:
            self.marks.add(job.priority)
        return job_id

    def enqueue_many(
        self,
        jobs: Iterable[tuple[str, Any] | tuple[str, Any, Mapping[str, Any]]],
        *,
        on_duplicate: str = "raise",
        using: Connection | Session | None = None,
    ) -> list[int | None]:
        """Add jobs from any iterable of ``(kind, payload)`` or ``(kind, payload, options)``; return their ids by position.

        ``options`` are the keyword arguments of :meth:`enqueue` that belong to one job. The iterable is read in chunks of 1000 and
        everything is one transaction: all jobs or none. None stands where ``on_duplicate="skip"`` skipped a job.
        """
        policy = intake.policy(on_duplicate)
        self.db.ready()
        return self._enqueuing.many(self._chunks(jobs), policy, using)

    def enqueue_batch(
        self,
        jobs: Iterable[tuple[str, Any] | tuple[str, Any, Mapping[str, Any]]],
        then: tuple[str, Any] | tuple[str, Any, Mapping[str, Any]],
        *,
        on_duplicate: str = "raise",
        using: Connection | Session | None = None,
    ) -> tuple[int, list[int | None]]:
        """Add jobs as :meth:`enqueue_many` does, and a job that is enqueued when all of them have left the queue.

        It is enqueued once, in the transaction in which the last of them leaves: completed, dead or cancelled. Its headers say what
        became of them: ``{"batch": {"id": …, "jobs": …, "dead": …, "cancelled": …}}``. A dead job that is redriven counts no more.

        :param then: that job; its ``options`` may be ``priority``, ``max_attempts`` and ``headers``.
        :param on_duplicate: ``raise`` or ``skip``; skipped jobs are not waited for.
        :return: the batch's id, for :meth:`QueueDB.batch`, and the jobs' ids by position.
        """
        policy = intake.policy(on_duplicate)
        if policy.last_wins:
            raise ArgumentError(f"on_duplicate={on_duplicate!r}: a job that replaces another cannot be counted; use raise or skip")
        callback = self._intake.callback(then)
        self.db.ready()
        return self._enqueuing.batch(self._chunks(jobs), callback, policy, using)

    def _chunks(self, jobs: Iterable[Any]) -> Iterator[list[NewJob]]:
        return self._intake.chunks(jobs, None if self.db.stamp is None else self.db.stamp())

    # --- claim ------------------------------------------------------------------------------------------------------

    def claim(self, limit: int = 1, lease: float = 60.0, *, delete: bool = False) -> list[LeasedJob]:
        """Take up to ``limit`` due jobs for ``lease`` seconds, lowest priority number first, then longest due.

        The list may be shorter than ``limit`` and may be empty. A claim that lost every candidate to others tries a few times with
        short random pauses, then comes back empty and is counted as ``contended``.

        :param delete: take them out of the table for good, as :meth:`pop` does: nothing is left to settle, every verb answers LOST.
        """
        micros = arguments.seconds("lease", lease, zero=False)
        codec = self.db.codec
        return [LeasedJob(row, self, codec, token) for row, token in self._claim(limit, micros, pop=delete)]

    def pop(self, limit: int = 1) -> list[Job]:
        """Take up to ``limit`` due jobs out of the queue for good, in claim order: *at most once*.

        They are gone when this returns, and nothing brings them back: not for work that may be done twice but for work that may
        rather be left undone. One commit per batch instead of two.
        """
        stored = {"queue": self.name, "worker": self.db.worker}
        return [
            job_from_row(SimpleNamespace(**row._asdict(), **stored), State.RUNNING, self.db.codec)
            for row, _ in self._claim(limit, _POP_LEASE, pop=True)
        ]

    def _claim(self, limit: int, micros: int, *, pop: bool = False) -> list[Won]:
        arguments.whole("limit", limit, 1, MAX_CLAIM)
        self.db.ready()
        return self._claiming.claim(limit, micros, pop=pop)

    # --- settle -----------------------------------------------------------------------------------------------------

    def complete_many(
        self,
        jobs: Sequence[LeasedJob],
        *,
        using: Connection | Session | None = None,
        kept: Sequence[Kept | None] | None = None,
    ) -> list[Verdict]:
        """The work of these jobs is done; one verdict per job, in one or two statements.

        :param kept: what is remembered of each, for :meth:`QueueDB.finished`; None: nothing.
        """
        return self._settling.complete(jobs, using, kept)

    def fail_many(
        self,
        jobs: Sequence[LeasedJob],
        error: BaseException | str | Sequence[BaseException | str],
        *,
        retry_in: float | Sequence[float | None] | None = None,
        last: Sequence[bool] | None = None,
    ) -> list[Verdict]:
        """These attempts failed, all for one reason or each for its own; jobs out of attempts go to the dead table.

        :param retry_in: seconds until the next attempt, for all or for each; None: the backoff.
        :param last: whether this was the last attempt, for each; default: as its ``max_attempts`` says.
        """
        return self._settling.fail(jobs, error, retry_in, last)

    def snooze_many(self, jobs: Sequence[LeasedJob], seconds: float) -> list[Verdict]:
        """Bring these jobs back in ``seconds``; not an attempt."""
        return self._settling.give_back(jobs, "snooze", arguments.seconds("seconds", seconds))

    def release_many(self, jobs: Sequence[LeasedJob]) -> list[Verdict]:
        """Give these jobs back at once, unworked; not an attempt."""
        verdicts = self._settling.give_back(jobs, "release", 0)
        if any(verdicts):
            self.db.database.run(lambda connection: self.db.hints.tell(connection, self.name), name="hint")
            self.db.hints.ring(self.name)
        return verdicts

    def extend_many(self, jobs: Sequence[LeasedJob], seconds: float) -> list[Verdict]:
        """Hold the leases of these jobs for ``seconds`` from now; their versions go up by one."""
        return self._settling.extend(jobs, seconds)

    def cancel_many(self, jobs: Sequence[LeasedJob]) -> list[Verdict]:
        """The work of these jobs is no longer wanted."""
        return self._settling.cancel(jobs)

    def bury_many(self, jobs: Sequence[LeasedJob], error: BaseException | str | Sequence[BaseException | str]) -> list[Verdict]:
        """Send these jobs to the dead table, all for one reason or each for its own."""
        return self._settling.bury(jobs, error)

    def progress_of(self, job: LeasedJob, said: Said) -> Verdict:
        """Write what is said about a leased job: :meth:`LeasedJob.progress` elsewhere than in a worker."""
        found = progress.tell(self.db.database, self.db.store, {job: said}, attempts=ATTEMPTS)
        return Verdict.APPLIED if found else Verdict.LOST

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """A connection in a transaction of the caller's, for ``using=``: committed at the end of the block, or rolled back."""
        self.db.ready()
        with self.db.database.begin("transaction") as connection:
            yield connection

    # --- look -------------------------------------------------------------------------------------------------------

    def get(self, job_id: int) -> Job:
        """The job as it stands, live or dead.

        :raises JobNotFoundError: completed, cancelled, purged, or never there.
        """
        return self.db.look(self.name, job_id)

    def peek(self, limit: int = 10) -> list[Job]:
        """The due jobs that claims would find, in their order, without taking them."""
        arguments.whole("limit", limit, 1, MAX_CLAIM)
        self.db.ready()
        rows = self.db.database.run(
            lambda connection: insight.next_due(connection, self.db.store, self.name, limit), name="peek", write=False
        )
        return [job_from_row(row, State.AVAILABLE, self.db.codec) for row in rows]

    def stats(self) -> QueueStats:
        """Counts by state and kind, and the age of the longest waiting due job. Reads the whole queue."""
        self.db.ready()
        return self.db.database.run(
            lambda connection: insight.stats(connection, self.db.store, self.name), name="stats", write=False
        )

    # --- control ----------------------------------------------------------------------------------------------------

    def pause(self, *, wait: float | None = None) -> bool:
        """Let no worker claim from this queue, until :meth:`resume`, also when they start anew.

        :param wait: seconds to wait until none of its jobs runs any more.
        :return: whether none runs; without ``wait`` True.
        """
        self._control(paused=1)
        if wait is None:
            return True
        until = time.monotonic() + arguments.seconds("wait", wait) / 1_000_000
        # Workers need a moment to hear of it: two looks without a running job, longer apart than that.
        quiet_since: float | None = None
        while True:
            now = time.monotonic()
            running = self.stats().running
            quiet_since = None if running else quiet_since or now
            if quiet_since is not None and now - quiet_since > HEED_WITHIN:
                return True
            if now >= until:
                return False
            self.db.database.pause(_BETWEEN_LOOKS)

    def resume(self) -> None:
        """Let workers claim again."""
        self._control(paused=0)

    def limit(
        self, *, concurrency: int | None = None, rate: int | None = None, per: float = 1.0, per_group: int | None = None
    ) -> None:
        """What all workers together may do; without arguments: whatever they can.

        It holds for workers, in all processes, within a second; :meth:`claim` by itself does not ask.

        :param concurrency: most jobs of this queue in hand at once.
        :param rate: most jobs begun in ``per`` seconds. After a rest so many may be begun at once.
        :param per_group: most jobs of one group in hand at once; default: one. This holds for every claim.
        """
        self._control(
            concurrency=None if concurrency is None else arguments.whole("concurrency", concurrency, 1),
            rate=None if rate is None else arguments.whole("rate", rate, 1),
            per=None if rate is None else arguments.seconds("per", per, zero=False),
            spent_until=0,
            per_group=None if per_group is None else arguments.whole("per_group", per_group, 1),
        )
        self.mend()

    def mend(self) -> None:
        """Let the groups of this queue go on whose next jobs wait for nothing: after a job was deleted by hand, or a limit changed.

        Workers do this once a minute.
        """
        self.db.ready()
        store = self.db.store

        def look_and_mend(connection: Connection) -> set[str]:
            return groups.mend(connection, store, groups.incomplete(connection, store, self.name))

        self._ring(self.db.database.run(look_and_mend, name="mend"))

    def controls(self) -> Controls:
        """What is said about this queue."""
        self.db.ready()
        found = self.db.database.run(
            lambda connection: controls.read(connection, self.db.store, [self.name]), name="controls", write=False
        )
        return found.get(self.name, Controls())

    def _control(self, **values: int | None) -> None:
        self.db.ready()
        self.db.database.put(partial(controls.write, store=self.db.store, queue=self.name, values=values), name="control")

    def _ring(self, queues: Iterable[str]) -> None:
        for queue in queues:
            self.db.hints.ring(queue)

    # --- remove -----------------------------------------------------------------------------------------------------

    def cancel(self, job_id: int) -> Verdict:
        """Take a job out of the queue, whatever its state; a worker that has it will find its lease lost.

        LOST: a stream holds the job, which cannot be called back; or others changed it each time.

        :raises JobNotFoundError: there is no such live job.
        """
        store = self.db.store
        for _ in range(_LOOKS):
            job = self.get(job_id)
            if job.state is State.DEAD:
                break
            remove = partial(leaving.delete, store=store, pairs=[(job.id, job.version)], fate=lambda _: Fate.CANCELLED)
            gone, fed = self.db.database.run(remove, name="cancel")
            self._ring(fed)
            if gone:
                return Verdict.APPLIED
            # It changed between look and deletion (claimed, extended, settled): look again.
        else:
            return Verdict.LOST
        raise JobNotFoundError(job_id, f"queue {self.name!r}", state=State.DEAD.value)

    def purge(self) -> int:
        """Delete all jobs that are there and that nobody works on, due, scheduled and blocked, in batches; return how many."""
        self.db.ready()
        # What comes meanwhile stays, such as the job after a batch.
        upto = self.db.database.run(partial(sweep.highest, store=self.db.store), name="purge", write=False)
        deleted, above = 0, -1
        while True:
            batch = partial(sweep.delete_waiting, store=self.db.store, queue=self.name, above=above, upto=upto, limit=_SWEEP_BATCH)
            gone, last, fed = self.db.database.run(batch, name="purge")
            deleted += gone
            self._ring(fed)
            if last is None:
                return deleted
            above = last
