"""One job: what became of each attempt, what it waits for, and what can be done."""

from __future__ import annotations

from fastapi import Request
from fastapi.responses import HTMLResponse, RedirectResponse

from queue_db.db import QueueDB
from queue_db.errors import ArgumentError, JobNotFoundError
from queue_db.model import Job, State
from queue_db.monitoring.model import Finished
from queue_db.operations import dead, rights
from queue_db.operations import jobs as operations
from queue_db.operations.actor import Actor
from queue_db.operations.dead import Redrive
from queue_db.operations.jobs import NewTime, OneJob
from queue_db.service.http.pressure import Admission
from queue_db.service.http.requests import Db, Fields, Person
from queue_db.service.pages.board import board
from queue_db.service.pages.queue import number as number_of
from queue_db.service.pages.queue import whole
from queue_db.service.pages.render import back, page
from queue_db.service.pages.routing import page_router
from queue_db.service.pages.waits import waits

router = page_router()

#: Neighbours of a job in its group that are shown.
NEIGHBOURS = 12


@router.get("/jobs/{number:int}", name="job", response_class=HTMLResponse)
def show(request: Request, db: Db, who: Person, number: int) -> HTMLResponse:
    """A job, live, dead, or finished and kept."""
    who.check("read")
    try:
        job = rights.job(db, who, "read", number)
    except JobNotFoundError:
        return _gone(request, db, who, number)
    shared, neighbours = board(request), _neighbours(db, job)
    return page(
        request,
        "job.html.jinja",
        who,
        here="jobs",
        job=job,
        errors=db.errors(number),
        batch=None if job.batch is None else db.batch(job.batch),
        neighbours=neighbours,
        waits=waits(db, job, neighbours, shared.watch.look(), shared.clock.now()),
        may=who.allows("manage", job.queue),
    )


def _neighbours(db: QueueDB, job: Job) -> list[Job]:
    """The first jobs of its group, and what they do; it is the last of them if it comes later."""
    if job.group is None:
        return []
    queue = db.queue(job.queue)
    states = (State.RUNNING, State.AVAILABLE, State.SCHEDULED, State.BLOCKED)
    found = [one for state in states for one in queue.jobs(state, group=job.group, limit=NEIGHBOURS).jobs]
    first = sorted(found, key=lambda one: one.id)[:NEIGHBOURS]
    return first if job.state is State.DEAD or any(one.id == job.id for one in first) else [*first[: NEIGHBOURS - 1], job]


def _gone(request: Request, db: QueueDB, who: Actor, number: int) -> HTMLResponse:
    """A job that left; its result and its failed attempts may be kept."""
    found: Finished | None = None
    try:
        found = db.finished(number)
    except JobNotFoundError:
        if not who.allows_all("read"):  # no row says which queue it was in, and the error shows the state
            raise JobNotFoundError(number, "the finished jobs") from None
    if found is not None and not who.allows("read", found.queue):
        raise JobNotFoundError(number, "the finished jobs")
    return page(
        request,
        "finished_job.html.jinja",
        who,
        here="jobs",
        status=404 if found is None else 200,
        number=number,
        finished=found,
        errors=db.errors(number),
    )


@router.post("/jobs/{number:int}/reschedule", name="reschedule_job")
def reschedule(request: Request, db: Db, who: Person, number: int, fields: Fields) -> RedirectResponse:
    """Make a job that waits due now or in some seconds, or give it another priority."""
    now, priority = "now" in fields, whole(fields, "priority")
    delay = 0.0 if now else number_of(fields, "delay")
    if delay is None and priority is None:
        raise ArgumentError("give a new time or a priority, a whole number")
    new = NewTime(delay=delay, priority=priority)
    changed = operations.reschedule(db, who, OneJob(id=number, version=_version(fields)), new)
    done = "lost" if changed is None else "due" if now else "moved" if delay is None else "later"
    return back(request, "job", done, number=number)


@router.post("/jobs/{number:int}/cancel", name="cancel_job")
def cancel(request: Request, db: Db, who: Person, number: int, fields: Fields) -> RedirectResponse:
    """Cancel a live job."""
    job = operations.cancel(db, who, OneJob(id=number, version=_version(fields)))
    if job is None:
        return back(request, "job", "lost", number=number)
    return back(request, "jobs", "cancelled", {"queue": job.queue, "number": job.id})


@router.post("/jobs/{number:int}/redrive", name="redrive_job")
def redrive(request: Request, db: Db, who: Person, number: int, fields: Fields) -> RedirectResponse:
    """Return a dead job to its queue."""
    job = rights.job(db, who, "manage", number)
    if job.version != _version(fields):
        return back(request, "job", "lost", number=number)
    admission = Admission(request)
    admission.check({job.queue: 1})
    dead.redrive(db, who, Redrive(queue=job.queue, ids=(number,)))
    admission.count()
    return back(request, "job", "redriven", number=number)


def _version(fields: Fields) -> int:
    """The version of the job that the person saw: another one is not changed."""
    text = fields.get("version", "")
    if not text.isascii() or not text.isdecimal() or len(text) > 19:
        raise ArgumentError("the form is without the version of the job: load the page again")
    return int(text)
