"""Batches of jobs, each with a job that comes when all have left."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query, Request
from fastapi.responses import HTMLResponse

from queue_db.service.http.requests import Db, Person
from queue_db.service.pages.render import page
from queue_db.service.pages.routing import page_router

router = page_router()

#: Batches on one page.
MOST = 50


@router.get("/batches", name="batches", response_class=HTMLResponse)
def show(request: Request, db: Db, who: Person, after: Annotated[int | None, Query(ge=0, lt=2**63)] = None) -> HTMLResponse:
    """The batches with jobs that have not left, newest first. ``after``: the id of the last one of the previous page."""
    who.check("read")
    found = db.batches(limit=MOST + 1, after=after)
    return page(
        request,
        "batches.html.jinja",
        who,
        here="batches",
        batches=[one for one in found[:MOST] if who.allows("read", one.queue)],
        older=found[MOST - 1].id if len(found) > MOST else None,
        after=after,
    )
