"""Completed jobs whose results are retained."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query, Request, Response

from queue_db.monitoring.model import Finished
from queue_db.operations import database as operations
from queue_db.service.api.finished import last_of_page
from queue_db.service.api.paging import paged
from queue_db.service.http.requests import Db, Person
from queue_db.service.pages import words
from queue_db.service.pages.board import board
from queue_db.service.pages.render import back, page
from queue_db.service.pages.routing import page_router

router = page_router()

#: Jobs on a page.
LIMIT = 50


@router.get("/finished", name="finished")
def show(
    request: Request, db: Db, who: Person, queue: str = "", after: Annotated[int | None, Query(ge=0, lt=2**63)] = None
) -> Response:
    """Completed jobs by id. ``after``: the id of the last one of the previous page."""
    who.check("read", queue or None)
    queues = [line.queue for line in board(request).lines(who)]
    everywhere = who.allows_all("read")
    if not queue and queues and not everywhere:
        queue = queues[0]

    def read(last: Finished | None, most: int) -> tuple[list[Finished], Finished | None]:
        jobs = db.finished_jobs(queue or None, limit=most + 1, after=last) if queue or everywhere else []
        return jobs[:most], jobs[most - 1] if len(jobs) > most else None

    start = None if after is None else last_of_page(after)
    jobs, last = paged(read, lambda job: job, start, LIMIT, lambda job: words.length(job.payload, job.result))
    return page(
        request,
        "finished",
        jobs=jobs,
        more=None if last is None else last.id,
        after=after,
        queue=queue,
        queues=queues,
        may=who.allows_all("manage"),
    )


@router.post("/prune", name="prune")
def prune(request: Request, db: Db, who: Person) -> Response:
    """Delete what has expired."""
    return back(request, "finished", "pruned", {"number": operations.prune(db, who)})
