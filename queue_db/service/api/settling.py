"""Settling one leased job by its own URL, with the lease in the headers: If-Match has its version, Lease-Token its token."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Response

from queue_db.errors import JobNotFoundError, LeaseLostError
from queue_db.leased_job import LeasedJob
from queue_db.model import Verdict
from queue_db.operations import rights
from queue_db.service.api.etag import IfMatch
from queue_db.service.api.settlements import (
    Bury,
    Complete,
    Extend,
    Fail,
    Progress,
    SettledJob,
    Snooze,
    error_of,
    lease_view,
    retained,
)
from queue_db.service.api.shapes import PathId
from queue_db.service.http.openapi import problems
from queue_db.service.http.requests import Db, WorkerClient

router = APIRouter(prefix="/jobs/{job_id}", tags=["settlements"], responses=problems(412, 428))


def leased(
    job_id: PathId,
    db: Db,
    who: WorkerClient,
    if_match: IfMatch,
    lease_token: Annotated[str, Header(min_length=1, max_length=100, description="`token` of the lease.")],
) -> LeasedJob:
    """The leased job of the request.

    :raises LeaseLostError: 412.
    """
    version = if_match.lease(int(job_id))
    try:
        job = rights.job(db, who, "work", int(job_id))
    except JobNotFoundError:
        # It was settled, perhaps by this request, whose response was lost; or the token lacks the scope for its queue. It counts
        # without a queue, for that is unknown.
        counters = db.database.counters
        with db.database.counting:
            counters.lost += 1
        raise LeaseLostError(int(job_id), version) from None
    return db.queue(job.queue).lease_from_token(job.id, version, lease_token)


Leased = Annotated[LeasedJob, Depends(leased)]


def _applied(job: LeasedJob, verdict: Verdict) -> SettledJob:
    if not verdict:
        raise LeaseLostError(job.id, job.version)
    return SettledJob(id=str(job.id), verdict="applied")


@router.post("/complete")
def complete_job(job: Leased, body: Complete | None = None) -> SettledJob:
    """The work is done: the job leaves the queue. With `result_ttl` its result is retained."""
    body = body or Complete()
    source: Any = job.source
    if body.result_ttl is None:
        return _applied(job, job.complete())
    return _applied(job, source.complete_many([job], results=[retained(source, body.result, body.result_ttl)])[0])


@router.post("/fail")
def fail_job(job: Leased, body: Fail) -> SettledJob:
    """The attempt failed: a retry after `retry_in` seconds or the backoff; after the last attempt the job is dead."""
    return _applied(job, job.fail(error_of(body.error), retry_in=body.retry_in))


@router.post("/bury")
def bury_job(job: Leased, body: Bury) -> SettledJob:
    """The job goes to the dead table: a retry would not help."""
    return _applied(job, job.bury(error_of(body.error)))


@router.post("/snooze")
def snooze_job(job: Leased, body: Snooze) -> SettledJob:
    """The job is due again in `seconds`; not an attempt."""
    return _applied(job, job.snooze(body.seconds))


@router.post("/release")
def release_job(job: Leased) -> SettledJob:
    """The job is due again now; not an attempt."""
    return _applied(job, job.release())


@router.post("/cancel")
def cancel_leased_job(job: Leased) -> SettledJob:
    """The work is no longer wanted: the job leaves the queue."""
    return _applied(job, job.cancel())


@router.post("/extend")
def extend_lease(job: Leased, body: Extend, response: Response) -> SettledJob:
    """The lease ends `seconds` from now. Its version changes: the ETag of the response is the new one."""
    settled = _applied(job, job.extend(body.seconds))
    response.headers["ETag"] = f'"{job.fence}"'
    return settled.model_copy(update={"lease": lease_view(job), "lease_expires": job.lease_expires})


@router.post("/progress")
def report_progress(job: Leased, body: Progress) -> SettledJob:
    """Report how far the job is; the job shows it while this attempt runs."""
    return _applied(job, job.progress(body.fraction, body.note))
