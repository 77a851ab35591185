"""The jobs that ``pop`` returns: each field is made of the claimed row when it is first used."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from queue_db.codecs import Codec, decoded_or_text
from queue_db.leased_job import decode_headers
from queue_db.model import ClaimedRow, Job, State, from_micros

# The fields that are not columns of the row as it is; ``queue`` and ``worker`` are the same for all.
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
    """The claimed and deleted jobs. A payload that the codec cannot decode is shown as its stored text."""
    same = {"queue": queue, "worker": worker}

    def read(row: ClaimedRow, name: str) -> Any:
        if name in same:
            return same[name]
        made = _MADE.get(name)
        return getattr(row, name) if made is None else made(row, codec)

    return Job.late(rows, read)
