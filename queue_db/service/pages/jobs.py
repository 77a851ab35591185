"""Jobs of a queue by state, kind and group: the filters are the address."""

from __future__ import annotations

from typing import Annotated, cast

from fastapi import Query, Request, Response

from queue_db.model import Job, PresentState
from queue_db.monitoring.model import JobPage
from queue_db.queue import Queue
from queue_db.service.api.paging import paged
from queue_db.service.http.requests import Db, Person
from queue_db.service.pages import words
from queue_db.service.pages.board import board
from queue_db.service.pages.render import page
from queue_db.service.pages.routing import page_router

router = page_router()

#: Jobs on a page.
LIMIT = 50

STATES = ("available", "scheduled", "blocked", "running", "dead")


@router.get("/jobs", name="jobs")
def show(
    request: Request,
    db: Db,
    who: Person,
    queue: str | None = None,
    state: str = "available",
    kind: str = "",
    group: str = "",
    after: Annotated[str | None, Query(max_length=500)] = None,
) -> Response:
    """A page of jobs. Without a queue: the first one that there is."""
    who.check("read", queue)
    lines = board(request).lines(who)
    if queue is None and lines:
        queue = max(lines, key=lambda line: line.available).queue
    state = state if state in STATES else "available"
    found = _found(db.queue(queue), cast("PresentState", state), kind or None, group or None, after) if queue else None
    return page(
        request,
        "jobs",
        queue=queue,
        queues=[line.queue for line in lines],
        line=next((line for line in lines if line.queue == queue), None),
        state=state,
        states=STATES,
        kind=kind,
        group=group,
        after=after,
        found=found,
    )


def _found(queue: Queue, state: PresentState, kind: str | None, group: str | None, after: str | None) -> JobPage:
    def read(after: str | None, most: int) -> tuple[list[Job], str | None]:
        some = queue.jobs(state, kind=kind, group=group, after=after, limit=most)
        return some.jobs, some.after

    return JobPage(*paged(read, lambda job: job, after, LIMIT, lambda job: words.length(job.payload)))
