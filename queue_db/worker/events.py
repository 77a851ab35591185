"""What happens to jobs in a worker, for those who watch: one frozen object for each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from queue_db.leased_job import LeasedJob
from queue_db.model import DeathReason


class EventType(StrEnum):
    """What happened to a job."""

    STARTED = "started"  #: its handler is about to be called
    COMPLETED = "completed"
    FAILED = "failed"  #: the attempt failed, and there will be another one
    SNOOZED = "snoozed"  #: by its handler; or there is no handler for its kind yet
    CANCELLED = "cancelled"  #: by its handler
    RELEASED = "released"  #: given back unfinished, by its handler or when the worker stopped; not an attempt
    DEAD = "dead"  #: it was the last attempt: it failed, or the job was given up before; ``reason`` says why
    LOST = "lost"  #: the lease was lost, or the result could not be reported: another worker gets the job


@dataclass(frozen=True, slots=True)
class JobEvent:
    """Something happened to a job. Each attempt begins with one event at most and ends with exactly one."""

    type: EventType
    job: LeasedJob
    #: What the handler returned, or raised; None when it has only started.
    outcome: Any = None
    #: How long the handler ran, seconds; None when it has only started, or never did.
    seconds: float | None = None
    #: Why the job is dead; None when it is not.
    reason: DeathReason | None = None


Hook = Callable[[JobEvent], None]
"""Called with each event, from the worker's threads: soon back, and what it raises is logged and changes nothing."""
