"""Failed attempts, grouped by queue, kind and error class."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from queue_db import arguments
from queue_db.core import Core, observe
from queue_db.model import from_micros
from queue_db.monitoring.store import failures
from queue_db.store.schema import CLASS_LENGTH, KIND_LENGTH, QUEUE_LENGTH

#: Only this many failed attempts are read: the newest of all queues.
SCANNED = 10_000


@dataclass(frozen=True, slots=True)
class FailureGroup:
    """Failed attempts of one queue, kind and error class."""

    queue: str | None  #: None: an earlier version of the package wrote the attempts
    kind: str | None
    error_class: str  #: name of the exception's class; empty when the handler gave a reason instead
    count: int
    dead: int  #: jobs that died by one of these attempts and are still dead
    first_at: datetime
    last_at: datetime
    message: str  #: of the last attempt
    trace: str | None  #: the end of the traceback of the last attempt
    job_id: int  #: of the last attempt


def grouped(core: Core, queue: str | None, kind: str | None, error_class: str | None, limit: int) -> list[FailureGroup]:
    """The newest failed attempts in groups, the largest group first."""
    if queue is not None:
        arguments.name("queue", queue, QUEUE_LENGTH)
    if kind is not None:
        arguments.name("kind", kind, KIND_LENGTH)
    arguments.whole("limit", limit, 1)
    some = {"queue": queue, "kind": kind, "error_class": arguments.error_class(error_class, CLASS_LENGTH)}
    return [
        FailureGroup(
            queue=row.queue,
            kind=row.kind,
            error_class=row.error_class,
            count=row.attempts,
            dead=row.dead,
            first_at=from_micros(row.first_at),
            last_at=from_micros(row.last_at),
            message=last.message,
            trace=last.trace,
            job_id=last.job_id,
        )
        for row, last in observe(core, "monitoring.groups", failures.groups, **some, scan=SCANNED, limit=limit)
    ]
