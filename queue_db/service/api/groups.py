"""Groups: the jobs of one, and repair."""

from __future__ import annotations

from fastapi import APIRouter, Request

from queue_db.service.paths import Name
from queue_db.service.requests import Db, Manager, Reader, of, record
from queue_db.service.shapes import After, JobPage, Limit, job_view

router = APIRouter(tags=["groups"])


@router.get("/queues/{queue}/groups/{group}/jobs")
def list_group_jobs(
    queue: Name, group: Name, db: Db, who: Reader, request: Request, after: After = None, limit: Limit = 50
) -> JobPage:
    """List the jobs of a group that wait for others of it, in their order."""
    who.check("read", queue)
    page = db.queue(queue).jobs("blocked", group=group, after=after, limit=limit)
    masked = of(request).settings.masked
    return JobPage(jobs=[job_view(job, masked) for job in page.jobs], after=page.after)


@router.post("/queues/{queue}/groups/repair", status_code=204)
def repair_groups(queue: Name, db: Db, who: Manager, request: Request) -> None:
    """Unblock the groups of a queue whose next job waits for no other, as after a row was deleted by hand."""
    who.check("manage", queue)
    db.queue(queue).repair_groups()
    record(request, who, "repair", f"groups of queue {queue}")
