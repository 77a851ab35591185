"""The numbers of each queue for a table, from what is already counted."""

from __future__ import annotations

from dataclasses import dataclass, field

from queue_db.db import QueueDB
from queue_db.model import Controls
from queue_db.store import controls


@dataclass(frozen=True, slots=True)
class Line:
    """One queue."""

    queue: str
    oldest: float | None = None  #: seconds since its oldest due job was due
    available: int = 0
    scheduled: int = 0
    blocked: int = 0
    running: int = 0
    held: int = 0
    dead: int = 0
    controls: Controls = field(default_factory=Controls)
    came: float | None = None  #: jobs a second, in the last minute
    done: float | None = None
    failed: float | None = None
    died: int | None = None  #: since yesterday
    #: Due and running jobs, minute by minute, oldest first; None: unknown.
    depth: tuple[float | None, ...] = ()

    @property
    def due(self) -> int:
        """Jobs that a worker could have begun."""
        return self.available


def lines(db: QueueDB) -> list[Line]:
    """All queues, by name."""
    controlled = db.core.read(controls.read)
    found = []
    for name in db.queues():
        stats = db.queue(name).stats()
        found.append(
            Line(
                queue=name,
                oldest=stats.oldest_available_age,
                available=stats.available,
                scheduled=stats.scheduled,
                blocked=stats.blocked,
                running=stats.running,
                held=stats.held,
                dead=stats.dead,
                controls=controlled.get(name, Controls()),
            )
        )
    return found


def line(db: QueueDB, queue: str) -> Line:
    """One queue; zeros if it has no jobs."""
    return next((one for one in lines(db) if one.queue == queue), Line(queue, controls=db.queue(queue).controls()))
