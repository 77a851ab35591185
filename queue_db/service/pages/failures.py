"""Failures grouped by kind and class of error: one of a group is shown, and all dead jobs like it can be redriven or purged."""

from __future__ import annotations

from typing import Any

from fastapi import Request
from fastapi.responses import HTMLResponse, RedirectResponse

from queue_db.errors import ArgumentError
from queue_db.monitoring.failures import SCANNED
from queue_db.operations import dead as operations
from queue_db.operations.dead import Purge, Redrive
from queue_db.service.http.pressure import Admission
from queue_db.service.http.requests import Db, Fields, Person
from queue_db.service.pages.board import board
from queue_db.service.pages.render import back, page
from queue_db.service.pages.routing import page_router

router = page_router()

#: Groups on a page.
GROUPS = 40

#: A dry run counts no further.
MOST = 10_000

ACTIONS = ("redrive", "purge")


@router.get("/failures", name="failures", response_class=HTMLResponse)
def failures(request: Request, db: Db, who: Person, queue: str = "", kind: str = "", error_class: str = "") -> HTMLResponse:
    """The newest failures, grouped. ``error_class``: empty for all."""
    who.check("read", queue or None)
    lines = [line for line in board(request).numbers.lines() if who.allows("read", line.queue)]
    everywhere = who.allows_all("read")
    if not queue and lines and not everywhere:
        queue = max(lines, key=lambda line: (line.failures, line.died, line.dead)).queue
    chosen = {"kind": kind or None, "error_class": error_class or None}
    found = db.failures(queue or None, **chosen, limit=GROUPS) if queue or everywhere else []
    return page(
        request,
        "failures.html.jinja",
        who,
        here="failures",
        groups=[group for group in found if group.queue is None or who.allows("read", group.queue)],
        queue=queue,
        queues=[line.queue for line in lines],
        kind=kind,
        error_class=error_class,
        scanned=SCANNED,
        may=lambda name: who.allows("manage", name),
    )


@router.get("/dead/all", name="dead_all", response_class=HTMLResponse)
def ask(
    request: Request, db: Db, who: Person, action: str, queue: str = "", kind: str = "", error_class: str | None = None
) -> HTMLResponse:
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
        "dead_all.html.jinja",
        who,
        here="dead",
        action=action,
        queue=queue,
        kind=kind,
        error_class=error_class,
        count=min(count, MOST),
        more=count > MOST,
    )


@router.post("/dead/all", name="change_dead")
def change(request: Request, db: Db, who: Person, fields: Fields) -> RedirectResponse:
    """Redrive or purge all like this."""
    queue, kind, error_class = fields.get("queue") or None, fields.get("kind") or None, fields.get("error_class")
    like: dict[str, Any] = {"queue": queue, "kind": kind, "error_class": error_class, "everything": bool(fields.get("all"))}
    action = _known(fields.get("action", ""))
    if action == "redrive":
        which = Redrive(**like)
        which.check(who)
        admission = Admission(request)
        admission.check(admission.dead(db, queue, kind=kind, error_class=error_class))
        number = len(operations.redrive(db, who, which))
        admission.count()
    else:
        number = operations.purge(db, who, Purge(**like))
    return back(request, "dead", f"{action}_all", {"queue": queue, "number": number})


def _known(action: str) -> str:
    if action not in ACTIONS:
        raise ArgumentError("choose one: redrive or purge")
    return action
