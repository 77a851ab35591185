"""Dead jobs, longest dead first."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query, Request
from fastapi.responses import HTMLResponse

from queue_db.db import QueueDB
from queue_db.errors import JobNotFoundError
from queue_db.model import Job, State
from queue_db.operations.actor import Actor
from queue_db.service.api.paging import paged
from queue_db.service.http.requests import Db, Person
from queue_db.service.pages import words
from queue_db.service.pages.board import board
from queue_db.service.pages.render import page
from queue_db.service.pages.routing import page_router

router = page_router()

#: Jobs on a page.
LIMIT = 50

#: Queues that are read one by one.
MOST_QUEUES = 20


@router.get("/dead", name="dead", response_class=HTMLResponse)
def dead(
    request: Request,
    db: Db,
    who: Person,
    queue: str = "",
    kind: str = "",
    error_class: str | None = None,
    error: str = "",
    after: Annotated[int | None, Query(ge=0)] = None,
) -> HTMLResponse:
    """Dead jobs, longest dead first. ``after``: the last job of the page before.

    ``error``: the class of the filter's field, empty for all; ``error_class`` of a link may be empty, for a reason in its place.
    """
    error_class = error or error_class
    who.check("read", queue or None)
    lines = [line for line in board(request).numbers.lines() if who.allows("read", line.queue)]
    everywhere = who.allows_all("read")
    if not queue and lines and not everywhere:
        queue = max(lines, key=lambda line: line.dead).queue
    filters = {"kind": kind or None, "error_class": error_class}
    queues = [queue] if queue else [line.queue for line in lines] if everywhere else []

    def read(last: Job | None, most: int) -> tuple[list[Job], Job | None]:
        jobs = jobs_of(db, queues, last, most + 1, **filters) if queue or everywhere else []
        return jobs[:most], jobs[most - 1] if len(jobs) > most else None

    jobs, last = paged(read, lambda job: job, _last(db, after), LIMIT, lambda job: words.length(job.payload))
    return page(
        request,
        "dead.html.jinja",
        who,
        here="dead",
        jobs=jobs,
        more=None if last is None else last.id,
        after=after,
        queue=queue,
        queues=[line.queue for line in lines],
        kind=kind,
        error_class=error_class,
        lines=sorted((line for line in lines if line.dead), key=lambda line: -line.dead)[:20],
        may=who.allows("manage", queue) if queue else who.allows_all("manage"),
    )


def jobs_of(db: QueueDB, queues: list[str], after: Job | None, most: int, **filters: str | None) -> list[Job]:
    """Up to ``most`` dead jobs after ``after``, of these queues, or of all if these are many or none is known.

    Of each queue a range of the index; of all queues the database sorts the whole table.
    """
    some: list[str | None] = [*queues] if 0 < len(queues) <= MOST_QUEUES else [None]
    found = [job for queue in some for job in db.dead.list(queue, **filters, limit=most, after=after)]
    return sorted(found, key=lambda job: (job.available_at, job.id))[:most]


def _last(db: QueueDB, number: int | None) -> Job | None:
    """The job that a page begins after; if it is not dead any more, the page is the first one."""
    if number is None:
        return None
    try:
        job = db.get(number)
    except JobNotFoundError:
        return None
    return job if job.state is State.DEAD else None


def check(who: Actor, scope: str, queue: str) -> None:
    """Raise unless this is allowed for the queue; without a queue, for all."""
    if queue:
        who.check(scope, queue)
    else:
        who.check_all(scope)
