"""A claimed job, and the verbs that settle it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager
from contextvars import ContextVar
from datetime import datetime
from hashlib import blake2b
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeGuard, TypeVar, cast, overload

from queue_db import arguments
from queue_db.codecs import Codec, JSONCodec, described
from queue_db.dialects.borrowed import AsyncUsing, Using, awaits, driver_of
from queue_db.errors import ArgumentError, PayloadError
from queue_db.in_graph import InGraph
from queue_db.job_transaction import JobTransaction
from queue_db.model import ClaimedRow, JobLinks, ProgressReport, Verdict, batch_of, from_micros, graph_of, links_of
from queue_db.outcomes import Cancel, Dead, Outcome, Retry, Snooze
from queue_db.resumable import Claimant, Resumable
from queue_db.slices import type_hint
from queue_db.store.schema import NOTE_LENGTH

if TYPE_CHECKING:
    from sqlalchemy import Connection
    from sqlalchemy.ext.asyncio import AsyncConnection
else:
    Connection, AsyncConnection = type_hint("sqlalchemy", "Connection"), type_hint("sqlalchemy.ext.asyncio", "AsyncConnection")

if TYPE_CHECKING:
    import typing_extensions

    #: The type of the payload, as in ``LeasedJob[Welcome]``; only type checkers use it.
    Payload_co = typing_extensions.TypeVar("Payload_co", covariant=True, default=Any)
else:
    Payload_co = TypeVar("Payload_co", covariant=True)

_HEADERS = JSONCodec()

#: In place of a payload that is not decoded yet.
UNREAD = object()

_claimant: ContextVar[Claimant | None] = ContextVar("queue_db_claimant", default=None)


@contextmanager
def claimed_by(claimant: Claimant) -> Iterator[None]:
    """Set the :attr:`LeasedJob.claimant` of jobs that this thread claims in the block, also of jobs that the claim buries."""
    before = _claimant.set(claimant)
    try:
        yield
    finally:
        _claimant.reset(before)


def claimant() -> Claimant | None:
    """The worker run for which this thread claims jobs; None: a program without a worker."""
    return _claimant.get()


def own_token(token: str, job_id: int) -> str:
    """The token of one job, made from the token of its claim: whoever knows it cannot settle the other jobs of the claim."""
    return blake2b(str(job_id).encode(), key=token.encode(), digest_size=16).hexdigest()


class Settler(Protocol):
    """The queue that a leased job was claimed from."""

    name: str

    def complete_many(self, jobs: list[LeasedJob], *, using: Using | None = None) -> list[Verdict]: ...
    def fail_many(self, jobs: list[LeasedJob], error: BaseException | str, *, retry_in: float | None = None) -> list[Verdict]: ...
    def snooze_many(self, jobs: list[LeasedJob], seconds: float) -> list[Verdict]: ...
    def release_many(self, jobs: list[LeasedJob]) -> list[Verdict]: ...
    def extend_many(self, jobs: list[LeasedJob], seconds: float) -> list[Verdict]: ...
    def cancel_many(self, jobs: list[LeasedJob]) -> list[Verdict]: ...
    def bury_many(self, jobs: list[LeasedJob], error: BaseException | str) -> list[Verdict]: ...
    def progress_of(self, job: LeasedJob, report: ProgressReport) -> Verdict: ...
    def records_of(self, job: LeasedJob) -> Any: ...
    def transaction(self) -> AbstractContextManager[Connection]: ...
    def transaction_on_loop(self) -> AbstractAsyncContextManager[AsyncConnection]: ...


class JobData:
    """The data of a claimed job, as it was when it was claimed."""

    __slots__ = ("_limit", "_row", "queue")

    def __init__(self, row: ClaimedRow, queue: str, limit: int | None = None) -> None:
        self._row = row
        self._limit = limit
        #: The name of the job's queue.
        self.queue = queue

    @property
    def id(self) -> int:
        """The number of the job. No other job ever gets this number."""
        return self._row.id

    @property
    def version(self) -> int:
        """The version of the row at the claim. The fence consists of the id and the version."""
        return self._row.version

    @property
    def kind(self) -> str:
        """Name that selects the handler."""
        return self._row.kind

    @property
    def headers(self) -> Mapping[str, Any]:
        """The headers given at enqueue; empty if none were given."""
        return decode_headers(self._row.headers)

    @property
    def priority(self) -> int:
        """Jobs with a lower number are claimed first."""
        return self._row.priority

    @property
    def attempts(self) -> int:
        """The number of this attempt, from 1."""
        return self._row.attempts

    @property
    def max_attempts(self) -> int:
        """After this many failed attempts the job is dead. A limit of the handler replaces the limit of the job."""
        return self._limit or self._row.max_attempts

    @property
    def unique_key(self) -> str | None:
        """At most one live job of the queue has this key."""
        return self._row.unique_key

    @property
    def group(self) -> str | None:
        """Jobs of one group run one at a time, or as many at once as the queue's limit allows."""
        return self._row.group_key

    @property
    def batch(self) -> int | None:
        """Id of the batch in which the job was enqueued, for ``db.batch``; None: no batch."""
        return batch_of(self._row.callback_id)

    @property
    def graph_id(self) -> int | None:
        """Id of the graph of which the job is a node, for ``db.graphs``; None: no graph."""
        return graph_of(self._row.callback_id)

    @property
    def created_at(self) -> datetime:
        """When the job was enqueued; aware, UTC."""
        return from_micros(self._row.created_at)

    @property
    def due_at(self) -> datetime | None:
        """When the job was due; aware, UTC. None: not known."""
        return None if self._row.due_at is None else from_micros(self._row.due_at)

    @property
    def last_error(self) -> str | None:
        """The error of the previous attempt, as text; None: no error is stored."""
        return self._row.last_error

    @property
    def fence(self) -> str:
        """``id:version`` for outside systems. They refuse a request with a lower version than they have seen for this id."""
        return f"{self.id}:{self.version}"

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.fence} {self.kind!r} in {self.queue!r}, attempt {self.attempts}/{self.max_attempts}>"


