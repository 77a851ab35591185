"""Queues that Spark reads as streams, and the jobs that these hold."""

from __future__ import annotations

from fastapi import Request, Response
from starlette.exceptions import HTTPException

from queue_db.operations import streams as operations
from queue_db.service.http.requests import Db, Fields, Person
from queue_db.service.pages.render import back, page
from queue_db.service.pages.routing import page_router

router = page_router()


@router.get("/streams", name="streams")
def show(request: Request, db: Db, who: Person) -> Response:
    """The streams by name."""
    who.check("read")
    streams = [one for one in db.streams.list() if who.allows("read", one.queue)]
    return page(request, "streams", streams=streams, may_all=who.allows_all("manage"))


@router.post("/streams/complete", name="complete_stream")
def complete(request: Request, db: Db, who: Person, fields: Fields) -> Response:
    """Complete the jobs that a stream holds: they were written."""
    completed = operations.complete(db, who, _chosen(db, who, fields))
    return back(request, "streams", "stream-completed", {"number": completed})


@router.post("/streams/release", name="release_stream")
def release(request: Request, db: Db, who: Person, fields: Fields) -> Response:
    """Return the jobs that a stream holds."""
    released = operations.release(db, who, _chosen(db, who, fields))
    return back(request, "streams", "stream-released", {"number": released})


@router.post("/streams/release-expired", name="release_expired_streams")
def release_expired(request: Request, db: Db, who: Person) -> Response:
    """Return the jobs of streams that nobody has read for longer than their retention."""
    return back(request, "streams", "streams-released", {"number": len(operations.release_expired(db, who))})


def _chosen(db: Db, who: Person, fields: Fields) -> str:
    """The name of the stream of a form; who sent it may manage its queue."""
    who.check("manage")
    name = fields.get("name", "")
    if all(one.name != name or not who.allows("manage", one.queue) for one in db.streams.list()):
        raise HTTPException(404, "There is no such stream")
    return name
