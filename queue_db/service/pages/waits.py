"""Why a job waits, in the words of the page of its queue."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from queue_db.db import QueueDB
from queue_db.model import Job, State
from queue_db.monitoring.insights import OVERDUE, Finding, why_due
from queue_db.service.pages.diagnosis import Diagnosis


@dataclass(frozen=True, slots=True)
class Waits:
    """What keeps a job from being claimed."""

    #: The job of its group that it waits for; None: it is not blocked, or that job has just left.
    head: Job | None
    found: list[Finding]


def waits(db: QueueDB, job: Job, group: Sequence[Job], diagnosis: Diagnosis, now: datetime) -> Waits:
    """Look at the queue of a due job, or of the job before it in its group, and for a handler of its kind.

    :param group: the first jobs of its group, by id.
    """
    blocked = job.state is State.BLOCKED
    head = next((one for one in group if one.id < job.id and one.state is not State.BLOCKED), None) if blocked else None
    due = head or job
    found = []
    if due.state is State.AVAILABLE:
        why = why_due(db, due.queue, overdue=(now - due.available_at).total_seconds() > OVERDUE)
        found += [] if why is None else [why]
    if due.state in (State.AVAILABLE, State.SCHEDULED):
        found += [one for one in diagnosis.found or () if one.queue == due.queue and one.kind == due.kind]
    return Waits(head, found)
