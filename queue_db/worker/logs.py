"""The fields of log records about jobs, passed as ``extra`` for formatters that write fields."""

from __future__ import annotations

import os
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from queue_db import __version__
from queue_db.leased_job import LeasedJob
from queue_db.queue import Queue

if TYPE_CHECKING:
    from queue_db.worker.worker import Worker

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


def described(worker: Worker) -> tuple[str, dict[str, Any]]:
    """What a worker works on and how, for the line of its start: as text and as fields. The database's URL has no password."""
    options, kinds = worker.options, worker.handlers.shown()
    fields = {
        "version": __version__,
        "worker": worker.db.worker,
        "database": worker.db.url,
        "queues": dict(worker.shares.queues),
        "feeds": dict(options.feeds),
        "kinds": kinds,
        "slots": worker.shares.total,
        "mode": options.mode,
        "lease": options.lease,
        "strategy": worker.db.strategy.name,
    }
    text = (
        f"{worker.names}: {worker.shares.total} at once, {options.mode.replace('_', ' ')}, lease {options.lease:g} s, "
        f"strategy {worker.db.strategy.name}, kinds {', '.join(kinds)}; "
        f"{worker.db.url}, queue_db {__version__}, pid {os.getpid()}"
    )
    return text, fields
