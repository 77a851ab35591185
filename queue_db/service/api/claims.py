"""Claims: lease jobs, and wait for one if none is due."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, Field

from queue_db import arguments
from queue_db.leased_job import LeasedJob
from queue_db.service.api import answers, shapes
from queue_db.service.api.shapes import LONGEST_WAIT, Id, Lease, LeaseSeconds, WorkerName
from queue_db.service.http.handover import Handover, watch
from queue_db.service.http.paths import Name
from queue_db.service.http.requests import Db, Standing, WorkerClient, of
from queue_db.service.http.times import Time
from queue_db.service.live.claims import Claims, Terms, Wanted
from queue_db.service.live.leases import Leases, handed
from queue_db.store.schema import WORKER_LENGTH
from queue_db.verbs.claim import MAX_CLAIM

router = APIRouter(tags=["claims"])

_NOTHING = b'{"jobs":[]}'


class ClaimRequest(shapes.Request):
    """How many jobs, and for how long."""

    limit: Annotated[int, Field(ge=1, le=MAX_CLAIM, description="Most jobs.")] = 1
    lease: LeaseSeconds = 60.0
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
    if body.worker is not None:  # here, since clients with other names may share the claim
        arguments.name("worker", body.worker, WORKER_LENGTH)
    claims: Claims = request.app.state.claims
    terms = Terms.of(db.queue(queue).name, body.limit, body.lease, body.worker)
    wanted = Wanted(terms, body.limit, body.worker, partial(_handed_out, of(request).leases, db.codec))
    disconnected = watch(request.receive)
    jobs: Sequence[LeasedJob] = []
    try:
        jobs = await claims.claim(wanted, body.wait, disconnected)
        await Standing(request, "work", queue).check()
    except BaseException:
        disconnected.cancel()
        claims.return_to_queue(jobs)
        raise
    return Handover(wanted.answer if jobs else _NOTHING, disconnected, _nothing, partial(claims.return_to_queue, jobs))


def _nothing() -> Response:
    return Response(_NOTHING, media_type=Handover.media_type)


def _handed_out(leases: Leases, codec: object, jobs: Sequence[LeasedJob]) -> bytes:
    """The jobs as JSON, and their leases remembered."""
    now = [*map(handed, jobs)]
    content = answers.claimed(now, codec)
    leases.remember(now)
    return content
