"""Dead jobs: list, redrive, purge."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from datetime import UTC, datetime
from typing import Annotated, Any, Self

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, Field, model_validator
from pydantic_core import PydanticCustomError

from queue_db.db import QueueDB
from queue_db.dead import MOST_COUNTED
from queue_db.errors import JobNotFoundError
from queue_db.model import Job, State, from_micros, to_micros
from queue_db.operations import dead as operations
from queue_db.operations.dead import Purge, Redrive
from queue_db.service.api import shapes
from queue_db.service.api.paging import json_bytes, not_of_this_list, opened, paged, sealed
from queue_db.service.api.shapes import After, Id, JobPage, KindName, Limit, QueueName, Seconds, job_view
from queue_db.service.http.openapi import problems
from queue_db.service.http.pressure import Admission
from queue_db.service.http.requests import Db, Manager, Reader, of
from queue_db.store.schema import CLASS_LENGTH

router = APIRouter(tags=["dead"])

_LATEST = datetime.max.replace(tzinfo=UTC)
_CLASS = (
    "Class of the error that they died by: `last_error` begins with it and `: `. Empty: those whose last failed attempt had "
    "a reason and no class."
)
_MORE = "true: a dry run found more than `count`."
_ErrorClass = Annotated[str, Field(max_length=CLASS_LENGTH, description=_CLASS)]


class DeadFilter(shapes.Request):
    """Which dead jobs: at least one field must say it, or `all`."""

    queue: QueueName | None = None
    kind: KindName | None = None
    error_class: _ErrorClass | None = None
    dry_run: Annotated[bool, Field(description="true: change nothing; up to 10,000 are counted.")] = False
    limit: Annotated[int | None, Field(ge=1, le=2**31 - 1, description="At most this many.")] = None
    all: Annotated[bool, Field(description="true: the dead jobs of all queues; needed where no other field says which.")] = False

    @model_validator(mode="after")
    def _says_which(self) -> Self:
        """An empty body, as of a client with a bug, must not change all queues."""
        names = [name for name in type(self).model_fields if name not in {"all", "dry_run", "limit"}]
        if not self.all and all(getattr(self, name) is None for name in names):
            what = "name the jobs with one of {fields}; all: true stands for those of all queues"
            raise PydanticCustomError("which", what, {"fields": ", ".join(names)})
        return self


class RedriveDeadJobs(DeadFilter):
    """Which dead jobs return to their queues."""

    ids: Annotated[list[Id] | None, Field(min_length=1, max_length=1000, description="These jobs.")] = None


class PurgeDeadJobs(DeadFilter):
    """Which dead jobs are deleted."""

    older_than: Annotated[Seconds | None, Field(description="Only jobs dead for at least as many seconds.")] = None
    keep: Annotated[int | None, Field(ge=0, le=2**31 - 1, description="Keep this many, the last to die.")] = None


class RedrivenJobs(BaseModel):
    """The jobs that returned, or would."""

    count: int
    ids: list[Id] = Field(description="The first 1,000 of them.")
    dry_run: bool
    more: bool = Field(description=_MORE)


class PurgedJobs(BaseModel):
    """How many were deleted, or would be."""

    count: int
    dry_run: bool
    more: bool = Field(description=_MORE)


@router.get("/dead")
def list_dead_jobs(
    db: Db,
    who: Reader,
    request: Request,
    queue: Annotated[str | None, Query(max_length=100, description="Jobs of this queue only.")] = None,
    kind: Annotated[str | None, Query(max_length=100, description="Jobs of this kind only.")] = None,
    error_class: Annotated[str | None, Query(max_length=CLASS_LENGTH, description=_CLASS)] = None,
    newest: Annotated[bool, Query(description="true: those that died last come first.")] = False,
    after: After = None,
    limit: Limit = 50,
) -> JobPage:
    """List dead jobs, longest dead first; `available_at` is when they died. Without a queue those that the token may read."""
    if queue is not None:
        who.check("read", queue)
    listing = ("dead", queue, kind, error_class, *(["newest"] if newest else []))
    masked = of(request).settings.masked

    def read(after: Job | None, most: int) -> tuple[list[Job], Job | None]:
        jobs = db.dead.list(queue, kind=kind, error_class=error_class, limit=most, after=after, newest=newest)
        return jobs, jobs[-1] if len(jobs) == most else None

    position = opened(listing, after)
    start = None if position is None else _after(position)
    views, last = paged(read, lambda job: job_view(job, masked), start, limit, json_bytes)
    shown = [one for one in views if who.allows("read", one.queue)]
    return JobPage(jobs=shown, after=None if last is None else sealed(listing, f"{to_micros(last.available_at)}.{last.id}"))


@router.post("/dead/redrive", responses=problems(404, 409))
def redrive_dead_jobs(body: RedriveDeadJobs, db: Db, who: Manager, request: Request) -> RedrivenJobs:
    """Return dead jobs to their queues under their old ids, due now, with no attempts counted.

    A job whose unique key a live job has stays dead. With `dry_run` nothing changes.
    """
    which = Redrive(**_filter(body), ids=None if body.ids is None else tuple(int(one) for one in body.ids))
    which.check(who, which.ids)
    with Admission(request) as admission:
        if not body.dry_run:
            admission.check(_by_limited_queue(db, body, admission))
        back = operations.redrive(db, who, which, dry_run=body.dry_run)
    count, more = _counted(body, len(back))
    return RedrivenJobs(count=count, ids=[str(one) for one in back[:1000]], dry_run=body.dry_run, more=more)


@router.post("/dead/purge")
def purge_dead_jobs(body: PurgeDeadJobs, db: Db, who: Manager) -> PurgedJobs:
    """Delete dead jobs. With `dry_run` nothing changes."""
    which = Purge(**_filter(body), older_than=body.older_than, keep=body.keep)
    count, more = _counted(body, operations.purge(db, who, which, dry_run=body.dry_run))
    return PurgedJobs(count=count, dry_run=body.dry_run, more=more)


def _counted(body: DeadFilter, found: int) -> tuple[int, bool]:
    """How many jobs the response says, and whether there are more."""
    more = body.dry_run and found > MOST_COUNTED
    return MOST_COUNTED if more else found, more


def _filter(body: DeadFilter) -> dict[str, Any]:
    # A dry run counts one more than it says.
    most = min(body.limit or MOST_COUNTED + 1, MOST_COUNTED + 1) if body.dry_run else body.limit
    return {**_like(body), "everything": body.all, "limit": most}


def _like(body: DeadFilter) -> dict[str, Any]:
    return {"queue": body.queue, "kind": body.kind, "error_class": body.error_class}


def _by_limited_queue(db: QueueDB, body: RedriveDeadJobs, admission: Admission) -> dict[str, int]:
    """How many jobs would return to each queue that has a limit, at most."""
    if body.ids is None:
        return admission.dead(db, limit=body.limit, **_like(body))
    found: Counter[str] = Counter()
    limited = admission.pressure.limited()
    for job_id in set(body.ids) if limited else ():
        with suppress(JobNotFoundError):  # then none of them returns
            found[db.get(int(job_id)).queue] += 1
    return {queue: number for queue, number in found.items() if queue in limited}


def _after(text: str) -> Job:
    """A job that stands for the last one of the page before; the text must be of a page."""
    died, _, job_id = text.partition(".")
    if not (text.isascii() and died.lstrip("-").isdecimal() and job_id.isdecimal() and len(text) <= 40):
        raise not_of_this_list()
    return Job(
        id=min(int(job_id), 2**63 - 1),
        queue="",
        kind="",
        payload=None,
        headers={},
        priority=0,
        state=State.DEAD,
        available_at=from_micros(int(died)),
        version=0,
        attempts=0,
        max_attempts=0,
        unique_key=None,
        worker=None,
        created_at=_LATEST,
        last_error=None,
    )
