"""Groups whose jobs wait for the one before them."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse

from queue_db.monitoring.waiting_groups import heads
from queue_db.operations import groups as operations
from queue_db.service.http.requests import Db, Fields, Person
from queue_db.service.pages.board import board
from queue_db.service.pages.render import back, page
from queue_db.service.pages.routing import page_router

router = page_router()


@router.get("/groups", name="groups", response_class=HTMLResponse)
def show(request: Request, db: Db, who: Person, queue: Annotated[str | None, Query(max_length=250)] = None) -> HTMLResponse:
    """Groups with blocked jobs. ``queue``: of this queue only."""
    who.check("read", queue or None)
    lines = [line for line in board(request).numbers.lines() if who.allows("read", line.queue)]
    found, cut = heads(db, [queue] if queue else [line.queue for line in lines if line.blocked])
    queues = [line.queue for line in lines]
    return page(
        request,
        "groups.html.jinja",
        who,
        here="groups",
        heads=found,
        cut=cut,
        queue=queue or "",
        queues=queues,
        mine=[one for one in dict.fromkeys([*queues, *([queue] if queue else [])]) if who.allows("manage", one)],
    )


@router.post("/groups/repair", name="repair_groups")
def repair(request: Request, db: Db, who: Person, fields: Fields) -> RedirectResponse:
    """Unblock the groups of a queue whose next job waits for no other."""
    queue = fields.get("queue", "")
    return back(request, "groups", "repaired", {"queue": queue, "number": operations.repair(db, who, queue)})
