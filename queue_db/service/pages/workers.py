"""The workers and what each has in hand, and the queues that Spark reads as streams, with the jobs that these hold."""

from __future__ import annotations

from fastapi import Request, Response
from starlette.exceptions import HTTPException

from queue_db.monitoring.insights import SILENT
from queue_db.operations import streams as of_streams
from queue_db.operations import workers as operations
from queue_db.service.http.requests import Db, Fields, Person
from queue_db.service.live.in_hand import in_hand, others, process, running
from queue_db.service.pages.render import back, page
from queue_db.service.pages.routing import page_router

router = page_router()


@router.get("/workers", name="workers")
def workers(request: Request, db: Db, who: Person) -> Response:
    """The workers that have been there within the last hour, the silent ones first."""
    who.check("read")
    known = sorted(db.workers(), key=lambda one: (one.silent < SILENT, one.name))
    jobs = in_hand(db, running(db, who, known))
    return page(
        request,
        "workers",
        workers=[one for one in known if any(who.allows("read", queue) for queue in one.queues)],
        jobs={worker.name: jobs.get(process(worker.name), []) for worker in known},
        others=others(jobs, known),
        silent=SILENT,
        may=who.allows_all("manage"),
    )


@router.post("/workers/rescue", name="rescue_worker")
def rescue(request: Request, db: Db, who: Person, fields: Fields) -> Response:
    """Release the jobs of a worker that is gone."""
    released = operations.rescue(db, who, fields.get("name", ""))
    return back(request, "workers", "rescued", {"number": released})


@router.get("/streams", name="streams")
def streams(request: Request, db: Db, who: Person) -> Response:
    """The streams by name."""
    who.check("read")
    found = [one for one in db.streams.list() if who.allows("read", one.queue)]
    return page(request, "streams", streams=found, may_all=who.allows_all("manage"))


@router.post("/streams/complete", name="complete_stream")
def complete(request: Request, db: Db, who: Person, fields: Fields) -> Response:
    """Complete the jobs that a stream holds: they were written."""
    completed = of_streams.complete(db, who, _chosen(db, who, fields))
    return back(request, "streams", "stream-completed", {"number": completed})


@router.post("/streams/release", name="release_stream")
def release(request: Request, db: Db, who: Person, fields: Fields) -> Response:
    """Return the jobs that a stream holds."""
    released = of_streams.release(db, who, _chosen(db, who, fields))
    return back(request, "streams", "stream-released", {"number": released})


@router.post("/streams/release-expired", name="release_expired_streams")
def release_expired(request: Request, db: Db, who: Person) -> Response:
    """Return the jobs of streams that nobody has read for longer than their retention."""
    return back(request, "streams", "streams-released", {"number": len(of_streams.release_expired(db, who))})


def _chosen(db: Db, who: Person, fields: Fields) -> str:
    """The name of the stream of a form; who sent it may manage its queue."""
    who.check("manage")
    name = fields.get("name", "")
    if all(one.name != name or not who.allows("manage", one.queue) for one in db.streams.list()):
        raise HTTPException(404, "There is no such stream")
    return name
