"""Find a job by its id, change it if it is still as it was read, and convert rows to :class:`~queue_db.Job` objects."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from queue_db import arguments
from queue_db.codecs import Codec, decoded_or_text
from queue_db.core import Core
from queue_db.errors import JobDeadError, JobNotFoundError
from queue_db.leased_job import decode_headers
from queue_db.model import MOST_VERSION, ClaimedRow, Job, State, Verdict, from_micros
from queue_db.store import insights

# Most tries to change a job that another transaction changes between the read and the write.
_CHANGE_ATTEMPTS = 5


def find_job(core: Core, job_id: int, queue: str | None = None) -> Job:
    """The job with this id.

    :param queue: the job's queue; None: any queue.
    :raises JobNotFoundError: there is no such job, live or dead.
    """
    arguments.whole("job_id", job_id, 0, 2**63 - 1)
    found = core.read("insights.find", insights.find, queue=queue, job_id=job_id)
    if found is None:
        raise JobNotFoundError(job_id, "any queue" if queue is None else f"queue {queue!r}")
    row, state = found
    return job_from_row(row, state, core.codec)


def change_job(core: Core, queue: str | None, job_id: int, version: int | None, change: Callable[[Job], bool]) -> Verdict:
    """Read a live job and call ``change`` with it. If ``change`` returns False, the job was changed since the read: try again.

    :param version: change the job only if it still has this version.
    :return: LOST: the job has another version, or it was changed during each of five tries.
    :raises JobNotFoundError: there is no such live job.
    """
    if version is not None:
        arguments.whole("version", version, 0, MOST_VERSION)
    for _ in range(_CHANGE_ATTEMPTS):
        job = find_job(core, job_id, queue)
        if job.state is State.DEAD:
            raise JobDeadError(job_id)
        if version is not None and job.version != version:
            return Verdict.LOST
        if change(job):
            return Verdict.APPLIED
    return Verdict.LOST


def job_from_row(row: Any, state: State, codec: Codec) -> Job:
    """A stored row as a :class:`Job`. A payload that the codec cannot decode is shown as its stored text."""
    return Job(
        id=row.id,
        queue=row.queue,
        kind=row.kind,
        payload=decoded_or_text(codec, row.payload),
        headers=decode_headers(row.headers),
        priority=row.priority,
        state=state,
        available_at=from_micros(row.died_at if state is State.DEAD else row.available_at),
        version=row.version,
        attempts=row.attempts,
        max_attempts=row.max_attempts,
        unique_key=row.unique_key,
        worker=row.worker,
        created_at=from_micros(row.created_at),
        last_error=row.last_error,
        group=row.group_key,
        progress=getattr(row, "progress", None),
        progress_note=getattr(row, "progress_note", None),
        batch=getattr(row, "callback_id", None),
    )


# How popped jobs get the fields that are not plain columns of the row. ``queue`` and ``worker`` are the same for all jobs.
_MADE: dict[str, Callable[[ClaimedRow, Codec], Any]] = {
    "payload": lambda row, codec: decoded_or_text(codec, row.payload),
    "headers": lambda row, _: decode_headers(row.headers),
    "state": lambda row, _: State.RUNNING,
    "available_at": lambda row, _: from_micros(row.available_at),
    "created_at": lambda row, _: from_micros(row.created_at),
    "group": lambda row, _: row.group_key,
    "batch": lambda row, _: row.callback_id,
    "progress": lambda row, _: None,
    "progress_note": lambda row, _: None,
}


def popped(rows: Iterable[ClaimedRow], codec: Codec, *, queue: str, worker: str) -> list[Job]:
    """Claimed and deleted jobs as :class:`Job` objects, as in :func:`job_from_row`. Each field is made at its first use."""
    same = {"queue": queue, "worker": worker}

    def read(row: ClaimedRow, name: str) -> Any:
        if name in same:
            return same[name]
        made = _MADE.get(name)
        return getattr(row, name) if made is None else made(row, codec)

    return Job.late(rows, read)
