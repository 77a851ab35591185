"""The latest numbers of queues, as responses show them."""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel, Field

from queue_db.db import QueueDB


class QueueNumbers(BaseModel):
    """The latest sample of a queue, which is taken every 10 s."""

    at: datetime
    available: int = Field(description="Due.")
    scheduled: int
    blocked: int
    running: int
    dead: int
    held: int = Field(description="Claimed by Spark streams.")
    oldest: float | None = Field(description="Seconds since the longest waiting due job became due.")
    completed: int = Field(description="In the last minute or little more, as the following ones.")
    failed: int
    died: int
    lost: int = Field(description="Leases lost.")
    missed: int = Field(description="Races lost at claims.")
    duration: float = Field(description="Seconds in which these happened.")

    @property
    def waiting(self) -> int:
        """Jobs that are still to be claimed."""
        return self.available + self.scheduled + self.blocked


_FIELDS = tuple(QueueNumbers.model_fields)


def latest(db: QueueDB) -> dict[str, QueueNumbers]:
    """The latest sample of each queue."""
    found = db.metrics.latest()
    return {one.queue: QueueNumbers(**{name: getattr(one, name) for name in _FIELDS}) for one in found}
