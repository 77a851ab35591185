"""Groups with jobs that wait, and the job that each waits for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from queue_db.db import QueueDB
from queue_db.model import Job

#: Queues that are looked at if none is chosen.
MOST_QUEUES = 20

#: Blocked jobs of one queue that are looked at.
MOST_JOBS = 200

#: Groups that are returned.
MOST = 50


@dataclass(frozen=True, slots=True)
class Head:
    """A group, and the job that the others of it wait for."""

    queue: str
    group: str
    blocked: int  #: of the blocked jobs that were looked at
    job: Job | None  #: None: it has just left


def heads(db: QueueDB, queues: Sequence[str]) -> tuple[list[Head], bool]:
    """Groups of these queues with blocked jobs, those with the most first, and whether there may be more than were looked at."""
    waiting = Counter[tuple[str, str]]()
    cut = len(queues) > MOST_QUEUES
    for queue in queues[:MOST_QUEUES]:
        found = db.queue(queue).jobs("blocked", limit=MOST_JOBS)
        waiting.update((queue, job.group) for job in found.jobs if job.group is not None)
        cut = cut or found.after is not None
    chosen = waiting.most_common(MOST)
    return [_head(db, queue, group, blocked) for (queue, group), blocked in chosen], cut or len(waiting) > MOST


def _head(db: QueueDB, queue: str, group: str, blocked: int) -> Head:
    for state in ("running", "available", "scheduled"):
        found = db.queue(queue).jobs(state, group=group, limit=1).jobs
        if found:
            return Head(queue, group, blocked, found[0])
    return Head(queue, group, blocked, None)
