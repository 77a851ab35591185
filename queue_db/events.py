"""What happens to jobs in a worker, for those who watch: one frozen object for each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from queue_db.leased import LeasedJob


class Happening(StrEnum):
    """What happened to a job."""

    STARTED = "started"  #: its handler is about to be called
    COMPLETED = "completed"
    FAILED = "failed"  #: the attempt failed: to be tried again, or dead after the last one
    SNOOZED = "snoozed"
    CANCELLED = "cancelled"  #: by its handler
    DEAD = "dead"  #: given up by its handler, or parked
    LOST = "lost"  #: the lease was lost, or the result could not be reported: another worker gets the job


@dataclass(frozen=True, slots=True)
class JobEvent:
    """Something happened to a job."""

    what: Happening
    job: LeasedJob
    #: What the handler returned, or raised; None when it has only started.
    outcome: Any = None
    #: How long the handler ran, seconds; None when it has only started, or never did.
    seconds: float | None = None


Hook = Callable[[JobEvent], None]
"""Called with each event, from the worker's threads: soon back, and what it raises is logged and changes nothing."""
