"""Claims: lease jobs, and wait for one if none is due."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache, partial
from typing import Annotated, Any

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, Field

from queue_db.leased_job import LeasedJob
from queue_db.model import from_micros
from queue_db.service import shapes
from queue_db.service.handover import Handover, watch
from queue_db.service.leases import Leases
from queue_db.service.paths import Name
from queue_db.service.requests import Db, WorkerClient, of
from queue_db.service.shapes import Id, Lease, Seconds, WorkerName, clean, shown
from queue_db.service.times import Time, rfc3339
from queue_db.service.waiting import Waiting, Wanted
from queue_db.verbs.claim import MAX_CLAIM

router = APIRouter(tags=["claims"])

_NOTHING = b'{"jobs":[]}'

#: Longest wait of a claim, seconds. Proxies often cut a request after a minute.
LONGEST_WAIT = 50.0


class ClaimRequest(shapes.Request):
    """How many jobs, and for how long."""

    limit: Annotated[int, Field(ge=1, le=MAX_CLAIM, description="Most jobs.")] = 1
    lease: Annotated[Seconds, Field(gt=0, description="Seconds for which they are leased; settle or extend them within.")] = 60.0
    wait: Annotated[float, Field(ge=0, le=LONGEST_WAIT, description="If none is due: seconds to wait for one.")] = 0.0
    worker: Annotated[WorkerName | None, Field(description="Default: the service's own name.")] = None


class ClaimedJob(BaseModel):
    """A leased job."""

    id: Id
    queue: str
    kind: str
    payload: Any
    headers: dict[str, Any]
    priority: int
    attempts: int = Field(description="Number of this attempt, from 1.")
    max_attempts: int
    unique_key: str | None
    group: str | None
    batch: Id | None
    created_at: Time
    due_at: Time | None = Field(description="When it was due: `available_at` of the job before this claim.")
    last_error: str | None
    lease: Lease
    lease_expires: Time = Field(description="`available_at` of the job now: from then on others can claim it.")


class Claimed(BaseModel):
    """The jobs won; fewer than asked for, or none, if not more are due."""

    jobs: list[ClaimedJob]


@router.post("/queues/{queue}/claims", response_model=Claimed)
async def claim_jobs(queue: Name, body: ClaimRequest, db: Db, who: WorkerClient, request: Request) -> Response:
    """Lease up to `limit` due jobs, lowest priority number first, then longest due.

    With `wait` the request is answered as soon as a job is due, and empty when the time is over. A paused queue gives none.
    Settle each job with its `lease`. If the client goes away before it has the answer, the jobs return to the queue at once.
    """
    who.check("work", queue)
    waiting: Waiting = request.app.state.waiting
    wanted = Wanted(db.queue(queue).name, body.limit, body.lease, body.worker, partial(_handed_out, of(request).leases))
    disconnected = watch(request.receive)
    try:
        jobs = await waiting.claim(wanted, body.wait, disconnected)
    except BaseException:
        disconnected.cancel()
        raise
    nothing = Response(_NOTHING, media_type=Handover.media_type)
    return Handover(wanted.answer if jobs else _NOTHING, disconnected, nothing, partial(waiting.return_to_queue, jobs))


def _handed_out(leases: Leases, jobs: Sequence[LeasedJob]) -> bytes:
    """The jobs as JSON, and their leases remembered."""
    content = _content(jobs)
    leases.remember(jobs)
    return content


def _content(jobs: Sequence[LeasedJob]) -> bytes:
    """The jobs as JSON; a payload that not every reader of JSON accepts is made so."""
    try:
        return json.dumps({"jobs": [_job(job) for job in jobs]}, allow_nan=False, separators=(",", ":")).encode()
    except (ValueError, TypeError, RecursionError):
        made = [{**_job(job), "payload": shown(_payload(job)), "headers": shown(dict(job.headers))} for job in jobs]
        return json.dumps({"jobs": made}, allow_nan=False).encode()


def _payload(job: LeasedJob) -> Any:
    try:
        return job.payload
    except ValueError:  # PayloadError: the stored text, so that the client can bury the job
        return job.payload_text


def _job(job: LeasedJob) -> dict[str, Any]:
    row = job.snapshot_row()
    job_id = str(row.id)
    return {
        "id": job_id,
        "queue": job.queue,
        "kind": clean(row.kind),
        "payload": _payload(job),
        "headers": job.headers,
        "priority": row.priority,
        "attempts": row.attempts,
        "max_attempts": row.max_attempts,
        "unique_key": row.unique_key,
        "group": row.group_key,
        "batch": None if row.callback_id is None else str(row.callback_id),
        "created_at": _time(row.created_at),
        "due_at": None if row.due_at is None else _time(row.due_at),
        "last_error": row.last_error,
        "lease": {"id": job_id, "version": str(row.version), "token": job.token},
        "lease_expires": _time(job.lease_ends),
    }


@lru_cache(maxsize=1000)
def _time(micros: int) -> str:
    """A time as text; jobs of one claim, and those that were enqueued together, have the same."""
    return rfc3339(from_micros(micros))
