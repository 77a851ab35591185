"""Failures by kind and class of error, dead jobs, and what can be done with all dead jobs like one."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Query, Request, Response

from queue_db.db import QueueDB
from queue_db.errors import ArgumentError, JobNotFoundError
from queue_db.model import Job, State
from queue_db.monitoring.failures import SCANNED
from queue_db.operations import dead as operations
from queue_db.operations.dead import Purge, Redrive
from queue_db.service.api.paging import paged
from queue_db.service.http.pressure import Admission
from queue_db.service.http.requests import Db, Fields, Person
from queue_db.service.pages import words
from queue_db.service.pages.board import board
from queue_db.service.pages.render import back, page
from queue_db.service.pages.routing import page_router

router = page_router()

#: Jobs on a page.
LIMIT = 50

#: Groups on a page.
GROUPS = 40

#: A dry run counts no further.
MOST = 10_000

ACTIONS = ("redrive", "purge")


@router.get("/dead", name="dead")
def dead(
    request: Request,
    db: Db,
    who: Person,
    queue: str = "",
    kind: str = "",
    error_class: str | None = None,
    error: str = "",
    after: Annotated[int | None, Query(ge=0)] = None,
) -> Response:
    """Dead jobs, longest dead first. ``after``: the last job of the page before.

    ``error``: the class of the filter's field, empty for all; ``error_class`` of a link may be empty, for a reason in its place.
    """
    error_class = error or error_class
    who.check("read", queue or None)
    lines = board(request).lines(who)
    everywhere = who.allows_all("read")
    if not queue and lines and not everywhere:
        queue = max(lines, key=lambda line: line.dead).queue
    filters: dict[str, Any] = {"kind": kind or None, "error_class": error_class}

    def read(last: Job | None, most: int) -> tuple[list[Job], Job | None]:
        jobs = db.dead.list(queue or None, **filters, limit=most + 1, after=last) if queue or everywhere else []
        return jobs[:most], jobs[most - 1] if len(jobs) > most else None

    jobs, last = paged(read, lambda job: job, _last(db, after), LIMIT, lambda job: words.length(job.payload))
    return page(
        request,
        "dead",
        jobs=jobs,
        more=None if last is None else last.id,
        after=after,
        queue=queue,
        queues=[line.queue for line in lines],
        kind=kind,
        error_class=error_class,
        lines=sorted((line for line in lines if line.dead), key=lambda line: -line.dead)[:20],
        may=who.allows("manage", queue) if queue else who.allows_all("manage"),
    )


def _last(db: QueueDB, number: int | None) -> Job | None:
    """The job that a page begins after; if it is not dead any more, the page is the first one."""
    if number is None:
        return None
    try:
        job = db.get(number)
    except JobNotFoundError:
        return None
    return job if job.state is State.DEAD else None


@router.get("/failures", name="failures")
def failures(request: Request, db: Db, who: Person, queue: str = "", kind: str = "", error_class: str = "") -> Response:
    """The newest failures, grouped. ``error_class``: empty for all."""
    who.check("read", queue or None)
    lines = board(request).lines(who)
    everywhere = who.allows_all("read")
    if not queue and lines and not everywhere:
        queue = max(lines, key=lambda line: (line.failures, line.died, line.dead)).queue
    chosen = {"kind": kind or None, "error_class": error_class or None}
    found = db.failures(queue or None, **chosen, limit=GROUPS) if queue or everywhere else []
    return page(
        request,
        "failures",
        groups=[group for group in found if group.queue is None or who.allows("read", group.queue)],
        queue=queue,
        queues=[line.queue for line in lines],
        kind=kind,
        error_class=error_class,
        scanned=SCANNED,
        may=lambda name: who.allows("manage", name),
    )


@router.get("/dead/all", name="dead_all")
def ask(
    request: Request, db: Db, who: Person, action: str, queue: str = "", kind: str = "", error_class: str | None = None
) -> Response:
    """How many dead jobs an action would change; nothing is done yet."""
    like: dict[str, Any] = {
        "queue": queue or None,
        "kind": kind or None,
        "error_class": error_class,
        "everything": True,
        "limit": MOST + 1,
    }
    if _known(action) == "redrive":
        count = len(operations.redrive(db, who, Redrive(**like), dry_run=True))
    else:
        count = operations.purge(db, who, Purge(**like), dry_run=True)
    return page(
        request,
        "dead_all",
        here="dead",
        action=action,
        queue=queue,
        kind=kind,
        error_class=error_class,
        count=min(count, MOST),
        more=count > MOST,
    )


@router.post("/dead/all", name="change_dead")
def change(request: Request, db: Db, who: Person, fields: Fields) -> Response:
    """Redrive or purge all like this."""
    queue, kind, error_class = fields.get("queue") or None, fields.get("kind") or None, fields.get("error_class")
    like: dict[str, Any] = {"queue": queue, "kind": kind, "error_class": error_class, "everything": bool(fields.get("all"))}
    action = _known(fields.get("action", ""))
    if action == "redrive":
        which = Redrive(**like)
        which.check(who)
        with Admission(request) as admission:
            admission.check(admission.dead(db, queue, kind=kind, error_class=error_class))
            number = len(operations.redrive(db, who, which))
    else:
        number = operations.purge(db, who, Purge(**like))
    return back(request, "dead", f"{action}_all", {"queue": queue, "number": number})


def _known(action: str) -> str:
    if action not in ACTIONS:
        raise ArgumentError("choose one: redrive or purge")
    return action
