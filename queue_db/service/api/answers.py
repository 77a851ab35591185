"""The answers to claims and settlements, which are most of what a service writes.

There is a fast way, msgspec, and a slow one, ``json`` and :func:`~queue_db.service.api.shapes.shown`. Both give the same values;
only the spelling differs: the slow way escapes what is not ASCII, and writes 1e+16 for 1e16.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import msgspec
from msgspec import Struct

from queue_db.codecs import JSONCodec
from queue_db.leased_job import LeasedJob, decode_headers
from queue_db.model import ClaimedRow, from_micros
from queue_db.service.api.shapes import clean, shown
from queue_db.service.http.times import rfc3339
from queue_db.service.live.leases import Handed

_decode = msgspec.json.Decoder().decode

#: Writes Structs as JSON.
encode = msgspec.json.Encoder().encode


class WrittenLease(Struct, frozen=True, gc=False):
    """A :class:`~queue_db.service.api.shapes.Lease`."""

    id: str
    version: str
    token: str


class _Job(Struct, gc=False):
    """A ``ClaimedJob``."""

    id: str
    queue: str
    kind: str
    payload: Any
    headers: Any
    priority: int
    attempts: int
    max_attempts: int
    unique_key: str | None
    group: str | None
    batch: str | None
    created_at: str
    due_at: str | None
    last_error: str | None
    lease: WrittenLease
    lease_expires: str


class _Claimed(Struct, gc=False):
    """A ``Claimed``."""

    jobs: list[_Job]


def claimed(jobs: Sequence[Handed], codec: object) -> bytes:
    """The answer to a claim; a payload that not every reader of JSON accepts is made so.

    The fast way is for payloads in strict JSON: it refuses NaN, numbers that are too large, lone surrogates and what is nested too
    deeply. For those, and for payloads of a codec of the application's, which may be of any type, it is the slow way.
    """
    if type(codec) is JSONCodec:
        try:
            return encode(_Claimed([_job(*one, _decode(one[1].payload), _headers(one[1])) for one in jobs]))
        except (msgspec.MsgspecError, ValueError, TypeError, RecursionError):
            pass
    return slowly([_job(*one, _payload(one[0]), decode_headers(one[1].headers)) for one in jobs])


def slowly(jobs: Sequence[_Job]) -> bytes:
    """The answer to a claim of jobs with any payloads."""
    return f'{{"jobs":[{",".join(map(_slowly, jobs))}]}}'.encode()


def _slowly(job: _Job) -> str:
    """One job: what is shown of it does not depend on those beside it."""
    made = {**msgspec.structs.asdict(job), "lease": msgspec.structs.asdict(job.lease)}
    try:
        return json.dumps(made, allow_nan=False, separators=(",", ":"))
    except (ValueError, TypeError, RecursionError):
        made.update(payload=shown(job.payload), headers=shown(job.headers))
        return json.dumps(made, allow_nan=False, separators=(",", ":"))


def _headers(row: ClaimedRow) -> Any:
    found = _decode(row.headers) if row.headers else {}
    return found if isinstance(found, dict) else {}


def _payload(job: LeasedJob) -> Any:
    try:
        return job.payload
    except ValueError:  # PayloadError: the stored text, so that the client can bury the job
        return job.payload_text


def _job(job: LeasedJob, row: ClaimedRow, own: str, payload: Any, headers: Any) -> _Job:
    job_id = str(row.id)
    return _Job(
        job_id,
        job.queue,
        clean(row.kind),
        payload,
        headers,
        row.priority,
        row.attempts,
        row.max_attempts,
        row.unique_key,
        row.group_key,
        None if row.callback_id is None or row.callback_id < 0 else str(row.callback_id),
        _time(row.created_at),
        None if row.due_at is None else _time(row.due_at),
        row.last_error,
        WrittenLease(job_id, str(row.version), own),
        _time(job.lease_ends),
    )


@lru_cache(maxsize=1000)
def _time(micros: int) -> str:
    """A time as text; jobs of one claim, and those that were enqueued together, have the same."""
    return rfc3339(from_micros(micros))
