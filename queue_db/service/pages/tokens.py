"""API tokens: list, make, revoke. A secret is shown once, in the answer to the form that made it."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Request
from fastapi.responses import HTMLResponse, RedirectResponse

from queue_db.db import QueueDB
from queue_db.errors import ArgumentError
from queue_db.operations import tokens as operations
from queue_db.operations.actor import Actor
from queue_db.operations.tokens import NewToken
from queue_db.service.http.requests import Db, Fields, Person
from queue_db.service.pages.render import back, page
from queue_db.service.pages.rights import for_all
from queue_db.service.pages.routing import page_router
from queue_db.tokens.tokens import SCOPES

router = page_router()

_DAY = 86_400.0


def manager(who: Person) -> Actor:
    """Who may see and change tokens: they could make themselves one for every queue."""
    for_all(who, "manage", required=True)
    return who


Owner = Annotated[Actor, Depends(manager)]


def _shown(request: Request, db: QueueDB, who: Actor, status: int = 200, **more: str | None) -> HTMLResponse:
    values = {"made": None, "secret": None, "wrong": None} | more
    return page(
        request,
        "tokens.html.jinja",
        who,
        here="tokens",
        status=status,
        tokens=sorted(db.tokens.list(), key=lambda one: (not one.active, one.name)),
        scopes=[scope for scope in SCOPES if who.allows(scope)],
        **values,
    )


@router.get("/tokens", name="tokens", response_class=HTMLResponse)
def show(request: Request, db: Db, who: Owner) -> HTMLResponse:
    """The tokens, those that are in force first."""
    return _shown(request, db, who)


@router.post("/tokens", name="make_token", response_class=HTMLResponse)
def make(request: Request, db: Db, who: Owner, fields: Fields) -> HTMLResponse:
    """Make a token, with none but the scopes of whoever makes it, and show its secret, this once."""
    name = fields.get("name", "").strip()
    wanted = [scope for scope in SCOPES if fields.get(f"scope-{scope}")]
    try:
        days = float(fields["days"]) if fields.get("days", "").strip() else None
        patterns = fields.get("queues", "").split() or ["*"]
        lasts = None if days is None else days * _DAY
        secret = operations.create(db, who, NewToken(name, tuple(wanted), tuple(patterns), lasts))
    except ArgumentError as error:
        return _shown(request, db, who, 422, wrong=error.wire)
    except ValueError:
        return _shown(request, db, who, 422, wrong="the number of days is not a number")
    return _shown(request, db, who, made=name, secret=secret)


@router.post("/tokens/revoke", name="revoke_token")
def revoke(request: Request, db: Db, who: Owner, fields: Fields) -> RedirectResponse:
    """Revoke a token."""
    operations.revoke(db, who, fields.get("name", ""))
    return back(request, "tokens", "revoked")
