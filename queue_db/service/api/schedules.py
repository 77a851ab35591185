"""Schedules: jobs enqueued by cron lines or at intervals."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Request, Response
from pydantic import AfterValidator, BaseModel, Field

from queue_db.db import QueueDB
from queue_db.operations import rights
from queue_db.operations import schedules as operations
from queue_db.operations.actor import Actor
from queue_db.operations.schedules import Definition
from queue_db.schedules import CatchUp, Schedule
from queue_db.service.api import shapes
from queue_db.service.api.shapes import Id, KindName, Moment, QueueName, Seconds, Shown, ShownObject
from queue_db.service.http.openapi import problems
from queue_db.service.http.paths import Name, NewName, visible
from queue_db.service.http.pressure import Admission
from queue_db.service.http.refusals import RefusedError, missing
from queue_db.service.http.requests import Db, Manager, Reader, of
from queue_db.service.http.times import Time
from queue_db.store.schema import DEFAULT_MAX_ATTEMPTS

router = APIRouter(tags=["schedules"])


class NewSchedule(shapes.Request):
    """A schedule: either `cron` or `every`."""

    queue: Annotated[QueueName, AfterValidator(visible)]
    kind: KindName
    payload: Any = None
    cron: Annotated[str | None, Field(max_length=200, description="Minute, hour, day, month, weekday.", examples=["0 3 * * *"])] = (
        None
    )
    every: Annotated[Seconds | None, Field(ge=1, description="Seconds between two occurrences.")] = None
    zone: Annotated[str, Field(max_length=64, description="Time zone of `cron`.", examples=["Europe/Berlin"])] = "UTC"
    catch_up: Annotated[
        CatchUp,
        Field(description="For occurrences that passed while no worker ran: a job for the last, all."),
    ] = "one"
    first_at: Annotated[Moment | None, Field(description="The first occurrence.")] = None
    priority: Annotated[int, Field(ge=-32768, le=32767)] = 0
    max_attempts: Annotated[int, Field(ge=1, le=2**31 - 1)] = DEFAULT_MAX_ATTEMPTS
    headers: dict[str, Any] | None = None


class ScheduleView(shapes.View):
    """A schedule at the time of the call."""

    name: str
    queue: str
    kind: str
    payload: Shown
    rule: str = Field(description="The cron line, or `every` and seconds.")
    zone: str
    catch_up: str
    paused: bool
    next_at: Time
    last_at: Time | None
    priority: int
    max_attempts: int
    headers: ShownObject


class ScheduleList(BaseModel):
    """The schedules by name."""

    schedules: list[ScheduleView]


class ScheduleRun(BaseModel):
    """The job of an occurrence by hand."""

    id: Id


@router.get("/schedules")
def list_schedules(db: Db, who: Reader, request: Request) -> ScheduleList:
    """List the schedules by name."""
    masked = of(request).settings.masked
    return ScheduleList(schedules=[ScheduleView.of(one, masked) for one in db.schedules.list() if who.allows("read", one.queue)])


@router.get("/schedules/{name}", responses=problems(404))
def get_schedule(name: Name, db: Db, who: Reader, request: Request) -> ScheduleView:
    """A schedule."""
    return ScheduleView.of(_find(db, who, "read", name), of(request).settings.masked)


@router.put("/schedules/{name}", responses={201: {"model": ScheduleView, "description": "It is new."}, **problems(404)})
def set_schedule(name: NewName, body: NewSchedule, db: Db, who: Manager, request: Request, response: Response) -> ScheduleView:
    """Create or change a schedule. If the rule stays the same, so does the next occurrence.

    404: the name is taken by a schedule that the token may not change.
    """
    definition = Definition(**{field: getattr(body, field) for field in NewSchedule.model_fields})
    new = operations.set(db, who, name, definition)
    if new is None:
        raise _missing(name)  # as for GET and DELETE: the name is somebody else's
    if new:
        response.status_code = 201
    return ScheduleView.of(_find(db, who, "manage", name), of(request).settings.masked)


@router.delete("/schedules/{name}", status_code=204, responses=problems(404))
def remove_schedule(name: Name, db: Db, who: Manager) -> None:
    """Delete a schedule; its jobs stay."""
    _require(operations.remove(db, who, name), name)


@router.post("/schedules/{name}/pause", status_code=204, responses=problems(404))
def pause_schedule(name: Name, db: Db, who: Manager) -> None:
    """Enqueue nothing by a schedule until it is resumed."""
    _require(operations.pause(db, who, name), name)


@router.post("/schedules/{name}/resume", status_code=204, responses=problems(404))
def resume_schedule(name: Name, db: Db, who: Manager) -> None:
    """Enqueue by a schedule again; occurrences that passed meanwhile are handled by `catch_up`."""
    _require(operations.resume(db, who, name), name)


@router.post("/schedules/{name}/run", status_code=201, responses=problems(404))
def run_schedule(name: Name, db: Db, who: Manager, request: Request) -> ScheduleRun:
    """Enqueue the job of a schedule now, paused or not; the next occurrence stays when it is."""
    with Admission(request) as admission:
        admission.check({_find(db, who, "manage", name).queue: 1})
        job_id = operations.run(db, who, name)
        if job_id is None:
            raise _missing(name)
    return ScheduleRun(id=str(job_id))


def _find(db: QueueDB, who: Actor, scope: str, name: str) -> Schedule:
    found = rights.schedule(db, who, scope, name)
    if found is None:
        raise _missing(name)
    return found


def _require(there: bool, name: str) -> None:
    if not there:
        raise _missing(name)


def _missing(name: str) -> RefusedError:
    return missing("schedule", f"no schedule {name!r}")
