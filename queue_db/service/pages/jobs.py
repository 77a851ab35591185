"""Jobs: lists by state, kind and group, completed ones whose results are retained, and one with what became of each attempt."""

from __future__ import annotations

from typing import Annotated, cast

from fastapi import Query, Request, Response

from queue_db.db import QueueDB
from queue_db.errors import ArgumentError, JobNotFoundError
from queue_db.model import Job, PresentState
from queue_db.monitoring.model import Finished, JobPage
from queue_db.operations import database, dead, rights
from queue_db.operations import jobs as operations
from queue_db.operations.actor import Actor
from queue_db.operations.dead import Redrive
from queue_db.operations.jobs import NewTime, OneJob
from queue_db.queue import Queue
from queue_db.service.api.finished import last_of_page
from queue_db.service.api.paging import paged
from queue_db.service.http.pressure import Admission
from queue_db.service.http.requests import Db, Fields, Person
from queue_db.service.live.diagnosis import neighbours, waits
from queue_db.service.pages import words
from queue_db.service.pages.board import board
from queue_db.service.pages.queues import number as number_of
from queue_db.service.pages.queues import whole
from queue_db.service.pages.render import back, page
from queue_db.service.pages.routing import page_router

router = page_router()

#: Jobs on a page.
LIMIT = 50

STATES = ("available", "scheduled", "blocked", "running", "dead")


@router.get("/jobs", name="jobs")
def jobs(
    request: Request,
    db: Db,
    who: Person,
    queue: str | None = None,
    state: str = "available",
    kind: str = "",
    group: str = "",
    after: Annotated[str | None, Query(max_length=500)] = None,
) -> Response:
    """A page of jobs. Without a queue: the first one that there is."""
    who.check("read", queue)
    lines = board(request).lines(who)
    if queue is None and lines:
        queue = max(lines, key=lambda line: line.available).queue
    state = state if state in STATES else "available"
    found = _found(db.queue(queue), cast("PresentState", state), kind or None, group or None, after) if queue else None
    return page(
        request,
        "jobs",
        queue=queue,
        queues=[line.queue for line in lines],
        line=next((line for line in lines if line.queue == queue), None),
        state=state,
        states=STATES,
        kind=kind,
        group=group,
        after=after,
        found=found,
    )


def _found(queue: Queue, state: PresentState, kind: str | None, group: str | None, after: str | None) -> JobPage:
    def read(after: str | None, most: int) -> tuple[list[Job], str | None]:
        some = queue.jobs(state, kind=kind, group=group, after=after, limit=most)
        return some.jobs, some.after

    return JobPage(*paged(read, lambda job: job, after, LIMIT, lambda job: words.length(job.payload)))


@router.get("/finished", name="finished")
def finished(
    request: Request, db: Db, who: Person, queue: str = "", after: Annotated[int | None, Query(ge=0, lt=2**63)] = None
) -> Response:
    """Completed jobs by id. ``after``: the id of the last one of the previous page."""
    who.check("read", queue or None)
    queues = [line.queue for line in board(request).lines(who)]
    everywhere = who.allows_all("read")
    if not queue and queues and not everywhere:
        queue = queues[0]

    def read(last: Finished | None, most: int) -> tuple[list[Finished], Finished | None]:
        jobs = db.finished_jobs(queue or None, limit=most + 1, after=last) if queue or everywhere else []
        return jobs[:most], jobs[most - 1] if len(jobs) > most else None

    start = None if after is None else last_of_page(after)
    jobs, last = paged(read, lambda job: job, start, LIMIT, lambda job: words.length(job.payload, job.result))
    return page(
        request,
        "finished",
        jobs=jobs,
        more=None if last is None else last.id,
        after=after,
        queue=queue,
        queues=queues,
        may=who.allows_all("manage"),
    )


@router.post("/prune", name="prune")
def prune(request: Request, db: Db, who: Person) -> Response:
    """Delete what has expired."""
    return back(request, "finished", "pruned", {"number": database.prune(db, who)})


@router.get("/jobs/{number:int}", name="job")
def job(request: Request, db: Db, who: Person, number: int) -> Response:
    """A job, live, dead, or finished and kept."""
    who.check("read")
    try:
        job = rights.job(db, who, "read", number)
    except JobNotFoundError:
        return _gone(request, db, who, number)
    shared, others = board(request), neighbours(db, job)
    head, findings = waits(db, job, others, shared.watch.look(), shared.clock.now())
    return page(
        request,
        "job",
        here="jobs",
        job=job,
        errors=db.errors(number),
        batch=None if job.batch is None else db.batch(job.batch),
        steps=db.steps.list(number),
        neighbours=others,
        head=head,
        findings=findings,
        may=who.allows("manage", job.queue),
    )


def _gone(request: Request, db: QueueDB, who: Actor, number: int) -> Response:
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
        "finished_job",
        here="jobs",
        status=404 if found is None else 200,
        number=number,
        finished=found,
        errors=db.errors(number),
    )


@router.post("/jobs/{number:int}/reschedule", name="reschedule_job")
def reschedule(request: Request, db: Db, who: Person, number: int, fields: Fields) -> Response:
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
def cancel(request: Request, db: Db, who: Person, number: int, fields: Fields) -> Response:
    """Cancel a live job."""
    job = operations.cancel(db, who, OneJob(id=number, version=_version(fields)))
    if job is None:
        return back(request, "job", "lost", number=number)
    return back(request, "jobs", "cancelled", {"queue": job.queue, "number": job.id})


@router.post("/jobs/{number:int}/redrive", name="redrive_job")
def redrive(request: Request, db: Db, who: Person, number: int, fields: Fields) -> Response:
    """Return a dead job to its queue."""
    job = rights.job(db, who, "manage", number)
    if job.version != _version(fields):
        return back(request, "job", "lost", number=number)
    with Admission(request) as admission:
        admission.check({job.queue: 1})
        dead.redrive(db, who, Redrive(queue=job.queue, ids=(number,)))
    return back(request, "job", "redriven", number=number)


def _version(fields: Fields) -> int:
    """The version of the job that the person saw: another one is not changed."""
    text = fields.get("version", "")
    if not text.isascii() or not text.isdecimal() or len(text) > 19:
        raise ArgumentError("the form is without the version of the job: load the page again")
    return int(text)
