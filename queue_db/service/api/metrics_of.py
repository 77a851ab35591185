"""The latest numbers of queues, as responses show them."""

from __future__ import annotations

from pydantic import BaseModel, Field

from queue_db.db import QueueDB
from queue_db.monitoring.metrics import QueueMetrics
from queue_db.service.http.times import Time


class QueueNumbers(BaseModel):
    """Numbers of a queue: the latest, which are counted every 10 s, or those of an entry of the history."""

    at: Time = Field(description="When the jobs were counted.")
    available: int = Field(description="Due.")
    scheduled: int
    blocked: int
    running: int
    dead: int
    held: int = Field(description="Claimed by Spark streams.")
    oldest: float | None = Field(description="Seconds since the longest waiting due job became due.")
    completed: int = Field(description="In `duration`, as the following ones.")
    failed: int
    died: int
    lost: int = Field(description="Leases lost.")
    missed: int = Field(description="Races lost at claims.")
    duration: float = Field(description="Seconds in which these happened; of the latest numbers the last minute or little more.")
    capped: tuple[str, ...] = Field(
        description="The states of which there may be more jobs: of the latest numbers each stops at 10,000. The history has all."
    )


_FIELDS = tuple(QueueNumbers.model_fields)


def latest(db: QueueDB) -> dict[str, QueueNumbers]:
    """The latest sample of each queue."""
    return {one.queue: numbers_of(one) for one in db.metrics.latest()}


def numbers_of(one: QueueMetrics) -> QueueNumbers:
    """Numbers of a queue for a response."""
    return QueueNumbers(**{name: getattr(one, name) for name in _FIELDS})
