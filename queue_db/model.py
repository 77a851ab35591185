"""The data types of the package: states, verdicts, capabilities, jobs, claim requests and results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import Enum, StrEnum
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, Self

from queue_db.errors import LeaseLostError

#: The highest number of attempts that the column takes.
MOST_ATTEMPTS = 2**31 - 1

#: The highest version that the column takes.
MOST_VERSION = 2**63 - 1

#: No claim leases a job with a higher version: however often the lease is extended, it stays far below the limit of the column.
MOST_CLAIMED_VERSION = 2**62

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST, _LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)


def from_micros(micros: int) -> datetime:
    """Microseconds since 1970 (how the tables store time) as an aware UTC datetime; the first or last one where it has none."""
    try:
        return _EPOCH + timedelta(microseconds=micros)
    except OverflowError:
        # Any client may have written the number, for example nanoseconds by mistake.
        return _FIRST if micros < 0 else _LAST


def to_micros(moment: datetime) -> int:
    """An aware datetime as microseconds since 1970, exact."""
    return (moment - _EPOCH) // timedelta(microseconds=1)


class State(StrEnum):
    """State of a job. A job that waits for its retry is SCHEDULED with attempts > 0."""

    AVAILABLE = "available"  #: due: the next claim may take it (also when its lease has run out)
    SCHEDULED = "scheduled"  #: not due yet: delayed, snoozed, or waiting for its retry
    RUNNING = "running"  #: leased: a worker has it in hand, from the claim until it is settled
    BLOCKED = "blocked"  #: waiting for jobs before it in its group
    DEAD = "dead"  #: in the dead table; ``db.dead.redrive`` brings it back
    COMPLETED = "completed"  #: its result is retained; of ``db.state`` only
    #: Nothing is left of it: it was completed and no result is retained, cancelled or purged; or it never existed. Of ``db.state``.
    UNKNOWN = "unknown"


#: The states of jobs that are there.
PRESENT = (State.AVAILABLE, State.SCHEDULED, State.RUNNING, State.BLOCKED, State.DEAD)
OnDuplicate = Literal["raise", "skip", "replace", "debounce"]
"""What an enqueue does if a live job has the unique key."""

CatchUp = Literal["one", "all", "none"]
"""Jobs that a schedule enqueues for occurrences while no worker ran."""

PresentState = Literal["available", "scheduled", "running", "blocked", "dead"]


class Capability(StrEnum):
    """Features of a database that strategies and removals may need."""

    SKIP_LOCKED = "SKIP LOCKED"
    ROW_LOCKS = "row locks"
    DELETE_RETURNING = "DELETE … RETURNING"
    UPDATE_RETURNING = "UPDATE … RETURNING"
    CONCURRENT_WRITERS = "concurrent writers"


class Fault(StrEnum):
    """Kinds of errors from colliding transactions."""

    DEADLOCK = "deadlock"
    SERIALIZATION = "serialization failure"  #: a row changed that this transaction had read
    LOCK_TIMEOUT = "lock timeout"
    OTHER = "other"


class DeathReason(StrEnum):
    """Why a job is dead: the ``reason`` of events, log records and metrics."""

    FAILED = "failed"  #: its last attempt failed
    REJECTED = "rejected"  #: its handler returned Dead, or a program called ``bury``
    UNKNOWN_KIND = "unknown_kind"  #: no handler for its kind
    PAYLOAD = "payload"  #: its payload cannot be decoded, or does not fit the handler's schema
    EXHAUSTED = "exhausted"  #: no attempt was settled: each time the worker died or its lease ended


class LeaseIdentity(Protocol):
    """Identifies one lease."""

    @property
    def id(self) -> int: ...
    @property
    def version(self) -> int: ...


class Verdict(Enum):
    """The result of every settling verb. True in a condition if it took effect."""

    APPLIED = "applied"  #: the change was made
    LOST = "lost"  #: the lease was lost before: nothing changed, another worker may have the job

    def __bool__(self) -> bool:
        return self is Verdict.APPLIED

    def require(self, job: LeaseIdentity | None = None) -> None:
        """Raise :class:`LeaseLostError` if this is LOST; ``job`` only serves the message."""
        if self is Verdict.LOST:
            raise LeaseLostError(job.id, job.version) if job is not None else LeaseLostError()


class _ReadLate:
    """An object whose fields may be read from a stored row when they are first used: see :meth:`Job.late`."""

    __slots__ = ("_stored",)
    _stored: tuple[Any, Callable[[Any, str], Any]]

    if not TYPE_CHECKING:  # or no wrong name would be found

        def __getattr__(self, name: str) -> Any:
            """Read the field of an empty slot from the stored row, and keep it."""
            if name == "_stored" or name not in self.__slots__:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)
            row, read = self._stored
            value = read(row, name)
            object.__setattr__(self, name, value)
            return value


@dataclass(frozen=True, slots=True)
class Job(_ReadLate):
    """A job as read by ``get``, ``peek`` or ``dead.list``: a snapshot without verbs."""

    id: int
    queue: str
    kind: str
    payload: Any
    headers: Mapping[str, Any]
    priority: int
    state: State
    available_at: datetime  #: due time; while RUNNING the end of the lease; for a DEAD job when it died
    version: int
    attempts: int
    max_attempts: int
    unique_key: str | None
    worker: str | None
    created_at: datetime
    last_error: str | None
    group: str | None = None  #: jobs of one group run one at a time, or as many as the queue's limit allows
    progress: float | None = None  #: last reported progress, 0 to 1
    progress_note: str | None = None  #: note of the last progress report
    batch: int | None = None  #: the batch that counts the job, while it is live; for ``db.batch``

    @property
    def fence(self) -> str:
        """``id:version``, growing with every change of the job: a fencing token for outside systems."""
        return f"{self.id}:{self.version}"

    @classmethod
    def late(cls, rows: Iterable[Any], read: Callable[[Any, str], Any]) -> list[Self]:
        """A job for each row; ``read(row, name)`` is called when a field is first used. For many jobs: few fields are."""
        # Past the class, which is frozen.
        new, store = cls.__new__, vars(_ReadLate)["_stored"].__set__
        jobs = []
        for row in rows:
            job = new(cls)
            store(job, (row, read))
            jobs.append(job)
        return jobs


@dataclass(frozen=True, slots=True)
class JobPage:
    """A page of :meth:`Queue.jobs`."""

    jobs: list[Job]
    after: str | None  #: where the next page begins; None: this is the last one


class Range(NamedTuple):
    """One priority of a queue and where its claims start: no due job lies below ``floor`` (microseconds)."""

    priority: int
    floor: int


@dataclass(slots=True)
class Completion:
    """Completed jobs that leave in the transaction of a claim, before it takes others."""

    pairs: Sequence[tuple[int, int]]  #: ``(id, version)``
    #: Ids of the jobs that matched and were deleted, as soon as the database has answered; None: nothing was deleted, or no answer
    #: came. The strategy does not have to pass this on.
    done: set[int] | None = None


# Not frozen, though nothing changes them: there is one for each claim, and freezing costs as much as filling.
@dataclass(slots=True)
class ClaimRequest:
    """The parameters of a claim."""

    queue: str
    limit: int
    lease: int  #: microseconds
    worker: str
    token: str  #: fresh and random for each claim; a read after the claim matches it
    #: Priorities known to be in the queue, lowest number first. Empty: one plain range over all of them.
    ranges: tuple[Range, ...]
    now: int | None = None  #: microseconds; None: the database's clock
    #: Jobs are expected: use the cheaper statement, which cannot distinguish an empty queue from lost candidates.
    fast_path: bool = False
    #: Delete the jobs won in the same statement; only together with ``fast_path``.
    delete_on_claim: bool = False
    #: Completed jobs to delete in the same statement; only together with ``fast_path``.
    completes: Completion | None = None
    #: Jobs of this kind only; None: of any.
    kind: str | None = None
    #: Claim nothing while a job is due in one of these queues: name and ranges.
    if_idle: tuple[tuple[str, tuple[Range, ...]], ...] = ()
    #: Jobs that the call wants in all its rounds; ``limit`` of them are still missing. None: as many as ``limit``.
    call_limit: int | None = None


class NewJob(NamedTuple):
    """A job to insert, checked and encoded; without the defaults it is due now. Times in microseconds."""

    queue: str
    kind: str
    payload: str
    headers: str | None
    priority: int
    max_attempts: int
    unique_key: str | None = None
    group_key: str | None = None
    callback_id: int | None = None
    unique_for: int = 0  #: its key stays taken for this long; 0: until it leaves
    after: int = 0  #: due this long from now, …
    not_before: int = 0  #: … and not before then

    @property
    def key(self) -> tuple[str, str] | None:
        """What no other live job may have: queue and unique key."""
        return None if self.unique_key is None else (self.queue, self.unique_key)


class Notice(NamedTuple):
    """A notification to send through the database."""

    channel: str
    text: str


class ClaimedRow(NamedTuple):
    """The columns of a job that was just claimed, as stored."""

    id: int
    kind: str
    payload: str
    headers: str | None
    priority: int
    available_at: int
    due_at: int | None
    version: int
    attempts: int
    max_attempts: int
    unique_key: str | None
    created_at: int
    last_error: str | None
    group_key: str | None
    callback_id: int | None

    @property
    def exhausted(self) -> bool:
        """Whether this is no attempt any more: they are used up, or a column is at a limit that no worker ever reaches."""
        return self.attempts > self.max_attempts or self.attempts >= MOST_ATTEMPTS or self.version > MOST_CLAIMED_VERSION

    @property
    def exhaustion(self) -> str:
        """Why an exhausted job is dead."""
        if self.version > MOST_CLAIMED_VERSION:
            return f"version is {self.version:,}, above {MOST_CLAIMED_VERSION:,}, the highest that a claim gives: enqueue it anew"
        reason = f"no verdict after {self.max_attempts} attempts: each worker vanished or overran its lease"
        return f"{reason}; last error: {self.last_error}" if self.last_error else reason


def exhausted_in(rows: Sequence[ClaimedRow]) -> list[ClaimedRow]:
    """Those that are :attr:`ClaimedRow.exhausted`; mostly none."""
    attempts, version = MOST_ATTEMPTS - 1, MOST_CLAIMED_VERSION
    return [row for row in rows if row.attempts > min(row.max_attempts, attempts) or row.version > version]


class Group(NamedTuple):
    """The jobs of a queue with one key."""

    queue: str
    key: str


def group_of(queue: str, key: str | None) -> Group | None:
    """The group of a job."""
    return None if key is None else Group(queue, key)


class JobLinks(NamedTuple):
    """What depends on a job: the next one of its group, and the batch that counts it."""

    group: Group | None
    batch: int | None
    #: It is blocked in its group: when it leaves, no other job is unblocked.
    blocked: bool = False


def links_of(queue: str, row: Any) -> JobLinks | None:
    """The links of the job of a row; most jobs have none."""
    if row.group_key is None and row.callback_id is None:
        return None
    return JobLinks(group_of(queue, row.group_key), row.callback_id)


@dataclass(slots=True)
class ClaimResult:
    """The jobs that a claim won, and the number of candidates that it lost to other workers."""

    queue: str
    limit: int
    rows: tuple[ClaimedRow, ...] = ()
    missed: int = 0
    #: Size of the window of candidates, in batches of ``limit`` jobs.
    window: int = 1
    #: Lowest due time seen per priority: the next claim may start there.
    min_due: Mapping[int, int] = field(default_factory=dict)
    #: Priorities that are in the queue and were not in ``ClaimRequest.ranges``.
    new_priorities: tuple[int, ...] = ()
    #: False: fewer jobs than ``limit``, for lack of jobs or because candidates were lost; see ``ClaimRequest.fast_path``.
    complete: bool = True
    #: False: nothing was read nor claimed; the next round does.
    looked: bool = True
    #: The jobs won were deleted from the table.
    deleted: bool = False
    #: The candidates were locked when they were read.
    locked: bool = False


@dataclass(slots=True)
class Counters:
    """Counts at one :class:`QueueDB` since it was opened; never reset."""

    claims: int = 0  #: calls of claim
    attempts: int = 0  #: rounds against the database: candidates read and taken once
    candidates: int = 0  #: jobs that a round tried to take
    claimed: int = 0  #: jobs won
    missed: int = 0  #: candidates lost to a faster worker
    contended: int = 0  #: claims that came back empty although jobs were there: every candidate was lost
    empty: int = 0  #: claims that found nothing due
    applied: int = 0  #: settles that took effect
    lost: int = 0  #: leases that were lost when their jobs were to be settled
    dead: int = 0  #: jobs sent to the dead table, for whatever reason; ``exhausted`` among them
    exhausted: int = 0  #: jobs moved to the dead table at a claim because none of their attempts was settled
    trimmed: int = 0  #: messages of feeds that trims have deleted; not those that publishers delete beyond ``keep_rows``
    retried: int = 0  #: transactions run again after a deadlock, a serialization failure or a lost connection
    statements: int = 0  #: sent by claims and settles on connections of our own, BEGIN, COMMIT and PREPARE too
    deadlocks: int = 0  #: errors of the database, also of those transactions that were run again …
    serialization_failures: int = 0
    lock_timeouts: int = 0
    other_errors: int = 0
    discarded: int = 0  #: connections that were closed because an interrupt had left their transactions in doubt
    unregistered: int = 0  #: workers that could not write or read the rows of workers: what they have in hand when killed waits
    condition_errors: int = 0  #: routes that did not act because their condition cannot be evaluated for a message
    loops: int = 0  #: routes that were cut because they lead back to where a message has been, or beyond the limit of forwards

    @property
    def miss_ratio(self) -> float:
        """Share of the candidates that were lost, 0 … 1."""
        return self.missed / self.candidates if self.candidates else 0.0

    @property
    def attempts_per_claim(self) -> float:
        """Candidates tried per job won (1.0: never lost a race)."""
        return self.candidates / self.claimed if self.claimed else 0.0


@dataclass(frozen=True, slots=True)
class JobError:
    """A failed attempt, as ``db.errors`` shows it."""

    attempt: int
    failed_at: datetime
    worker: str | None
    error_class: str  #: name of the exception's class; empty when the handler gave a reason instead
    message: str
    trace: str | None  #: the end of the traceback
    version: int = 0  #: of the job during the attempt: with the job's id the fence of that lease


@dataclass(frozen=True, slots=True)
class Finished:
    """A completed job with its retained result, until it expires."""

    id: int
    queue: str
    kind: str
    payload: Any
    result: Any
    attempts: int
    worker: str | None
    created_at: datetime
    finished_at: datetime
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """A registered worker, as of its last heartbeat."""

    name: str
    host: str
    pid: int
    queues: Mapping[str, int]  #: most jobs in hand for each queue, and most spans for each shared cursor (``feed:cursor``)
    state: str  #: working, quiet or stopping
    in_hand: int
    counters: Mapping[str, int]  #: what became of its jobs
    started_at: datetime
    seen_at: datetime
    silent: float  #: seconds since it was seen
    stuck: int = 0  #: slots of handlers that have not come back although their jobs were taken from them


@dataclass(frozen=True, slots=True)
class Batch:
    """Progress of a batch of jobs."""

    id: int
    queue: str  #: queue of its callback job
    jobs: int
    pending: int  #: still in the queue
    dead: int  #: dead
    cancelled: int
    created_at: datetime


class ProgressReport(NamedTuple):
    """How far a running job is."""

    fraction: float  #: 0 to 1
    note: str | None


class StoredResult(NamedTuple):
    """The result to keep of a completed job, and for how long."""

    result: str | None  #: encoded
    lasts: int  #: microseconds


@dataclass(frozen=True, slots=True)
class Controls:
    """The pause and the limits of a queue; workers obey them within 1.5 s."""

    paused: bool = False  #: nothing is claimed
    concurrency: int | None = None  #: most jobs in hand at once, over all workers
    rate: int | None = None  #: most jobs begun …
    per: float | None = None  #: … in this many seconds, over all workers
    per_group: int = 1  #: most jobs of one group in hand at once, over all workers


@dataclass(frozen=True, slots=True)
class KindStats:
    """Counts of one kind of job in one queue."""

    available: int = 0
    scheduled: int = 0
    running: int = 0
    dead: int = 0
    blocked: int = 0


@dataclass(frozen=True, slots=True)
class QueueStats:
    """Counts of one queue at one moment, from one statement for live and one for dead jobs.

    Those of a count up to a limit come from several statements, if a state has more jobs than that.
    """

    queue: str
    available: int
    scheduled: int
    running: int  #: in hand: with handlers of milliseconds more than run at once, as some are prefetched or not settled yet
    dead: int
    oldest_available_age: float | None  #: seconds since the longest waiting due job became due; None: nothing is due
    by_kind: Mapping[str, KindStats]
    held: int = 0  #: claimed by streams that have not completed them; in none of the other counts
    blocked: int = 0  #: waiting for jobs before them in their groups
    progress: float | None = None  #: mean progress of the running jobs that reported any, 0 to 1
    capped: tuple[str, ...] = ()  #: the states that were counted up to a limit, and may have more jobs
    unknown: int = 0  #: waiting because no worker has had a handler for their kind; in the other counts too
