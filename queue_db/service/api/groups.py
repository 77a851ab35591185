"""Groups: the jobs of one, and repair."""

from __future__ import annotations

from fastapi import APIRouter, Request

from queue_db.operations import groups as operations
from queue_db.service.api.jobs import page_of_jobs
from queue_db.service.api.shapes import After, JobPage, Limit
from queue_db.service.http.paths import Name
from queue_db.service.http.requests import Db, Manager, Reader, of

router = APIRouter(tags=["groups"])


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
