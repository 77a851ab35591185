"""Queues that Spark reads as streams, and the jobs that these hold."""

from __future__ import annotations

from fastapi import Request
from fastapi.responses import HTMLResponse, RedirectResponse
from starlette.exceptions import HTTPException

from queue_db.service.http.requests import Db, Fields, Person, record
from queue_db.service.pages.render import back, page
from queue_db.service.pages.routing import page_router

router = page_router()


@router.get("/streams", name="streams", response_class=HTMLResponse)
def show(request: Request, db: Db, who: Person) -> HTMLResponse:
    """The streams by name."""
    who.check("read")
    streams = [one for one in db.streams.list() if who.allows("read", one.queue)]
    return page(request, "streams.html.jinja", who, here="streams", streams=streams)


@router.post("/streams/release", name="release_stream")
def release(request: Request, db: Db, who: Person, fields: Fields) -> RedirectResponse:
    """Return the jobs that a stream holds."""
    who.check("manage")
    name = fields.get("name", "")
    if all(one.name != name or not who.allows("manage", one.queue) for one in db.streams.list()):
        raise HTTPException(404, "There is no such stream")
    released = db.streams.release(name)
    record(request, who, "release", f"stream {name}", released)
    return back(request, "streams", "stream-released", {"number": released})
