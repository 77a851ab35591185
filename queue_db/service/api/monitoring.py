"""What has happened: failures by kind and error class, the numbers of a queue over time, the action log."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, cast

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, Field

from queue_db.model import PresentState
from queue_db.monitoring.failures import SCANNED
from queue_db.operations import database as operations
from queue_db.operations import rights
from queue_db.service.api.paging import number, opened, sealed
from queue_db.service.api.shapes import After, Id, Limit, Moment, PathId, ShownObject, View
from queue_db.service.http.openapi import problems
from queue_db.service.http.paths import Name
from queue_db.service.http.requests import Db, Manager, Reader, of
from queue_db.service.http.times import Time, rfc3339
from queue_db.service.live.diagnosis import Watch, neighbours, seen_by, waits
from queue_db.store.schema import CLASS_LENGTH

router = APIRouter(tags=["monitoring"])

# How far back the history goes, if the request does not say it, seconds.
_HOUR = 3600

_ACTIONS = ("actions",)

_MostRows = Annotated[int, Query(ge=1, le=10_000, description="Most entries of the page.")]
_Width = Annotated[
    int,
    Query(
        ge=10,
        le=86_400,
        multiple_of=10,
        description="Seconds of an entry: a multiple of 10 for the last day, of 600 for the last 30 days.",
    ),
]


class QueueNumbers(View):
    """Numbers of a queue: the latest, which are counted every 10 s, or those of an entry of the history."""

    at: Time = Field(description="When the jobs were counted.")
    available: int = Field(description="Due.")
    scheduled: int
    blocked: int
    running: int
    dead: int
    held: int = Field(description="Claimed by Spark streams.")
    oldest: float | None = Field(description="Seconds since the longest waiting due job became due.")
    completed: int = Field(description="In `duration`, as the following ones.")
    failed: int
    died: int
    lost: int = Field(description="Leases lost.")
    missed: int = Field(description="Races lost at claims.")
    duration: float = Field(description="Seconds in which these happened; of the latest numbers the last minute or little more.")
    capped: tuple[str, ...] = Field(
        description="The states of which there may be more jobs: of the latest numbers each stops at 10,000. The history has all."
    )


class FailureGroupView(View):
    """Failed attempts of one queue, kind and error class."""

    queue: str | None
    kind: str | None
    error_class: str = Field(description="Class of the error; empty if there was a reason in its place.")
    count: int = Field(description="Failed attempts.")
    dead: int = Field(description="Jobs that died by one of them and are still dead.")
    first_at: Time
    last_at: Time
    message: str = Field(description="Of the last one.")
    trace: str | None = Field(description="Of the last one, the end of it.")
    job_id: Id = Field(description="Of the last one.")


class FailurePage(BaseModel):
    """Some groups, the largest first, and where to go on."""

    failures: list[FailureGroupView]
    after: str | None = Field(description="For the next page; null: there are no more.")


class ActionView(View):
    """What was changed by a person or a program."""

    id: Id
    at: Time
    who: str = Field(description="A user, or the name of a token.")
    action: str = Field(examples=["purge"])
    target: str = Field(examples=["queue mail"])
    number: int | None = Field(description="Of how many jobs or other things; null: it has no number.")
    detail: ShownObject | None


class ActionPage(BaseModel):
    """Some actions, the newest first, and where to go on."""

    actions: list[ActionView]
    after: str | None = Field(description="For the next page; null: there are no more.")


class FindingView(View):
    """Why something makes no progress."""

    sentence: str
    stuck: bool = Field(description="true: until somebody acts. false: it is slow, or set to wait.")
    queue: str | None = Field(description="null: of a worker or a schedule.")
    kind: str | None


class Findings(BaseModel):
    """What makes no progress."""

    findings: list[FindingView] = Field(description="What is stuck first.")
    age: float | None = Field(description="Seconds since the look; null: the first one is under way, ask again.")


class JobWaits(BaseModel):
    """Why a job has not begun."""

    state: PresentState
    first: Id | None = Field(description="The job of its group that runs or waits before it.")
    findings: list[FindingView] = Field(description="What keeps that one, or this job, waiting. Empty: a worker may claim it.")


class PrunedRows(BaseModel):
    """How many rows were deleted."""

    count: int


class MetricsPage(BaseModel):
    """The numbers of a queue over time, and where to go on."""

    metrics: list[QueueNumbers] = Field(description="By time; `at` is the beginning of an entry. Jobs by state are means.")
    after: str | None = Field(description="For the next page, with the same `since` and `width`; null: there are no more.")


@router.get("/failures")
def list_failures(
    db: Db,
    who: Reader,
    queue: Annotated[str | None, Query(min_length=1, max_length=100, description="Failures of this queue only.")] = None,
    kind: Annotated[str | None, Query(min_length=1, max_length=100, description="Failures of this kind only.")] = None,
    error_class: Annotated[
        str | None,
        Query(max_length=CLASS_LENGTH, description="Failures of this class only; empty: those with a reason in its place."),
    ] = None,
    after: After = None,
    limit: Limit = 50,
) -> FailurePage:
    """List the newest failed attempts by queue, kind and error class, the largest group first, each with its last error.

    Only groups of queues that the token may read; of all queues the newest 10,000 attempts are looked at. `POST /dead/redrive` and
    `/dead/purge` take the queue, kind and error class of a group.
    """
    if queue is not None:
        who.check("read", queue)
    listing = ("failures", queue, kind)
    position = opened(listing, after)
    begin = 0 if position is None else number(position, SCANNED)
    everything = who.allows_all("read")
    found = db.failures(queue, kind=kind, error_class=error_class, limit=begin + limit + 1 if everything else SCANNED)
    groups = [one for one in found if everything or (one.queue is not None and who.allows("read", one.queue))]
    more = len(groups) > begin + limit
    page = groups[begin : begin + limit]
    return FailurePage(
        failures=[FailureGroupView.of(one) for one in page], after=sealed(listing, str(begin + limit)) if more else None
    )


@router.get("/actions")
def list_actions(db: Db, who: Reader, request: Request, after: After = None, limit: Limit = 50) -> ActionPage:
    """List the action log, newest first: who changed what, how much and when. It needs a token that may read all queues."""
    who.check_all("read")
    position = opened(_ACTIONS, after)
    found = db.actions.list(limit=limit + 1, after=None if position is None else number(position, 2**63 - 1))
    masked = of(request).settings.masked
    last = sealed(_ACTIONS, str(found[limit - 1].id)) if len(found) > limit else None
    return ActionPage(actions=[ActionView.of(one, masked) for one in found[:limit]], after=last)


@router.get("/findings")
def list_findings(
    who: Reader,
    request: Request,
    queue: Annotated[str | None, Query(min_length=1, max_length=100, description="Of this queue only.")] = None,
) -> Findings:
    """List the queues, workers, schedules and groups that make no progress, with the reasons that the database shows.

    The service looks every five seconds, or less often where that takes long. Workers and schedules are for tokens of all queues.
    """
    if queue is not None:
        who.check("read", queue)
    seen = seen_by(who, _watch(request).look())
    found = [one for one in seen.found or () if queue is None or one.queue == queue]
    return Findings(findings=[FindingView.of(one) for one in found], age=None if seen.found is None else seen.age)


@router.get("/jobs/{job_id}/waits", responses=problems(404))
def explain_job(job_id: PathId, db: Db, who: Reader, request: Request) -> JobWaits:
    """Why a live job has not begun: the job of its group before it, and what keeps its queue from being worked on."""
    job = rights.job(db, who, "read", int(job_id))
    first, found = waits(db, job, neighbours(db, job), _watch(request).look(), of(request).clock.now())
    return JobWaits(
        state=cast("PresentState", job.state.value),
        first=None if first is None else str(first.id),
        findings=[FindingView.of(one) for one in found],
    )


def _watch(request: Request) -> Watch:
    found: Watch = request.app.state.watch
    return found


@router.get("/queues/{queue}/metrics")
def list_metrics(
    queue: Name,
    db: Db,
    who: Reader,
    request: Request,
    since: Annotated[Moment | None, Query(description="Default: an hour ago.")] = None,
    width: _Width = 10,
    after: Annotated[Moment | None, Query(description="`after` of the previous page.")] = None,
    limit: _MostRows = 1000,
) -> MetricsPage:
    """List the numbers of a queue over time. No entry stands for a time in which it had no jobs and nothing happened."""
    who.check("read", queue)
    begin = since or after or of(request).clock.now() - timedelta(seconds=_HOUR)
    # From the same beginning for each page: an entry without a count of its own has the one before it.
    found = [one for one in db.metrics.history(queue, since=begin, width=width) if after is None or one.at > after]
    page = found[:limit]
    return MetricsPage(metrics=[QueueNumbers.of(one) for one in page], after=rfc3339(page[-1].at) if len(found) > limit else None)


@router.post("/prune")
def prune_database(db: Db, who: Manager) -> PrunedRows:
    """Delete what has expired: results, unique keys, old failed attempts and actions. Workers do it once a minute."""
    return PrunedRows(count=operations.prune(db, who))
