"""Jobs: enqueue one, many or a batch; look, list, cancel, reschedule."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from fastapi import APIRouter, Header, Query, Request, Response
from pydantic import BaseModel, Field, model_validator
from pydantic_core import PydanticCustomError
from starlette.concurrency import run_in_threadpool

from queue_db.db import QueueDB
from queue_db.errors import ArgumentError, DuplicateJobError, JobNotFoundError
from queue_db.model import Job, OnDuplicate, PresentState, State
from queue_db.monitoring.model import Finished
from queue_db.operations import jobs as operations
from queue_db.operations import rights
from queue_db.operations.actor import Actor
from queue_db.operations.jobs import NewTime, OneJob
from queue_db.queue import Queue
from queue_db.service.api import shapes
from queue_db.service.api.etag import IfMatch, etag
from queue_db.service.api.finished import finished_of
from queue_db.service.api.paging import json_bytes, opened, paged, sealed
from queue_db.service.api.shapes import (
    LONGEST_WAIT,
    After,
    FinishedView,
    Id,
    JobDetail,
    JobPage,
    KindName,
    Limit,
    Moment,
    PathId,
    Seconds,
    clean,
    finished_view,
    job_detail,
    job_view,
)
from queue_db.service.http.openapi import problems
from queue_db.service.http.paths import Name, NewName
from queue_db.service.http.pressure import Pressure
from queue_db.service.http.refusals import RefusedError, stale
from queue_db.service.http.requests import Db, Enqueuer, Manager, Reader, Standing, of
from queue_db.service.http.times import Time
from queue_db.service.live.ends import ends_of
from queue_db.store.schema import DEFAULT_MAX_ATTEMPTS, KEY_LENGTH

router = APIRouter(tags=["jobs"])

#: Most jobs of one request.
MOST_JOBS = 1000

#: Seconds for which an Idempotency-Key is remembered.
IDEMPOTENT_FOR = 86_400.0

# A job of many has the key of the request, this, and its position as its own.
_POSITION = "#"

_KEY = Header(
    min_length=1,
    max_length=KEY_LENGTH - 5,
    description="A repetition within 24 hours enqueues nothing and is answered with the first one's ids and status 200. "
    "It is the unique key of the job, with `unique_for` of a day or the one given; `on_duplicate` has no effect then.",
)
IdempotencyKey = Annotated[str | None, _KEY]

Wait = Annotated[float, Query(ge=0, le=LONGEST_WAIT, allow_inf_nan=False, description="Seconds to wait for the end of the job.")]


class NewJob(shapes.Request):
    """A job to enqueue."""

    kind: KindName
    payload: Annotated[Any, Field(description="Any JSON value.", examples=[{"to": "ada@example.com"}])] = None
    delay: Annotated[Seconds, Field(description="Seconds until it is due.")] = 0.0
    run_at: Annotated[Moment | None, Field(description="When it is due; with `delay` too, the later one counts.")] = None
    priority: Annotated[int, Field(ge=-32768, le=32767, description="Lower number first.")] = 0
    unique_key: Annotated[
        str | None, Field(min_length=1, max_length=KEY_LENGTH, description="At most one live job of the queue has this key.")
    ] = None
    unique_for: Annotated[Seconds | None, Field(gt=0, description="Seconds for which the key stays taken anyway.")] = None
    group: Annotated[str | None, Field(min_length=1, max_length=KEY_LENGTH, description="Jobs of one group run in order.")] = None
    max_attempts: Annotated[int, Field(ge=1, le=2**31 - 1, description="After as many failures it is dead.")] = DEFAULT_MAX_ATTEMPTS
    headers: Annotated[dict[str, Any] | None, Field(description="A small object, for example for tracing.")] = None

    def options(self) -> dict[str, Any]:
        """What was given, as the verbs take it."""
        return {name: getattr(self, name) for name in self.model_fields_set - {"kind", "payload", "on_duplicate"}}


class NewSingleJob(NewJob):
    """A job to enqueue, and what happens if its unique key is taken."""

    on_duplicate: Annotated[
        OnDuplicate,
        Field(
            description="If a live job has the key: raise: 409; skip: 200 without an id; replace: the new content takes over its"
            " row; debounce: as replace, but a running job goes on."
        ),
    ] = "raise"


class NewJobs(shapes.Request):
    """Jobs to enqueue in one transaction: all or none."""

    jobs: Annotated[list[NewJob], Field(min_length=1, max_length=MOST_JOBS)]
    on_duplicate: Annotated[OnDuplicate, Field(description="If a live job has a key; for each job as for one.")] = "raise"


class BatchCallback(shapes.Request):
    """The job that is enqueued when all jobs of a batch have left the queue."""

    kind: KindName
    payload: Any = None
    priority: Annotated[int, Field(ge=-32768, le=32767)] = 0
    max_attempts: Annotated[int, Field(ge=1, le=2**31 - 1)] = DEFAULT_MAX_ATTEMPTS
    headers: dict[str, Any] | None = None


class NewBatch(shapes.Request):
    """Jobs, and the job that follows when all of them have left the queue."""

    jobs: Annotated[list[NewJob], Field(min_length=1, max_length=MOST_JOBS)]
    then: BatchCallback
    on_duplicate: Annotated[Literal["raise", "skip"], Field(description="The batch does not wait for skipped jobs.")] = "raise"


class EnqueuedJob(BaseModel):
    """The job that was enqueued."""

    id: Id | None = Field(description="null: it was skipped.")
    created: bool = Field(description="false: a repetition of the Idempotency-Key, or skipped.")


class EnqueuedJobs(BaseModel):
    """The jobs that were enqueued."""

    ids: list[Id | None] = Field(description="By position; null: it was skipped.")
    created: bool = Field(description="false: a repetition of the Idempotency-Key.")


class EnqueuedBatch(EnqueuedJobs):
    """The batch that was enqueued."""

    batch: Id | None = Field(description="For GET /batches/{batch_id}; null in a repetition.")


class RescheduleJob(shapes.Request):
    """When a waiting job is due, and its priority; at least one of them."""

    run_at: Annotated[Moment | None, Field(description="When it is due.")] = None
    delay: Annotated[Seconds | None, Field(description="Seconds until it is due; 0: now.")] = None
    priority: Annotated[int | None, Field(ge=-32768, le=32767, description="Lower number first.")] = None

    @model_validator(mode="after")
    def _has_values(self) -> Self:
        for name in self.model_fields_set:
            if getattr(self, name) is None:
                raise PydanticCustomError("null", "{name} cannot be null: leave it out to keep it", {"name": name})
        return self


class FailedAttempt(BaseModel):
    """A failed attempt."""

    attempt: int
    failed_at: Time
    worker: str | None
    error_class: str
    message: str
    trace: str | None


class FailedAttempts(BaseModel):
    """The latest failed attempts, oldest first."""

    errors: list[FailedAttempt]


_REPETITION = {200: {"description": "A repetition of the Idempotency-Key, or the job was skipped: nothing was enqueued."}}


@router.post(
    "/queues/{queue}/jobs",
    status_code=201,
    responses={200: {"model": EnqueuedJob, **_REPETITION[200]}, **problems(404, 409)},
)
def enqueue_job(
    queue: NewName,
    body: NewSingleJob,
    db: Db,
    who: Enqueuer,
    request: Request,
    response: Response,
    idempotency_key: IdempotencyKey = None,
) -> EnqueuedJob:
    """Enqueue a job. With `Idempotency-Key` a request may be repeated when its answer was lost."""
    who.check("enqueue", queue)
    target = db.queue(queue)
    pressure = _checked(request, queue, 1)
    options = {**body.options(), "on_duplicate": body.on_duplicate}
    if idempotency_key is not None:
        options |= _idempotent(body, idempotency_key)
    try:
        job_id = target.enqueue(body.kind, body.payload, **options)
    except DuplicateJobError as error:
        if idempotency_key is None or error.existing_id is None:
            raise
        response.status_code = 200
        return EnqueuedJob(id=str(error.existing_id), created=False)
    if job_id is None:
        response.status_code = 200
        return EnqueuedJob(id=None, created=False)
    pressure.count(queue, 1)
    response.headers["Location"] = request.url_for("get_job", job_id=str(job_id)).path
    return EnqueuedJob(id=str(job_id), created=True)


@router.post(
    "/queues/{queue}/jobs/many",
    status_code=201,
    responses={200: {"model": EnqueuedJobs, **_REPETITION[200]}, **problems(409)},
)
def enqueue_jobs(
    queue: NewName,
    body: NewJobs,
    db: Db,
    who: Enqueuer,
    request: Request,
    response: Response,
    idempotency_key: IdempotencyKey = None,
) -> EnqueuedJobs:
    """Enqueue jobs in one transaction: all or none."""
    who.check("enqueue", queue)
    target = db.queue(queue)
    pressure = _checked(request, queue, len(body.jobs))
    on_duplicate = body.on_duplicate if idempotency_key is None else "raise"
    try:
        ids = target.enqueue_many(_many(body.jobs, idempotency_key), on_duplicate=on_duplicate)
    except DuplicateJobError:
        response.status_code = 200
        return EnqueuedJobs(ids=_first(target, idempotency_key, len(body.jobs)), created=False)
    pressure.count(queue, len(ids) - ids.count(None))
    return EnqueuedJobs(ids=_texts(ids), created=True)


@router.post(
    "/queues/{queue}/batches",
    status_code=201,
    tags=["batches"],
    responses={200: {"model": EnqueuedBatch, **_REPETITION[200]}, **problems(409)},
)
def enqueue_batch(
    queue: NewName,
    body: NewBatch,
    db: Db,
    who: Enqueuer,
    request: Request,
    response: Response,
    idempotency_key: IdempotencyKey = None,
) -> EnqueuedBatch:
    """Enqueue jobs, and one that follows when all of them have been completed, have died or were cancelled."""
    who.check("enqueue", queue)
    target = db.queue(queue)
    pressure = _checked(request, queue, len(body.jobs))
    on_duplicate = body.on_duplicate if idempotency_key is None else "raise"
    then = body.then
    options = {name: getattr(then, name) for name in then.model_fields_set - {"kind", "payload"}}
    try:
        batch, ids = target.enqueue_batch(
            _many(body.jobs, idempotency_key), (then.kind, then.payload, options), on_duplicate=on_duplicate
        )
    except DuplicateJobError:
        response.status_code = 200
        return EnqueuedBatch(ids=_first(target, idempotency_key, len(body.jobs)), batch=None, created=False)
    pressure.count(queue, len(ids) - ids.count(None))
    return EnqueuedBatch(ids=_texts(ids), batch=str(batch), created=True)


def _checked(request: Request, queue: str, jobs: int) -> Pressure:
    pressure: Pressure = request.app.state.pressure
    pressure.check(queue, jobs)
    return pressure


def _idempotent(job: NewJob, key: str) -> dict[str, Any]:
    if job.unique_key not in {None, key}:
        raise ArgumentError("unique_key and Idempotency-Key differ: the key of the request is the job's unique key")
    return {"unique_key": key, "unique_for": job.unique_for or IDEMPOTENT_FOR, "on_duplicate": "raise"}


def _many(jobs: list[NewJob], key: str | None) -> list[tuple[str, Any, Mapping[str, Any]]]:
    if key is None:
        return [(job.kind, job.payload, job.options()) for job in jobs]
    if any(job.unique_key is not None for job in jobs):
        raise ArgumentError("unique_key and Idempotency-Key: the key of the request makes the jobs' unique keys; give one of both")
    return [(job.kind, job.payload, {**job.options(), **_own_key(key, position, job)}) for position, job in enumerate(jobs)]


def _own_key(key: str, position: int, job: NewJob) -> dict[str, Any]:
    return {"unique_key": f"{key}{_POSITION}{position}", "unique_for": job.unique_for or IDEMPOTENT_FOR}


def _first(queue: Queue, key: str | None, jobs: int) -> list[str | None]:
    """The ids of the first request with this key; to be called while an error is handled, which is raised again without a key.

    :raises RefusedError: 409, that request had more or fewer jobs.
    """
    if key is None:
        raise  # noqa: PLE0704 - the error that is handled
    *keys, beyond = [f"{key}{_POSITION}{position}" for position in range(jobs + 1)]
    found = queue.unique_key_holders([*keys, beyond])
    if found.keys() != set(keys):
        raise RefusedError(
            409,
            "The Idempotency-Key is taken",
            "a request with another number of jobs had this key; this one has enqueued nothing",
            code="idempotency_key_taken",
        )
    return [str(found[one]) for one in keys]


def _texts(ids: list[int | None]) -> list[str | None]:
    return [None if job_id is None else str(job_id) for job_id in ids]


@router.get("/queues/{queue}/jobs")
def list_jobs(
    queue: Name,
    db: Db,
    who: Reader,
    request: Request,
    state: Annotated[PresentState, Query()] = "available",
    kind: Annotated[str | None, Query(max_length=100, description="Jobs of this kind only.")] = None,
    group: Annotated[str | None, Query(max_length=200, description="Jobs of this group only.")] = None,
    after: After = None,
    limit: Limit = 50,
) -> JobPage:
    """List the jobs of a queue in one state, in the order of their due times; read by index, a page at a time."""
    who.check("read", queue)
    return page_of_jobs(db.queue(queue), state, of(request).settings.masked, kind=kind, group=group, after=after, limit=limit)


def page_of_jobs(
    queue: Queue, state: PresentState, masked: tuple[str, ...], *, after: str | None, limit: int, **wanted: str | None
) -> JobPage:
    """A page of the jobs of a queue in one state."""

    def read(after: str | None, most: int) -> tuple[list[Job], str | None]:
        page = queue.jobs(state, after=after, limit=most, **wanted)
        return page.jobs, page.after

    listing = ("jobs", queue.name, state, wanted.get("kind"), wanted.get("group"))
    views, following = paged(read, lambda job: job_view(job, masked), opened(listing, after), limit, json_bytes)
    return JobPage(jobs=views, after=sealed(listing, following))


@router.get("/jobs/{job_id}", responses=problems(404))
async def get_job(
    job_id: PathId, db: Db, who: Reader, request: Request, response: Response, wait: Wait = 0.0
) -> Annotated[JobDetail | FinishedView, Field(discriminator="state")]:
    """A job: live, dead, or completed with a retained result. The ETag of a live or dead one is for `If-Match` of a change.

    With `wait` the request is answered as soon as the job is completed, dead or cancelled, and with the job as it is when the time
    is over. 404: nothing is left of the job. It was completed without a retained result, cancelled or purged, or never existed.
    """
    job = await run_in_threadpool(_job, db, who, int(job_id))
    if wait and _may_end(job):
        job = await _end_of(job, db, who, request, time.monotonic() + wait)
    masked = of(request).settings.masked
    if isinstance(job, Finished):
        return await run_in_threadpool(finished_view, job, masked)
    response.headers["ETag"] = etag(job)
    return await run_in_threadpool(lambda: job_detail(job, db.steps.list(job.id), masked))


async def _end_of(job: Job | Finished, db: QueueDB, who: Actor, request: Request, until: float) -> Job | Finished:
    """The job when it has ended, or as it is ``until`` this time.

    :raises JobNotFoundError: nothing is left of it.
    """
    goes_on, standing = True, Standing(request, "read", job.queue)
    try:
        with ends_of(request).waiter(job.id) as waiter:
            while goes_on and _may_end(job):
                goes_on = await waiter.wait(until - time.monotonic()) and not await request.is_disconnected()
                job = await run_in_threadpool(_job, db, who, job.id)
    finally:
        await standing.check()  # also that nothing is left is not for everybody
    return job


def _job(db: QueueDB, who: Actor, job_id: int) -> Job | Finished:
    """A live or dead job, or a completed one whose result is retained.

    :raises JobNotFoundError: nothing is left of it, or not for this actor.
    """
    try:
        return rights.job(db, who, "read", job_id)
    except JobNotFoundError:
        # A job that was completed after the first read is found by the second one.
        if (found := finished_of(db, who, job_id)) is None:
            raise
        return found


def _may_end(job: Job | Finished) -> bool:
    """Whether the end of a job is still to come."""
    return isinstance(job, Job) and job.state is not State.DEAD


@router.get("/jobs/{job_id}/errors", responses=problems(404))
def list_attempts(job_id: PathId, db: Db, who: Reader) -> FailedAttempts:
    """The latest failed attempts of a live or dead job; at most ten."""
    rights.job(db, who, "read", int(job_id))
    return FailedAttempts(
        errors=[
            FailedAttempt(
                attempt=one.attempt,
                failed_at=one.failed_at,
                worker=one.worker,
                error_class=clean(one.error_class),
                message=clean(one.message),
                trace=None if one.trace is None else clean(one.trace),
            )
            for one in db.errors(int(job_id))
        ]
    )


@router.delete("/jobs/{job_id}", status_code=204, responses=problems(404, 409, 412, 428))
def cancel_job(job_id: PathId, db: Db, who: Manager, if_match: IfMatch) -> None:
    """Cancel a live job in any state. A worker that runs it loses its lease."""
    version = if_match.version(int(job_id))
    _require(operations.cancel(db, who, OneJob(id=int(job_id), version=version)), version)


@router.patch("/jobs/{job_id}", status_code=204, responses=problems(404, 409, 412, 428))
def reschedule_job(job_id: PathId, db: Db, who: Manager, if_match: IfMatch, body: RescheduleJob) -> None:
    """Give a waiting job another due time or priority; `{"delay": 0}` runs it now."""
    version = if_match.version(int(job_id))
    new = NewTime(run_at=body.run_at, delay=body.delay, priority=body.priority)
    _require(operations.reschedule(db, who, OneJob(id=int(job_id), version=version), new), version)


def _require(changed: Job | None, version: int | None) -> None:
    if changed is None:
        if version is not None:
            raise stale("read the job again: its version is another one now")
        raise RefusedError(
            409, "The job changes too fast", "a stream holds it, or it changed during each of several tries", code="busy"
        )
