"""Makes :class:`~queue_db.Job` objects of rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from queue_db.codecs import Codec, decoded_or_text
from queue_db.leased_job import decode_headers
from queue_db.model import ClaimedRow, Job, State, batch_of, from_micros


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
        batch=batch_of(getattr(row, "callback_id", None)),
    )


# Functions for the fields of a popped job that are not plain columns of its row, by field. ``queue`` and ``worker`` are missing:
# they are the same for all jobs of a call.
_MADE: dict[str, Callable[[ClaimedRow, Codec], Any]] = {
    "payload": lambda row, codec: decoded_or_text(codec, row.payload),
    "headers": lambda row, _: decode_headers(row.headers),
    "state": lambda row, _: State.RUNNING,
    "available_at": lambda row, _: from_micros(row.available_at),
    "created_at": lambda row, _: from_micros(row.created_at),
    "group": lambda row, _: row.group_key,
    "batch": lambda row, _: batch_of(row.callback_id),
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
