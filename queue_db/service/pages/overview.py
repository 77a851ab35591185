"""The overview: one line for each queue, and what is wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import Query, Request, Response

from queue_db.service.http.requests import Db, Person
from queue_db.service.pages.board import board, failing, seen_by
from queue_db.service.pages.numbers import Line, counted
from queue_db.service.pages.render import page
from queue_db.service.pages.routing import page_router

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
