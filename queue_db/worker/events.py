"""Events: what happens to the jobs of a worker, one frozen object for each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from queue_db.leased_job import LeasedJob
from queue_db.model import DeathReason


class EventType(StrEnum):
    """The type of an event."""

    STARTED = "started"  #: its handler is about to be called
    COMPLETED = "completed"
    FAILED = "failed"  #: the attempt failed, and there will be another one
    SNOOZED = "snoozed"  #: by its handler; or there is no handler for its kind yet
    CANCELLED = "cancelled"  #: by its handler
    RELEASED = "released"  #: returned to its queue unfinished, by its handler or when the worker stopped; not an attempt
    DEAD = "dead"  #: the job is dead; ``reason`` has the cause
    LOST = "lost"  #: the lease was lost, or the result could not be reported: another worker gets the job


@dataclass(frozen=True, slots=True)
class JobEvent:
    """An event of a job. Each attempt begins with at most one event and ends with exactly one."""

    type: EventType
    job: LeasedJob
    #: What the handler returned or raised; None at its start.
    outcome: Any = None
    #: How long the handler ran, seconds; None at its start, or if it was not called.
    seconds: float | None = None
    #: Why the job is dead; None: it is not.
    reason: DeathReason | None = None


Hook = Callable[[JobEvent], None]
"""Called with each event, in the worker's threads: it must return soon. What it raises is logged and changes nothing."""
