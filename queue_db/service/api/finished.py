"""Finished jobs: completed ones whose results are retained."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, Field

from queue_db.db import QueueDB
from queue_db.errors import JobNotFoundError
from queue_db.monitoring.model import Finished
from queue_db.operations.actor import Actor
from queue_db.service.api.paging import json_bytes, number, opened, paged, sealed
from queue_db.service.api.shapes import After, FinishedView, Limit, PathId, finished_view
from queue_db.service.http.openapi import problems
from queue_db.service.http.requests import Db, Reader, of

router = APIRouter(tags=["finished"])

_SOME_TIME = datetime(1970, 1, 1, tzinfo=UTC)


class FinishedPage(BaseModel):
    """Some finished jobs, and where to go on."""

    jobs: list[FinishedView]
    after: str | None = Field(description="For the next page; null: there are no more.")


@router.get("/finished")
def list_finished_jobs(
    db: Db,
    who: Reader,
    request: Request,
    queue: Annotated[str | None, Query(max_length=100, description="Jobs of this queue only.")] = None,
    kind: Annotated[str | None, Query(max_length=100, description="Jobs of this kind only.")] = None,
    after: After = None,
    limit: Limit = 50,
) -> FinishedPage:
    """List completed jobs with retained results, by id; without a queue those of the queues that the token may read."""
    if queue is not None:
        who.check("read", queue)
    listing = ("finished", queue, kind)
    masked = of(request).settings.masked

    def read(after: Finished | None, most: int) -> tuple[list[Finished], Finished | None]:
        jobs = db.finished_jobs(queue, kind=kind, limit=most, after=after)
        return jobs, jobs[-1] if len(jobs) == most else None

    position = opened(listing, after)
    start = None if position is None else last_of_page(number(position, 2**63 - 1))
    views, last = paged(read, lambda job: finished_view(job, masked), start, limit, json_bytes)
    shown = [one for one in views if who.allows("read", one.queue)]
    return FinishedPage(jobs=shown, after=None if last is None else sealed(listing, str(last.id)))


@router.get("/finished/{job_id}", responses=problems(404))
def get_finished_job(job_id: PathId, db: Db, who: Reader, request: Request) -> FinishedView:
    """A completed job and its result, until it expires. 404: it is not completed, or its result was not retained."""
    found = finished_of(db, who, int(job_id))
    if found is None:
        raise JobNotFoundError(int(job_id), "the finished jobs")
    return finished_view(found, of(request).settings.masked)


def finished_of(db: QueueDB, who: Actor, job_id: int) -> Finished | None:
    """A completed job whose result is retained; None: there is none, or not for this actor.

    The error of the verb shows the state of a job that may be of a queue that this token may not see.
    """
    try:
        found = db.finished(job_id)
    except JobNotFoundError:
        return None
    return found if who.allows("read", found.queue) else None


def last_of_page(job_id: int) -> Finished:
    """A job that stands for the one with this id as the last one of a page, whether it is still retained or not."""
    at = _SOME_TIME
    return Finished(
        id=job_id,
        queue="",
        kind="",
        payload=None,
        result=None,
        attempts=0,
        worker=None,
        created_at=at,
        finished_at=at,
        expires_at=at,
    )
