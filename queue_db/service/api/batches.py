"""Batches: list, progress. They are enqueued by ``POST /queues/{queue}/batches``."""

from __future__ import annotations

from datetime import UTC, datetime

from fastapi import APIRouter
from pydantic import BaseModel, Field

from queue_db.groups import Batch
from queue_db.service.api.paging import number, opened, sealed
from queue_db.service.api.shapes import After, Id, Limit, PathId, clean
from queue_db.service.http.openapi import problems
from queue_db.service.http.refusals import missing
from queue_db.service.http.requests import Db, Reader
from queue_db.service.http.times import Time

router = APIRouter(tags=["batches"])


_SOME_TIME = datetime(1970, 1, 1, tzinfo=UTC)

_LISTING = ("batches",)


class BatchView(BaseModel):
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


@router.get("/batches")
def list_batches(db: Db, who: Reader, after: After = None, limit: Limit = 50) -> BatchPage:
    """List the batches with jobs that have not left, newest first."""
    start = opened(_LISTING, after)
    batches = db.batches(limit=limit, after=None if start is None else _after(start))
    last = sealed(_LISTING, str(batches[-1].id)) if len(batches) == limit else None
    return BatchPage(batches=[_view(one) for one in batches if who.allows("read", one.queue)], after=last)


@router.get("/batches/{batch_id}", responses=problems(404))
def get_batch(batch_id: PathId, db: Db, who: Reader) -> BatchView:
    """Progress of a batch. 404: all its jobs have left, and its callback job was enqueued; or there was none."""
    found = db.batch(int(batch_id))
    if found is None or not who.allows("read", found.queue):
        raise missing("batch", f"no batch {batch_id}: all its jobs have left, or it never existed")
    return _view(found)


def _view(found: Batch) -> BatchView:
    return BatchView(
        id=str(found.id),
        queue=clean(found.queue),
        jobs=found.jobs,
        pending=found.pending,
        dead=found.dead,
        cancelled=found.cancelled,
        created_at=found.created_at,
    )


def _after(text: str) -> Batch:
    """A batch that stands for the last one of the page before."""
    return Batch(number(text, 2**63 - 1), "", 0, 0, 0, 0, _SOME_TIME)
