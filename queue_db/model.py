"""The data types of the package: states, verdicts, capabilities, jobs, claim requests and results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import Enum, StrEnum
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Protocol, Self

from queue_db.errors import LeaseLostError

#: The highest number of attempts that the column can store.
MOST_ATTEMPTS = 2**31 - 1

#: The header of a job with the number of its interruptions by ends of workers, since it was enqueued or redriven.
INTERRUPTIONS_HEADER = "interruptions"

#: The highest version that the column can store.
MOST_VERSION = 2**63 - 1

#: No claim leases a job with a higher version. So the version stays far below the limit of the column, however often the lease is
#: extended.
MOST_CLAIMED_VERSION = 2**62

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST, _LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)


def from_micros(micros: int) -> datetime:
    """Microseconds since 1970, as in the tables, as an aware UTC datetime; the earliest or latest one if out of range."""
    try:
        return _EPOCH + timedelta(microseconds=micros)
    except OverflowError:
        # Any client may have written the number, for example nanoseconds by mistake.
        return _FIRST if micros < 0 else _LAST


def to_micros(moment: datetime) -> int:
    """An aware datetime as the exact number of microseconds since 1970."""
    return (moment - _EPOCH) // timedelta(microseconds=1)


class State(StrEnum):
    """State of a job. A job that waits for its retry is SCHEDULED with attempts > 0."""

    AVAILABLE = "available"  #: due, so the next claim may take it; also after its lease has ended
    SCHEDULED = "scheduled"  #: not due yet: delayed, snoozed, or waiting for its retry
    RUNNING = "running"  #: leased: a worker has it in hand, from the claim until it is settled
    BLOCKED = "blocked"  #: waiting for earlier jobs of its group, or for its parents in a graph
    DEAD = "dead"  #: in the dead table; ``db.dead.redrive`` brings it back
    COMPLETED = "completed"  #: completed, and its result is retained; only ``db.state`` returns this
    #: There is no such job: it was cancelled, purged, or completed without a retained result, or it never existed. Only
    #: ``db.state`` returns this.
    UNKNOWN = "unknown"


#: The states of live and dead jobs.
PRESENT = (State.AVAILABLE, State.SCHEDULED, State.RUNNING, State.BLOCKED, State.DEAD)
OnDuplicate = Literal["raise", "skip", "replace", "debounce"]
"""What an enqueue does if a live job already has the unique key."""

PresentState = Literal["available", "scheduled", "running", "blocked", "dead"]


class Capability(StrEnum):
    """Features of a database that strategies and removals may need."""

    SKIP_LOCKED = "SKIP LOCKED"
    ROW_LOCKS = "row locks"
    DELETE_RETURNING = "DELETE … RETURNING"
    UPDATE_RETURNING = "UPDATE … RETURNING"
    CONCURRENT_WRITERS = "concurrent writers"
    #: Several servers of a cluster take changes, and none sees the row locks of another: colliding transactions fail at COMMIT.
    SEVERAL_WRITERS = "several writers"


class Fault(StrEnum):
    """Kinds of database errors; all but OTHER come from colliding transactions."""

    DEADLOCK = "deadlock"
    SERIALIZATION = "serialization failure"  #: another transaction has changed a row that this one had read
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
    """The result of every settling verb. In a condition, APPLIED is true and LOST is false."""

    APPLIED = "applied"  #: the change was made
    LOST = "lost"  #: the lease had been lost: nothing was changed, and another worker may have the job

    def __bool__(self) -> bool:
        return bool(self._value_ == "applied")  # three times as fast as a look-up of the member in the class

    def require(self, job: LeaseIdentity | None = None) -> None:
        """Raise :class:`LeaseLostError` if this is LOST; ``job`` is only for the message."""
        if self is Verdict.LOST:
            raise LeaseLostError(job.id, job.version) if job is not None else LeaseLostError()


class _ReadLate:
    """An object whose fields are read from a stored row at their first use: see :meth:`Job.late`."""

    __slots__ = ("_stored",)
    _stored: tuple[Any, Callable[[Any, str], Any]]

    if not TYPE_CHECKING:  # else type checkers would accept any name

        def __getattr__(self, name: str) -> Any:
            """Read a field that is not set yet from the stored row, and set it."""
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
    available_at: datetime  #: the due time; for a RUNNING job the end of the lease; for a DEAD job the time of its death
    version: int
    attempts: int
    max_attempts: int
    unique_key: str | None
    worker: str | None
    created_at: datetime
    last_error: str | None
    group: str | None = None  #: jobs of one group run one at a time, or as many as the queue's limit allows
    progress: float | None = None  #: the last reported progress, 0 to 1
    progress_note: str | None = None  #: the note of the last progress report
    batch: int | None = None  #: the id, for ``db.batch``, of the batch to which a live job belongs

    @property
    def fence(self) -> str:
        """``id:version``, growing with every change of the job: a fencing token for outside systems."""
        return f"{self.id}:{self.version}"

    @classmethod
    def late(cls, rows: Iterable[Any], read: Callable[[Any, str], Any]) -> list[Self]:
        """A job for each row; ``read(row, name)`` is called at the first use of a field. Saves time if few fields are used."""
        # Set the slot directly: the class is frozen.
        new, store = cls.__new__, vars(_ReadLate)["_stored"].__set__
        jobs = []
        for row in rows:
            job = new(cls)
            store(job, (row, read))
            jobs.append(job)
        return jobs


Range = tuple[int, int]
"""A priority of a queue, and the due time in microseconds at which its claims start: no due job is earlier."""


@dataclass(slots=True)
class Completion:
    """Completed jobs that a claim deletes in its transaction, before it leases other jobs."""

    pairs: Sequence[tuple[int, int]]  #: ``(id, version)``
    #: Ids of the deleted jobs, set when the database has answered. None: the deletion did not run, or no answer came. A strategy
    #: may ignore the completion in its claim: then the jobs are completed in a transaction of their own.
    done: set[int] | None = None


# Not frozen although nothing changes a request: each claim makes one, and a frozen class takes twice as long to fill.
@dataclass(slots=True)
class ClaimRequest:
    """The parameters of a claim."""

    queue: str
    limit: int
    lease: int  #: microseconds
    worker: str
    token: str  #: random, new for each claim; a read after the claim finds the claimed rows by it
    #: The known priorities of the queue, lowest number first. Empty: one range over all priorities.
    ranges: tuple[Range, ...]
    now: int | None = None  #: microseconds; None: the database's clock
    #: Due jobs are expected. So use the cheaper statement, which cannot distinguish an empty queue from lost candidates.
    fast_path: bool = False
    delete_on_claim: bool = False  #: delete the claimed jobs in the same statement; only together with ``fast_path``
    completes: Completion | None = None  #: completed jobs to delete in the same statement; only together with ``fast_path``
    kind: str | None = None  #: claim only jobs of this kind; None: of any kind
    #: Claim nothing while a job is due in one of these queues, each given by name and ranges.
    if_idle: tuple[tuple[str, tuple[Range, ...]], ...] = ()
    #: The number of jobs that the call wants in all its rounds; ``limit`` of them are still missing. None: the same as ``limit``.
    call_limit: int | None = None
    first: bool = True  #: the first round of the call


class NewJob(NamedTuple):
    """A job to insert, checked and encoded. With the defaults it is due now. Times are in microseconds."""

    queue: str
    kind: str
    payload: str
    headers: str | None
    priority: int
    max_attempts: int
    unique_key: str | None = None
    group_key: str | None = None
    callback_id: int | None = None
    unique_for: int = 0  #: its unique key stays taken for this time; 0: until the job leaves
    after: int = 0  #: it is due after this time from now, …
    not_before: int = 0  #: … but not before this time

    @property
    def key(self) -> tuple[str, str] | None:
        """Queue and unique key, a pair that no other live job may have; None without a unique key."""
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
        """Whether the job must not run again: its attempts are used up, or a column has reached its limit (not by normal work)."""
        return self.attempts > self.max_attempts or self.attempts >= MOST_ATTEMPTS or self.version > MOST_CLAIMED_VERSION

    @property
    def exhaustion(self) -> str:
        """Why an exhausted job is dead."""
        if self.version > MOST_CLAIMED_VERSION:
            return f"version is {self.version:,}, above {MOST_CLAIMED_VERSION:,}, the highest that a claim gives: enqueue it anew"
        reason = f"no verdict after {self.max_attempts} attempts: each worker vanished or overran its lease"
        return f"{reason}; last error: {self.last_error}" if self.last_error else reason


def exhausted_in(rows: Sequence[ClaimedRow]) -> list[ClaimedRow]:
    """The rows that are :attr:`ClaimedRow.exhausted`; usually there are none."""
    found = []
    for row in rows:
        if row.attempts > row.max_attempts or row.attempts >= MOST_ATTEMPTS or row.version > MOST_CLAIMED_VERSION:
            found.append(row)  # noqa: PERF401 - faster for a single row
    return found


class Group(NamedTuple):
    """The jobs of a queue with the same group key."""

    queue: str
    key: str


def group_of(queue: str, key: str | None) -> Group | None:
    """The group of a job, or None."""
    return None if key is None else Group(queue, key)


def batch_of(callback_id: int | None) -> int | None:
    """The batch of a job with this ``callback_id``, or None."""
    return callback_id if callback_id is not None and callback_id > 0 else None


def graph_of(callback_id: int | None) -> int | None:
    """The graph of a job with this ``callback_id``, or None. A batch has a positive number there, a graph a negative one."""
    return -callback_id if callback_id is not None and callback_id < 0 else None


class JobLinks(NamedTuple):
    """What depends on a job: the next one of its group, the batch that counts it, and the nodes of its graph that wait for it."""

    group: Group | None
    batch: int | None
    #: The job is blocked in its group: when it leaves, no other job is unblocked.
    blocked: bool = False
    graph: int | None = None
    #: What its handler returned, encoded, for the nodes that wait for it; None: nothing.
    result: str | None = None


def links_of(queue: str, row: Any, *, blocked: bool = False) -> JobLinks | None:
    """The links of the job in ``row``; most jobs have none."""
    if row.group_key is None and row.callback_id is None:
        return None
    tie = row.callback_id
    return JobLinks(group_of(queue, row.group_key), batch_of(tie), blocked, graph_of(tie))


class Seen(Enum):
    """What a round of a claim shows of the jobs that it has not won."""

    ALL = "all"  #: the candidates that were lost are counted, and no other job is due
    SOME = "some"  #: fewer jobs than wanted were won, and it is unknown whether jobs were lacking or candidates were lost
    NOTHING = "nothing"  #: the round has neither read nor claimed candidates; the next round does


@dataclass(slots=True)
class ClaimResult:
    """The jobs that a claim won, and the number of candidates that it lost to other workers."""

    queue: str
    limit: int
    rows: tuple[ClaimedRow, ...] = ()
    missed: int = 0
    #: Size of the window of candidates, in batches of ``limit`` jobs; 0: the candidates were locked when they were read.
    window: int = 1
    #: The lowest due time that was seen, by priority. The next claim may start there.
    min_due: Mapping[int, int] = field(default_factory=dict)
    #: Priorities of the queue that were missing in ``ClaimRequest.ranges``.
    new_priorities: tuple[int, ...] = ()
    #: What the round shows of the jobs that it has not won.
    seen: Seen = Seen.ALL
    deleted: bool = False  #: the claimed jobs were deleted from the table
    refused: int = 0  #: groups that were passed over, since a limit of the group was reached


@dataclass(slots=True)
class Counters:
    """Counts of one :class:`QueueDB` since it was opened. They are never reset."""

    claims: int = 0  #: calls of claim
    attempts: int = 0  #: rounds of claims; each reads candidates and tries to take them once
    claimed: int = 0  #: jobs won
    missed: int = 0  #: candidates lost to a faster worker
    refused: int = 0  #: groups that a claim passed over, since a limit of the group was reached
    contended: int = 0  #: claims that won no job because every candidate was lost
    empty: int = 0  #: claims that found nothing due
    applied: int = 0  #: settles that took effect
    lost: int = 0  #: leases that were lost when their jobs were to be settled
    dead: int = 0  #: jobs moved to the dead table for any reason, including ``exhausted``
    exhausted: int = 0  #: jobs moved to the dead table at a claim because none of their attempts was settled
    trimmed: int = 0  #: messages that trims have deleted; without those that publishers delete beyond ``keep_rows``
    retried: int = 0  #: transactions run again after a deadlock, a serialization failure or a lost connection
    statements: int = 0  #: sent by claims and settles on the library's connections, with BEGIN, COMMIT, PREPARE
    deadlocks: int = 0  #: deadlocks; this and the next three also count errors of transactions that ran again
    serialization_failures: int = 0
    lock_timeouts: int = 0
    other_errors: int = 0
    discarded: int = 0  #: connections that were closed because an interrupt had left their transactions in doubt
    failovers: int = 0  #: times that a server of several was left for another: it failed, refused changes, or was away at the start
    replica_fallbacks: int = 0  #: times that reads went back to the primary, since the replica was away or too far behind
    unregistered: int = 0  #: workers that could not write or read the rows of workers; if one is killed, its jobs are not rescued
    condition_errors: int = 0  #: times that a route did not act since its condition could not be evaluated
    loops: int = 0  #: routes that were cut: they lead back to where the message has been, or exceed the limit of forwards
    nodes_cancelled: int = 0  #: nodes of graphs that were cancelled since a parent is dead or cancelled

    @property
    def candidates(self) -> int:
        """Jobs that a round of a claim tried to take."""
        return self.claimed + self.exhausted + self.missed

    @property
    def miss_ratio(self) -> float:
        """Share of the candidates that were lost, 0 … 1."""
        return self.missed / self.candidates if self.candidates else 0.0

    @property
    def attempts_per_claim(self) -> float:
        """Candidates tried per job won; 1.0: no candidate was lost."""
        return self.candidates / self.claimed if self.claimed else 0.0


class ProgressReport(NamedTuple):
    """The progress of a running job."""

    fraction: float  #: 0 to 1
    note: str | None


class StoredResult(NamedTuple):
    """The result of a completed job, and the time for which it is retained."""

    result: str | None  #: encoded
    lasts: int  #: the time for which the result is retained, in microseconds


class Unchanged(Enum):
    """The type of :data:`UNCHANGED`."""

    UNCHANGED = "unchanged"

    def __repr__(self) -> str:
        return self.name


#: The default of an argument where None has a meaning of its own: what is not given stays as it is.
UNCHANGED: Final = Unchanged.UNCHANGED


@dataclass(frozen=True, slots=True)
class Controls:
    """The pause and the limits of a queue; workers obey them within 1.5 s."""

    paused: bool = False  #: nothing is claimed
    concurrency: int | None = None  #: most jobs in hand at the same time, over all workers
    rate: int | None = None  #: most jobs that begin …
    per: float | None = None  #: … within this number of seconds, over all workers
    per_group: int = 1  #: most jobs of one group in hand at the same time, over all workers
    fair: bool = False  #: claims take turns among the groups, whose jobs do not wait for each other


@dataclass(frozen=True, slots=True)
class GroupLimit:
    """The weight and the limits of groups of a queue."""

    group: str | None  #: of this group …
    prefix: str | None  #: … or of all groups together whose names begin so; None and None: of each group
    weight: int  #: jobs in one turn of the group
    concurrency: int | None  #: most jobs that run at once
    rate: int | None  #: most jobs that begin …
    per: float | None  #: … within this number of seconds
