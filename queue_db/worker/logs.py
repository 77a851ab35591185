"""The fields of log records about jobs, passed as ``extra`` for formatters that write fields."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

from queue_db.leased_job import LeasedJob
from queue_db.queue import Queue

#: The job whose handler runs in this thread or task: its own log lines get the fields of the job.
current: ContextVar[LeasedJob | None] = ContextVar("queue_db_job", default=None)


def about(job: LeasedJob, outcome: str | None = None, seconds: float | None = None) -> dict[str, Any]:
    """``job_id, queue, kind, attempt, worker``, and if known ``outcome`` and ``seconds``. Never the payload.

    :param outcome: a value of :class:`queue_db.worker.events.EventType`.
    :param seconds: how long its handler ran.
    """
    queue: Queue = job.source  # type: ignore[assignment]
    fields = {"job_id": job.id, "queue": job.queue, "kind": job.kind, "attempt": job.attempts, "worker": queue.db.worker}
    if outcome is not None:
        fields["outcome"] = str(outcome)
    if seconds is not None:
        fields["seconds"] = round(seconds, 6)
    return fields
