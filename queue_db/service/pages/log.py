"""The action log: who changed what, how much and when."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query, Request
from fastapi.responses import HTMLResponse

from queue_db.service.http.requests import Db, Person
from queue_db.service.pages.render import page
from queue_db.service.pages.rights import for_all
from queue_db.service.pages.routing import page_router

router = page_router()

#: Actions on one page.
MOST = 100


@router.get("/actions", name="actions", response_class=HTMLResponse)
def show(request: Request, db: Db, who: Person, after: Annotated[int | None, Query(ge=0, lt=2**63)] = None) -> HTMLResponse:
    """The actions, newest first. ``after``: the id of the last one of the previous page."""
    for_all(who, "read", required=True)
    found = db.actions.list(limit=MOST + 1, after=after)
    older = found[MOST - 1].id if len(found) > MOST else None
    return page(request, "actions.html.jinja", who, here="actions", actions=found[:MOST], older=older, after=after)
