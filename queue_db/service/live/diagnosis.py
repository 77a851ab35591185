"""What makes no progress, and what keeps a job waiting.

Looking for stuck queues costs a read of every overdue job: it is done in the background, seldom, once for all who ask.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from queue_db.db import QueueDB
from queue_db.errors import QueueDBError
from queue_db.model import Job, State
from queue_db.monitoring.insights import OVERDUE, Finding, findings, why_due
from queue_db.operations.actor import Actor

log = logging.getLogger("queue_db.service")

#: Neighbours of a job in its group that are shown.
NEIGHBOURS = 12

# Seconds between two looks, at least; and at most this share of the time is spent looking.
_EVERY = 5.0
_SHARE = 0.01

# After an action the next look begins at once where a look takes no longer, seconds.
_QUICK = 0.5

# Seconds that a page waits for a look that has just begun.
_PATIENCE = 0.1


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What the last look found; None: there was none yet."""

    found: tuple[Finding, ...] | None = None
    failed: bool = False
    #: Seconds since the look.
    age: float = 0.0


def seen_by(who: Actor, diagnosis: Diagnosis) -> Diagnosis:
    """The findings that somebody may read, what is stuck first. Workers and schedules are for tokens for all queues."""
    if diagnosis.found is None:
        return diagnosis
    found = [one for one in diagnosis.found if who.allows_all("read") or (one.queue is not None and who.allows("read", one.queue))]
    return replace(diagnosis, found=tuple(sorted(found, key=lambda one: not one.stuck)))


class Watch:
    """The findings of one database."""

    def __init__(self, db: QueueDB) -> None:
        self._db = db
        self._lock = threading.Lock()
        self._looked = threading.Event()
        self._busy = self._forgotten = False
        self._took = 0.0
        self._last = Diagnosis()
        self._at = self._next = 0.0

    def look(self) -> Diagnosis:
        """What is wrong, as of a moment ago."""
        with self._lock:
            due = time.monotonic() >= self._next or (self._forgotten and self._took <= _QUICK)
            begins = due and not self._busy
            if begins:
                self._busy, self._forgotten = True, False
                self._looked.clear()
        if begins:
            threading.Thread(target=self._find, name="queue_db diagnosis", daemon=True).start()
        if begins or self._last.found is None:
            self._looked.wait(_PATIENCE)
        return Diagnosis(self._last.found, self._last.failed, time.monotonic() - self._at)

    def forget(self) -> None:
        """Look again at the next call, if that takes little: something was changed here."""
        with self._lock:
            self._forgotten = True

    def _find(self) -> None:
        began = time.monotonic()
        try:
            found = Diagnosis(tuple(findings(self._db)))
        except QueueDBError as error:
            log.warning("cannot look for stuck queues: %s", error)
            found = Diagnosis(self._last.found, failed=True)
        now = time.monotonic()
        with self._lock:
            self._last, self._at, self._busy = found, now, False
            self._took = now - began
            self._next = now + max(_EVERY, (now - began) / _SHARE)
        self._looked.set()


def waits(db: QueueDB, job: Job, group: Sequence[Job], diagnosis: Diagnosis, now: datetime) -> tuple[Job | None, list[Finding]]:
    """The first job of its group that a job waits for, unless it has just left; and what keeps that job, or this one, waiting."""
    blocked = job.state is State.BLOCKED
    head = next((one for one in group if one.id < job.id and one.state is not State.BLOCKED), None) if blocked else None
    due = head or job
    found = []
    if due.state is State.AVAILABLE:
        why = why_due(db, due.queue, overdue=(now - due.available_at).total_seconds() > OVERDUE)
        found += [] if why is None else [why]
    if due.state in (State.AVAILABLE, State.SCHEDULED):
        found += [one for one in diagnosis.found or () if one.queue == due.queue and one.kind == due.kind]
    return head, found


def neighbours(db: QueueDB, job: Job) -> list[Job]:
    """The first jobs of its group, and what they do; it is the last of them if it comes later."""
    if job.group is None:
        return []
    queue = db.queue(job.queue)
    states = (State.RUNNING, State.AVAILABLE, State.SCHEDULED, State.BLOCKED)
    found = [one for state in states for one in queue.jobs(state, group=job.group, limit=NEIGHBOURS).jobs]
    first = sorted(found, key=lambda one: one.id)[:NEIGHBOURS]
    return first if job.state is State.DEAD or any(one.id == job.id for one in first) else [*first[: NEIGHBOURS - 1], job]