class LeasedJob(Resumable, InGraph, JobData, Generic[Payload_co]):
    """A claimed job: its data, and the verbs that settle it.

    Each verb returns a :class:`Verdict`: APPLIED, or LOST if the lease was lost. A lost lease is a normal outcome: stop, since
    another worker may have the job.
    """

    __slots__ = (
        "_claimed_at",
        "_codec",
        "_graph",
        "_lost",
        "_payload",
        "_report_to",
        "claimant",
        "dead",
        "has_dependents",
        "id",
        "lease_ends",
        "misfit",
        "ran",
        "resumption",
        "settled",
        "settled_by",
        "source",
        "token",
        "unconfirmed",
        "version",
        "worker",
    )

    id: int
    version: int
    #: The steps of this run; not set before the first one.
    resumption: Any

    def __init__(self, row: ClaimedRow, source: Settler, codec: Codec, token: str, worker: str | None = None) -> None:
        # For speed, this does not call JobData.__init__, and copies the id. This function and the settlement take most of the time
        # that the library spends on a job.
        self._row = row
        self._limit = None
        self.queue = source.name
        #: The queue object that claimed the job.
        self.source = source
        #: The number of the job. No other job ever gets this number.
        self.id = row.id
        self._codec = codec
        self._payload: Any = UNREAD
        self._lost: list[threading.Event] = []
        self._report_to: Callable[[LeasedJob, ProgressReport], Verdict] | None = None
        #: Random text of the claim. :meth:`Queue.lease_from_token` makes this object again from the id, the version and the token.
        self.token = token
        #: The worker name that was given to the claim; None: ``db.worker``.
        self.worker = worker
        #: The version of the lease; goes up when the lease is extended. The fence consists of the id and the version.
        self.version = row.version
        #: Whether the job has a group, a batch or a graph, so that another job may wait for it.
        self.has_dependents = row.group_key is not None or row.callback_id is not None
        #: End of the lease by the database's clock, microseconds since 1970.
        self.lease_ends = row.available_at
        self._claimed_at: int | None = None
        #: Whether a verb of this object has ended the lease, even if the caller's transaction is not committed yet.
        self.settled = False
        #: The verb that ended the lease: complete, fail, bury, snooze, defer, release or cancel; None: the job is leased.
        self.settled_by: str | None = None
        #: Counts the verb ``settled_by``, if a handler called it in its own transaction and it is not known whether that was
        #: committed; otherwise None. See :func:`~queue_db.job_transaction.confirm`.
        self.unconfirmed: Callable[[], None] | None = None
        #: Whether the verb ``settled_by`` moved the job to the dead table.
        self.dead = False
        #: The error if the codec cannot decode the payload, or the payload does not fit the handler's schema; otherwise None.
        self.misfit: PayloadError | None = None
        #: How long the job's handler ran, seconds; None: the handler was not called or still runs.
        self.ran: float | None = None
        #: The worker run that claimed the job; None: a program without a worker.
        self.claimant = _claimant.get()

    @property
    def payload(self) -> Payload_co:
        """The payload, decoded when it is first read.

        :raises PayloadError: the codec cannot decode the stored text, as after an INSERT by hand; ``payload_text`` has this text.
        """
        if self._payload is UNREAD:
            try:
                self._payload = self._codec.decode(self._row.payload)
            except Exception as error:
                self.misfit = PayloadError(kind=self.kind, reason=f"the stored text cannot be decoded: {described(error)}")
                raise self.misfit from error
        payload: Payload_co = self._payload
        return payload

    @property
    def payload_text(self) -> str:
        """The payload as it is stored."""
        return self._row.payload

    def understood(self, payload: Any) -> None:
        """Replace :attr:`payload` by ``payload``, the object that the handler's schema made of the decoded payload."""
        self._payload = payload

    def limit_attempts(self, most: int) -> None:
        """Set :attr:`max_attempts` to the handler's limit; the row gets this value when the attempt fails."""
        self._limit = most

    @property
    def limited(self) -> bool:
        """Whether :attr:`max_attempts` differs from the value in the row."""
        return self._limit is not None and self._limit != self._row.max_attempts

    def snapshot_row(self) -> ClaimedRow:
        """The row without the payload, for a copy of this job that gets its payload separately."""
        return self._row._replace(payload="", version=self.version, max_attempts=self.max_attempts)

    @property
    def waited(self) -> float | None:
        """Seconds from the due time to the claim, by the database's clock; None: not known."""
        if self._claimed_at is None or self._row.due_at is None:
            return None
        return (self._claimed_at - self._row.due_at) / 1_000_000

    @property
    def lease_expires(self) -> datetime:
        """End of the lease by the database's clock; aware, UTC."""
        return from_micros(self.lease_ends)

    @property
    def lost(self) -> threading.Event:
        """A worker sets this event when the lease is lost, the job is cancelled, or the timeout of the job is over.

        Then the handler should stop, since no result will count. A long handler checks the event between two steps:
        ``if job.lost.is_set(): return``.
        """
        if not self._lost:
            self._lost.append(threading.Event())  # if two threads come here, both return the first event
        return self._lost[0]

    def transaction(self) -> JobTransaction:
        """A transaction for the handler's own SQL that also completes the job: both happen or neither, *exactly-once effect*.

        The end of the block completes the job and commits. An exception rolls back. A coroutine uses ``async with``.

        :raises LeaseLostError: the lease was lost; the block's writes are rolled back.
        """
        return JobTransaction(self)

    @overload
    def complete(self, using: Using | None = None) -> Verdict: ...

    @overload
    def complete(self, using: AsyncUsing) -> Awaitable[Verdict]: ...

    def complete(self, using: Using | AsyncUsing | None = None) -> Verdict | Awaitable[Verdict]:
        """The work is done: the job leaves the queue.

        With ``using`` the job leaves in the caller's transaction, together with the caller's own writes: exactly-once effect. Then
        call ``.require()`` on the verdict, so that a lost lease rolls back the writes. A coroutine passes an AsyncConnection or
        AsyncSession, and awaits the verdict.
        """
        if using is not None and _is_for_tasks(using):
            return self._complete_in_task(using)
        return self.source.complete_many([self], using=cast("Using | None", using))[0]

    async def _complete_in_task(self, using: AsyncUsing) -> Verdict:
        """:meth:`complete` for a coroutine, in a transaction of its event loop.

        :raises ConfigurationError: the connection belongs to another event loop.
        """
        from queue_db.concurrency.greenlets import joined, run

        return (await run(self.source.complete_many, [self], using=joined(using)))[0]

    def rolled_back(self) -> None:
        """Tell that the transaction of ``complete(using=…)`` was rolled back: the job is leased as before.

        For a handler that goes on after a rollback: verbs, :attr:`state` and steps work again, and a worker extends the lease.
        Otherwise the worker finds it out when the handler has ended. Nothing is sent, so it is safe after a COMMIT without answer:
        if it was committed after all, the next verb returns LOST.
        """
        self.settled, self.settled_by, self.unconfirmed = False, None, None

    def fail(self, error: BaseException | str, retry_in: float | None = None) -> Verdict:
        """The attempt failed: the job is due again after ``retry_in`` seconds or the backoff. After its last attempt it is dead."""
        return self.source.fail_many([self], error, retry_in=retry_in)[0]

    def snooze(self, seconds: float) -> Verdict:
        """Make the job due again in ``seconds``; the attempt is not counted."""
        return self.source.snooze_many([self], seconds)[0]

    def release(self) -> Verdict:
        """Make the job due again now; the attempt is not counted."""
        return self.source.release_many([self])[0]

    def extend(self, seconds: float) -> Verdict:
        """Extend the lease to ``seconds`` from now; ``version``, ``fence`` and ``lease_expires`` change."""
        return self.source.extend_many([self], seconds)[0]

    def cancel(self) -> Verdict:
        """Cancel the job: it leaves the queue."""
        return self.source.cancel_many([self])[0]

    def bury(self, error: BaseException | str) -> Verdict:
        """Send the job to the dead table at once. Use this verb if a retry would not help."""
        return self.source.bury_many([self], error)[0]

    def progress(self, fraction: float, note: str | None = None) -> Verdict:
        """Report progress: ``db.get(id).progress`` and ``.progress_note`` show it while this attempt runs.

        A worker writes the latest reports of all its jobs once a second in one statement, so the verdict is based on what the
        worker knows of the lease. Outside a worker each report is written at once.

        :param fraction: 0 to 1.
        :param note: a short text, cut at 200 characters.
        """
        report = ProgressReport(arguments.fraction("fraction", fraction), arguments.text("note", note, NOTE_LENGTH))
        return self.source.progress_of(self, report) if self._report_to is None else self._report_to(self, report)

    def report_progress_to(self, receiver: Callable[[LeasedJob, ProgressReport], Verdict]) -> None:
        """Let :meth:`progress` call ``receiver`` instead of writing at once."""
        self._report_to = receiver

    def settle(self, outcome: Outcome) -> Verdict:
        """Settle the job as a handler's return value says: None completes it, :class:`Snooze` snoozes it, and so on."""
        match outcome:
            case None:
                return self.complete()
            case Snooze(seconds):
                return self.snooze(seconds)
            case Retry(reason, seconds):
                return self.fail(reason, retry_in=seconds)
            case Cancel():
                return self.cancel()
            case Dead(reason):
                return self.bury(reason)
        raise ArgumentError(f"a handler returned {outcome!r}: return nothing, Snooze, Retry, Cancel or Dead")

    def __reduce__(self) -> Any:
        raise ArgumentError("a leased job belongs to the process that claimed it: send its id, payload and fence instead")


