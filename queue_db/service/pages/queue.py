"""One queue: its numbers, its controls, and its history."""

from __future__ import annotations

import math

from fastapi import Request
from fastapi.responses import HTMLResponse, RedirectResponse

from queue_db.arguments import wrong
from queue_db.monitoring.insights import SILENT
from queue_db.operations import queues as operations
from queue_db.operations.queues import Limits
from queue_db.service.http.paths import Name
from queue_db.service.http.requests import Db, Fields, Person
from queue_db.service.live.in_hand import in_hand, process
from queue_db.service.pages import words
from queue_db.service.pages.board import board
from queue_db.service.pages.charts import RANGES, charts
from queue_db.service.pages.render import back, page
from queue_db.service.pages.routing import page_router

router = page_router()


@router.get("/queues/{name}", name="queue", response_class=HTMLResponse)
def show(request: Request, db: Db, who: Person, name: Name, since: str = "hour") -> HTMLResponse:
    """A queue. ``since``: how much of its history the charts show."""
    who.check("read", name)
    since = since if since in RANGES else "hour"
    shared = board(request)
    workers = sorted((one for one in db.workers() if name in one.queues), key=lambda one: (one.silent < SILENT, one.name))
    jobs = in_hand(db, [name])
    registered = {process(worker.name) for worker in workers}
    return page(
        request,
        "queue.html.jinja",
        who,
        here="overview",
        line=shared.numbers.line(name),
        charts=charts(db, name, RANGES[since], shared.clock.now()),
        since=since,
        ranges=list(RANGES),
        may=who.allows("manage", name),
        workers=workers,
        jobs={worker.name: jobs.get(process(worker.name), []) for worker in workers},
        others={one: found for one, found in sorted(jobs.items()) if one not in registered},
        silent=SILENT,
        findings=[one for one in shared.watch.look().found or () if one.queue == name],
        limits=words.limits,
    )


@router.post("/queues/{name}/pause", name="pause_queue")
def pause(request: Request, db: Db, who: Person, name: Name) -> RedirectResponse:
    """Let no worker claim from it."""
    operations.pause(db, who, name)
    return back(request, "queue", "paused", name=name)


@router.post("/queues/{name}/resume", name="resume_queue")
def resume(request: Request, db: Db, who: Person, name: Name) -> RedirectResponse:
    """Let workers claim from it again."""
    operations.resume(db, who, name)
    return back(request, "queue", "resumed", name=name)


@router.post("/queues/{name}/limit", name="limit_queue")
def limit(request: Request, db: Db, who: Person, name: Name, fields: Fields) -> RedirectResponse:
    """Set all its limits; an empty field removes one."""
    concurrency, rate, per_group = (whole(fields, one) for one in ("concurrency", "rate", "per_group"))
    per = None if rate is None else number(fields, "per")
    operations.limit(db, who, name, Limits(concurrency=concurrency, rate=rate, per=per, per_group=per_group))
    return back(request, "queue", "limited", name=name)


@router.post("/queues/{name}/purge", name="purge_queue")
def purge(request: Request, db: Db, who: Person, name: Name) -> RedirectResponse:
    """Delete all its jobs that wait."""
    return back(request, "queue", "purged", {"number": operations.purge(db, who, name)}, name=name)


def whole(fields: Fields, name: str) -> int | None:
    """A whole number of a form; None where the field is empty."""
    found = number(fields, name)
    if found is not None and found != int(found):
        raise wrong(name, found, ": must be a whole number")
    return None if found is None else int(found)


def number(fields: Fields, name: str) -> float | None:
    """A number of a form; None where the field is empty."""
    text = fields.get(name, "").strip()
    if not text:
        return None
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not math.isfinite(found):
        raise wrong(name, text[:40], ": must be a number")
    return int(found) if found.is_integer() else found
