"""Groups, whose jobs wait for the one before them, and batches, each with a job that comes when all have left."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query, Request, Response

from queue_db.monitoring.insights import controlled
from queue_db.monitoring.waiting_groups import heads
from queue_db.operations import groups as operations
from queue_db.service.http.requests import Db, Fields, Person
from queue_db.service.pages.board import board
from queue_db.service.pages.render import back, page
from queue_db.service.pages.routing import page_router

router = page_router()

#: Batches on one page.
MOST = 50


@router.get("/groups", name="groups")
def show(request: Request, db: Db, who: Person, queue: Annotated[str | None, Query(max_length=250)] = None) -> Response:
    """Groups with blocked jobs. ``queue``: of this queue only."""
    who.check("read", queue or None)
    lines = board(request).lines(who)
    found, cut = heads(db, [queue] if queue else [line.queue for line in lines if line.blocked])
    queues = [line.queue for line in lines]
    return page(
        request,
        "groups",
        heads=found,
        cut=cut,
        queue=queue or "",
        queues=queues,
        fair=[one for one, of_queue in sorted(controlled(db).items()) if of_queue.fair and who.allows("read", one)],
        mine=[one for one in dict.fromkeys([*queues, *([queue] if queue else [])]) if who.allows("manage", one)],
    )


@router.post("/groups/repair", name="repair_groups")
def repair(request: Request, db: Db, who: Person, fields: Fields) -> Response:
    """Unblock the groups of a queue whose next job waits for no other."""
    queue = fields.get("queue", "")
    return back(request, "groups", "repaired", {"queue": queue, "number": operations.repair(db, who, queue)})


@router.get("/batches", name="batches")
def batches(request: Request, db: Db, who: Person, after: Annotated[int | None, Query(ge=0, lt=2**63)] = None) -> Response:
    """The batches with jobs that have not left, newest first. ``after``: the id of the last one of the previous page."""
    who.check("read")
    found = db.batches(limit=MOST + 1, after=after)
    return page(
        request,
        "batches",
        batches=[one for one in found[:MOST] if who.allows("read", one.queue)],
        older=found[MOST - 1].id if len(found) > MOST else None,
        after=after,
    )