def _is_for_tasks(using: object) -> TypeGuard[AsyncUsing]:
    """Whether ``using`` is a connection or session of asyncio, and the caller runs on an event loop and can await the verdict."""
    driver = driver_of(using)
    # In a greenlet the verb itself awaits a driver's connection.
    of_driver = driver is not None and driver.asynchronous and not awaits()
    if not (of_driver or hasattr(using, "sync_session") or hasattr(using, "sync_connection")):
        return False
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False  # the verb refuses ``using``
    return True


def linked(jobs: Sequence[LeasedJob]) -> dict[int, JobLinks]:
    """The links, by job id, of the jobs that have a group, a batch or a graph."""
    return {job.id: links for job in jobs if (links := links_of(job.queue, row_of(job))) is not None}


row_of: Callable[[LeasedJob], ClaimedRow] = attrgetter("_row")
"""The row of a job as it was claimed. A worker reads columns from it, which is faster than the properties of the job."""


def hand_to_worker(jobs: Sequence[LeasedJob], lease: int, report_to: Callable[[LeasedJob, ProgressReport], Verdict] | None) -> None:
    """Prepare jobs that a worker has just claimed: set the time of their claim and the receiver of their progress.

    :param lease: the length of the lease at the claim, microseconds.
    :param report_to: receives the progress that handlers report; None: each report is written by its own statement.
    """
    for job in jobs:
        job._claimed_at = job._row.available_at - lease  # noqa: SLF001 - of this module
        job._report_to = report_to  # noqa: SLF001


def decode_headers(stored: str | None) -> Mapping[str, Any]:
    """Headers from their stored text; empty if the text is not a JSON object."""
    if not stored:
        return {}
    try:
        found = _HEADERS.decode(stored)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
