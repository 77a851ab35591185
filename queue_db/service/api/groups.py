"""Groups: the jobs of one, and repair. Batches: list, progress; they are enqueued by ``POST /queues/{queue}/batches``."""

from __future__ import annotations

from datetime import UTC, datetime

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field

from queue_db.groups import Batch
from queue_db.operations import groups as operations
from queue_db.service.api.jobs import page_of_jobs
from queue_db.service.api.paging import number, opened, sealed
from queue_db.service.api.shapes import After, Id, JobPage, Limit, PathId, View
from queue_db.service.http.openapi import problems
from queue_db.service.http.paths import Name
from queue_db.service.http.refusals import missing
from queue_db.service.http.requests import Db, Manager, Reader, of
from queue_db.service.http.times import Time

router = APIRouter(tags=["groups"])
batches = APIRouter(tags=["batches"])

_SOME_TIME = datetime(1970, 1, 1, tzinfo=UTC)

_LISTING = ("batches",)


class BatchView(View):
    """Progress of a batch."""

    id: Id
    queue: str = Field(description="Queue of its callback job.")
    jobs: int
    pending: int = Field(description="Still in the queue.")
    dead: int
    cancelled: int
    created_at: Time


class BatchPage(BaseModel):
    """Some batches, and where to go on."""

    batches: list[BatchView]
    after: str | None = Field(description="For the next page; null: there are no more.")


@router.get("/queues/{queue}/groups/{group}/jobs")
def list_group_jobs(
    queue: Name, group: Name, db: Db, who: Reader, request: Request, after: After = None, limit: Limit = 50
) -> JobPage:
    """List the jobs of a group that wait for others of it, in their order."""
    who.check("read", queue)
    return page_of_jobs(db.queue(queue), "blocked", of(request).settings.masked, group=group, after=after, limit=limit)


@router.post("/queues/{queue}/groups/repair", status_code=204)
def repair_groups(queue: Name, db: Db, who: Manager) -> None:
    """Unblock the groups of a queue whose next job waits for no other, as after a row was deleted by hand."""
    operations.repair(db, who, queue)


@batches.get("/batches")
def list_batches(db: Db, who: Reader, after: After = None, limit: Limit = 50) -> BatchPage:
    """List the batches with jobs that have not left, newest first."""
    start = opened(_LISTING, after)
    batches = db.batches(limit=limit, after=None if start is None else _after(start))
    last = sealed(_LISTING, str(batches[-1].id)) if len(batches) == limit else None
    return BatchPage(batches=[BatchView.of(one) for one in batches if who.allows("read", one.queue)], after=last)


@batches.get("/batches/{batch_id}", responses=problems(404))
def get_batch(batch_id: PathId, db: Db, who: Reader) -> BatchView:
    """Progress of a batch. 404: all its jobs have left, and its callback job was enqueued; or there was none."""
    found = db.batch(int(batch_id))
    if found is None or not who.allows("read", found.queue):
        raise missing("batch", f"no batch {batch_id}: all its jobs have left, or it never existed")
    return BatchView.of(found)


def _after(text: str) -> Batch:
    """A batch that stands for the last one of the page before."""
    return Batch(number(text, 2**63 - 1), "", 0, 0, 0, 0, _SOME_TIME)
