"""Schedules: when they come next, and what can be done with them."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from fastapi import Request, Response
from starlette.exceptions import HTTPException

from queue_db.arguments import wrong
from queue_db.errors import QueueDBError
from queue_db.model import UNCHANGED, Unchanged
from queue_db.operations import rights
from queue_db.operations import schedules as operations
from queue_db.operations.schedules import Definition
from queue_db.schedules import CatchUp, Schedule
from queue_db.schedules.registry import CATCH_UP
from queue_db.service.http.pressure import Admission
from queue_db.service.http.requests import Db, Fields, Person
from queue_db.service.pages.queues import number
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


@router.get("/schedules", name="schedules")
def show(request: Request, db: Db, who: Person) -> Response:
    """The schedules, the next one first."""
    who.check("read")
    seen = [one for one in db.schedules.list() if who.allows("read", one.queue)]
    seen.sort(key=lambda one: (one.paused, one.next_at, one.name))
    return page(
        request,
        "schedules",
        schedules=[(one, upcoming(one)) for one in seen],
        may=who.allows("manage"),
    )


@router.post("/schedules/set", name="set_schedule")
def set_schedule(request: Request, db: Db, who: Person, fields: Fields) -> Response:
    """Create it, or change it."""
    definition = Definition(
        queue=fields.get("queue", "").strip(),
        kind=fields.get("kind", "").strip(),
        payload=_payload(fields),
        cron=fields.get("cron", "").strip() or None,
        every=number(fields, "every"),
        zone=fields.get("zone", "").strip() or UNCHANGED,
        catch_up=_catch_up(fields),
        # The form does not have them.
        priority=UNCHANGED,
        max_attempts=UNCHANGED,
        headers=UNCHANGED,
    )
    if operations.set(db, who, fields.get("name", "").strip(), definition) is None:
        raise _missing()
    return back(request, "schedules", "schedule-set")


@router.post("/schedules/run", name="run_schedule")
def run(request: Request, db: Db, who: Person, fields: Fields) -> Response:
    """Enqueue its job now."""
    schedule = rights.schedule(db, who, "manage", fields.get("name", ""))
    if schedule is None:
        raise _missing()
    with Admission(request) as admission:
        admission.check({schedule.queue: 1})
        job = operations.run(db, who, schedule.name)
        if job is None:
            raise _missing()
    return back(request, "schedules", "ran", {"number": job})


@router.post("/schedules/pause", name="pause_schedule")
def pause(request: Request, db: Db, who: Person, fields: Fields) -> Response:
    """Enqueue nothing by it."""
    return _done(request, operations.pause(db, who, fields.get("name", "")), "paused")


@router.post("/schedules/resume", name="resume_schedule")
def resume(request: Request, db: Db, who: Person, fields: Fields) -> Response:
    """Enqueue by it again."""
    return _done(request, operations.resume(db, who, fields.get("name", "")), "resumed")


@router.post("/schedules/remove", name="remove_schedule")
def remove(request: Request, db: Db, who: Person, fields: Fields) -> Response:
    """Delete it; its jobs stay."""
    return _done(request, operations.remove(db, who, fields.get("name", "")), "removed")


def _done(request: Request, there: bool, what: str) -> Response:
    if not there:
        raise _missing()
    return back(request, "schedules", f"schedule-{what}")


def _missing() -> HTTPException:
    return HTTPException(404, "There is no such schedule")


def _payload(fields: Fields) -> Any:
    text = fields.get("payload", "").strip()
    try:
        return json.loads(text) if text else UNCHANGED
    except (ValueError, RecursionError):
        raise wrong("payload", text[:40], ": must be JSON") from None


def _catch_up(fields: Fields) -> CatchUp | Unchanged:
    given = fields.get("catch_up", "")
    if not given:
        return UNCHANGED
    found = next((one for one in CATCH_UP if one == given), None)
    if found is None:
        raise wrong("catch_up", given[:40], f": must be one of {', '.join(CATCH_UP)}")
    return found
