"""The workers, and what each has in hand."""

from __future__ import annotations

from fastapi import Request, Response

from queue_db.monitoring.insights import SILENT
from queue_db.operations import workers as operations
from queue_db.service.http.requests import Db, Fields, Person
from queue_db.service.live.in_hand import in_hand, others, process, running
from queue_db.service.pages.render import back, page
from queue_db.service.pages.routing import page_router

router = page_router()


@router.get("/workers", name="workers")
def show(request: Request, db: Db, who: Person) -> Response:
    """The workers that have been there within the last hour, the silent ones first."""
    who.check("read")
    workers = sorted(db.workers(), key=lambda one: (one.silent < SILENT, one.name))
    jobs = in_hand(db, running(db, who, workers))
    return page(
        request,
        "workers",
        workers=[one for one in workers if any(who.allows("read", queue) for queue in one.queues)],
        jobs={worker.name: jobs.get(process(worker.name), []) for worker in workers},
        others=others(jobs, workers),
        silent=SILENT,
        may=who.allows_all("manage"),
    )


@router.post("/workers/rescue", name="rescue_worker")
def rescue(request: Request, db: Db, who: Person, fields: Fields) -> Response:
    """Release the jobs of a worker that is gone."""
    released = operations.rescue(db, who, fields.get("name", ""))
    return back(request, "workers", "rescued", {"number": released})
