"""The values of the verbs that only read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from queue_db.model import Job


@dataclass(frozen=True, slots=True)
class JobPage:
    """A page of :meth:`Queue.jobs`."""

    jobs: list[Job]
    after: str | None  #: where the next page begins; None: this is the last one


@dataclass(frozen=True, slots=True)
class JobError:
    """A failed attempt, as ``db.errors`` shows it."""

    attempt: int
    failed_at: datetime
    worker: str | None
    error_class: str  #: name of the exception's class; empty when the handler gave a reason instead
    message: str
    trace: str | None  #: the end of the traceback
    version: int = 0  #: the job's version during the attempt; with the job's id it is the fence of that lease


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
    queues: Mapping[str, int]  #: the most jobs in hand by queue, and the most spans by shared cursor (``feed:cursor``)
    state: str  #: working, quiet or stopping
    in_hand: int
    counters: Mapping[str, int]  #: what happened to its jobs
    started_at: datetime
    seen_at: datetime
    silent: float  #: seconds since ``seen_at``
    stuck: int = 0  #: slots whose handlers still run after a timeout or a lost lease


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
    """Counts of one queue at one moment, of live jobs by one statement and of dead jobs by another; with a limit, by several."""

    queue: str
    available: int
    scheduled: int
    running: int  #: in hand; includes jobs that are prefetched or not settled yet
    dead: int
    oldest_available_age: float | None  #: seconds since the due job that waits longest became due; None: no job is due
    by_kind: Mapping[str, KindStats]
    held: int = 0  #: held by streams; in none of the other counts
    blocked: int = 0  #: waiting for earlier jobs of their groups
    progress: float | None = None  #: mean progress (0 to 1) of the running jobs that have reported progress
    capped: tuple[str, ...] = ()  #: the states whose count stopped at the limit; they may have more jobs
    unknown: int = 0  #: waiting because no worker has had a handler for their kind; also in the other counts
