"""Schedules: when they come next, and "run now"."""

from __future__ import annotations

from datetime import datetime

from fastapi import Request
from fastapi.responses import HTMLResponse, RedirectResponse
from starlette.exceptions import HTTPException

from queue_db.errors import QueueDBError
from queue_db.operations.actor import Actor
from queue_db.schedules import Schedule
from queue_db.service.http.pressure import Admission
from queue_db.service.http.requests import Db, Fields, Person, record
from queue_db.service.pages.render import back, page
from queue_db.service.pages.routing import page_router

router = page_router()

#: Occurrences that are shown of each.
UPCOMING = 3


def upcoming(schedule: Schedule) -> list[datetime]:
    """Its next occurrences; only the next one if the rule cannot be read here."""
    if schedule.paused:
        return []
    try:
        return schedule.upcoming(UPCOMING)
    except QueueDBError:
        return [schedule.next_at]


@router.get("/schedules", name="schedules", response_class=HTMLResponse)
def show(request: Request, db: Db, who: Person) -> HTMLResponse:
    """The schedules, the next one first."""
    who.check("read")
    seen = [one for one in db.schedules.list() if who.allows("read", one.queue)]
    seen.sort(key=lambda one: (one.paused, one.next_at, one.name))
    return page(request, "schedules.html.jinja", who, here="schedules", schedules=[(one, upcoming(one)) for one in seen])


def _chosen(db: Db, who: Actor, fields: Fields) -> Schedule:
    """The schedule of a form; who sent it may change it."""
    who.check("manage")
    name = fields.get("name", "")
    found = next((one for one in db.schedules.list() if one.name == name and who.allows("manage", one.queue)), None)
    if found is None:
        raise HTTPException(404, "There is no such schedule")
    return found


@router.post("/schedules/run", name="run_schedule")
def run(request: Request, db: Db, who: Person, fields: Fields) -> RedirectResponse:
    """Enqueue its job now."""
    schedule = _chosen(db, who, fields)
    admission = Admission(request)
    admission.check({schedule.queue: 1})
    job = db.schedules.run_now(schedule.name)
    admission.count()
    record(request, who, "run now", f"schedule {schedule.name}", 1, {"job": str(job)})
    return back(request, "schedules", "ran", {"number": job})


@router.post("/schedules/pause", name="pause_schedule")
def pause(request: Request, db: Db, who: Person, fields: Fields) -> RedirectResponse:
    """Enqueue nothing by it."""
    name = _chosen(db, who, fields).name
    db.schedules.pause(name)
    record(request, who, "pause", f"schedule {name}")
    return back(request, "schedules", "schedule-paused")


@router.post("/schedules/resume", name="resume_schedule")
def resume(request: Request, db: Db, who: Person, fields: Fields) -> RedirectResponse:
    """Enqueue by it again."""
    name = _chosen(db, who, fields).name
    db.schedules.resume(name)
    record(request, who, "resume", f"schedule {name}")
    return back(request, "schedules", "schedule-resumed")
