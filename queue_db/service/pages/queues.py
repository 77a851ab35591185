"""Queues: one line for each, and what is wrong; one with its numbers, controls, groups and history. Numbers of forms."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated, Any

from fastapi import Query, Request, Response

from queue_db.arguments import wrong
from queue_db.errors import ArgumentError
from queue_db.fairness.rules import EACH, GROUP, PREFIX
from queue_db.fairness.shares import shares
from queue_db.fairness.verbs import MOST_WEIGHT
from queue_db.monitoring.insights import SILENT
from queue_db.operations import queues as operations
from queue_db.operations.queues import Limits
from queue_db.service.http.paths import Name
from queue_db.service.http.requests import Db, Fields, Person
from queue_db.service.live.diagnosis import seen_by
from queue_db.service.live.in_hand import in_hand, process
from queue_db.service.pages import words
from queue_db.service.pages.board import board, failing
from queue_db.service.pages.charts import RANGES, charts
from queue_db.service.pages.numbers import Line, counted
from queue_db.service.pages.render import back, page
from queue_db.service.pages.routing import page_router
from queue_db.store.schema import KEY_LENGTH

router = page_router()

#: Queues on one page.
MOST = 25

#: What the lines can be sorted by, largest first except for the name.
SORTS: dict[str, Callable[[Line], Any]] = {
    "name": lambda line: line.queue,
    "oldest": lambda line: -(line.oldest or 0.0),
    "due": lambda line: -line.available,
    "failed": lambda line: -line.failures,
    "dead": lambda line: -line.dead,
}


def totals(lines: list[Line]) -> dict[str, str | float | None]:
    """Sum up; the oldest of all."""

    def rate(values: list[float | None]) -> float | None:
        known = [value for value in values if value is not None]
        return sum(known) if known else None

    return {
        "due": counted(lines, "available"),
        "running": counted(lines, "running", "held"),
        "scheduled": counted(lines, "scheduled", "blocked"),
        "dead": counted(lines, "dead"),
        "oldest": max((line.oldest for line in lines if line.oldest is not None), default=None),
        "came": rate([line.came for line in lines]),
        "done": rate([line.done for line in lines]),
        "failed": rate([line.failed for line in lines]),
    }


@router.get("/", name="overview")
def overview(
    request: Request,
    db: Db,
    who: Person,
    q: Annotated[str, Query(max_length=100)] = "",
    sort: str = "name",
    start: Annotated[int, Query(alias="from", ge=0)] = 0,
) -> Response:
    """Every queue at a glance. ``q``: a part of the names."""
    who.check("read")
    shared = board(request)
    seen = shared.lines(who)
    lines = sorted((line for line in seen if q.casefold() in line.queue.casefold()), key=SORTS["name"])
    if sort in SORTS:
        lines.sort(key=SORTS[sort])
    return page(
        request,
        "overview",
        lines=lines[start : start + MOST],
        number_of_lines=len(lines),
        number_of_queues=len(seen),
        totals=totals(seen),
        failing=failing(seen),
        diagnosis=seen_by(who, shared.watch.look()),
        checks_all=who.allows_all("read"),
        q=q,
        sort=sort,
        start=start,
        most=MOST,
        workers=len(db.workers()),
    )


@router.get("/queues/{name}", name="queue")
def queue(request: Request, db: Db, who: Person, name: Name, since: str = "hour") -> Response:
    """A queue. ``since``: how much of its history the charts show."""
    who.check("read", name)
    since = since if since in RANGES else "hour"
    shared = board(request)
    workers = sorted((one for one in db.workers() if name in one.queues), key=lambda one: (one.silent < SILENT, one.name))
    jobs = in_hand(db, [name])
    registered = {process(worker.name) for worker in workers}
    line = shared.numbers.line(name)
    return page(
        request,
        "queue",
        here="overview",
        line=line,
        shares=shares(db, name) if line.controls.fair else None,
        most_weight=MOST_WEIGHT,
        most_name=KEY_LENGTH,
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
        group_limits=words.group_limits,
    )


@router.post("/queues/{name}/pause", name="pause_queue")
def pause(request: Request, db: Db, who: Person, name: Name) -> Response:
    """Let no worker claim from it."""
    operations.pause(db, who, name)
    return back(request, "queue", "paused", name=name)


@router.post("/queues/{name}/resume", name="resume_queue")
def resume(request: Request, db: Db, who: Person, name: Name) -> Response:
    """Let workers claim from it again."""
    operations.resume(db, who, name)
    return back(request, "queue", "resumed", name=name)


@router.post("/queues/{name}/limit", name="limit_queue")
def limit(request: Request, db: Db, who: Person, name: Name, fields: Fields) -> Response:
    """Set all its limits; an empty field removes one."""
    concurrency, rate, per_group = (whole(fields, one) for one in ("concurrency", "rate", "per_group"))
    per = None if rate is None else number(fields, "per")
    operations.limit(db, who, name, Limits(concurrency=concurrency, rate=rate, per=per, per_group=per_group))
    return back(request, "queue", "limited", name=name)


@router.post("/queues/{name}/fair", name="fair_queue")
def fair(request: Request, db: Db, who: Person, name: Name, fields: Fields) -> Response:
    """Make it fair or not, and set the weight of a group."""
    enabled, group, weight = bool(fields.get("fair")), fields.get("group", ""), whole(fields, "weight")
    if bool(group) != (weight is not None):
        raise ArgumentError("a weight is that of a group: give both, or neither")
    operations.fair(db, who, name, enabled=enabled, weights={} if weight is None else {group: weight})
    return back(request, "queue", "fair" if enabled else "unfair", name=name)


@router.post("/queues/{name}/limit-groups", name="limit_groups")
def limit_groups(request: Request, db: Db, who: Person, name: Name, fields: Fields) -> Response:
    """Set all limits of each group, of one, or of a prefix; an empty field removes one."""
    scope, of = fields.get("scope", ""), fields.get("name", "")
    if scope not in {EACH, GROUP, PREFIX}:
        raise wrong("scope", scope, f": must be {EACH}, {GROUP} or {PREFIX}")
    if scope == EACH and of:
        raise ArgumentError(f"each group, or only {of!r}? A limit of each group has no name")
    concurrency, rate = whole(fields, "concurrency"), whole(fields, "rate")
    limits = Limits(concurrency=concurrency, rate=rate, per=None if rate is None else number(fields, "per"))
    group, prefix = of if scope == GROUP else None, of if scope == PREFIX else None
    operations.limit_groups(db, who, name, limits, group=group, prefix=prefix)
    return back(request, "queue", "groups-limited", name=name)


@router.post("/queues/{name}/purge", name="purge_queue")
def purge(request: Request, db: Db, who: Person, name: Name) -> Response:
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
