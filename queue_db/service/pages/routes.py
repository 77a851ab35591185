"""Routes with their subscriptions and counters, and what can be done with them."""

from __future__ import annotations

from typing import cast

from fastapi import Request, Response
from starlette.exceptions import HTTPException

from queue_db.operations import routes as operations
from queue_db.operations.routes import RouteAction
from queue_db.routes.definition import ACTIONS
from queue_db.routes.patterns import FORMS, PatternForm
from queue_db.service.http.requests import Db, Fields, Person
from queue_db.service.pages.render import back, page
from queue_db.service.pages.routing import page_router

router = page_router()


@router.get("/routes", name="routes")
def show(request: Request, db: Db, who: Person) -> Response:
    """The routes by name, with the topics that they are subscribed to."""
    who.check("read")
    routes = [one for one in db.routes.list() if who.allows("read", one.name)]
    return page(
        request,
        "routes",
        routes_=routes,
        counters=sorted({one.target for one in routes if one.action == "count" and who.allows("manage", one.target)}),
        mine=[one.name for one in routes if who.allows("manage", one.name)],
        actions=ACTIONS,
        forms=FORMS if who.allows_all("manage") else ("exact",),
        may=who.allows("manage"),
    )


@router.post("/routes/set", name="set_route")
def set_route(request: Request, db: Db, who: Person, fields: Fields) -> Response:
    """Create it, or let it do something else from now on."""
    text = {name: fields.get(name, "").strip() or None for name in ("target", "kind", "where", "by")}
    does = RouteAction(
        fields.get("action", ""),
        text["target"] or "",
        text["kind"],
        bool(fields.get("group")),
        text["where"],
        text["by"],
        bool(fields.get("matched")),
    )
    operations.set(db, who, fields.get("name", "").strip(), does)
    return back(request, "routes", "route-set")


@router.post("/routes/assign", name="assign_route")
def assign_route(request: Request, db: Db, who: Person, fields: Fields) -> Response:
    """Point it at a definition that is stored."""
    operations.assign(db, who, _chosen(db, who, fields), fields.get("definition", "").strip())
    return back(request, "routes", "route-set")


@router.post("/routes/subscribe", name="subscribe_route")
def subscribe_route(request: Request, db: Db, who: Person, fields: Fields) -> Response:
    """Lead the messages of matching topics to it."""
    form = cast("PatternForm", fields.get("form", "glob"))
    operations.subscribe(db, who, _chosen(db, who, fields), fields.get("pattern", "").strip(), form)
    return back(request, "routes", "subscribed")


@router.post("/routes/unsubscribe", name="unsubscribe_route")
def unsubscribe_route(request: Request, db: Db, who: Person, fields: Fields) -> Response:
    """Take a subscription back."""
    form = cast("PatternForm", fields.get("form", "glob"))
    operations.unsubscribe(db, who, _chosen(db, who, fields), fields.get("pattern", ""), form)
    return back(request, "routes", "unsubscribed")


@router.post("/routes/pause", name="pause_route")
def pause_route(request: Request, db: Db, who: Person, fields: Fields) -> Response:
    """Let it do nothing."""
    operations.pause(db, who, _chosen(db, who, fields))
    return back(request, "routes", "route-paused")


@router.post("/routes/resume", name="resume_route")
def resume_route(request: Request, db: Db, who: Person, fields: Fields) -> Response:
    """Let it go on."""
    operations.resume(db, who, _chosen(db, who, fields))
    return back(request, "routes", "route-resumed")


@router.post("/routes/remove", name="remove_route")
def remove_route(request: Request, db: Db, who: Person, fields: Fields) -> Response:
    """Delete it with its subscriptions."""
    operations.remove(db, who, _chosen(db, who, fields))
    return back(request, "routes", "route-removed")


@router.post("/counters/reset", name="reset_counter")
def reset_counter(request: Request, db: Db, who: Person, fields: Fields) -> Response:
    """Let a counter, or one of its keys, begin at 0 again."""
    operations.reset(db, who, fields.get("counter", ""), fields.get("key") or None)
    return back(request, "routes", "counter-reset")


def _chosen(db: Db, who: Person, fields: Fields) -> str:
    """The name of the route of a form; who sent it may change it."""
    name = fields.get("name", "")
    who.check("manage", name)
    if all(one.name != name for one in db.routes.list()):
        raise HTTPException(404, "There is no such route")
    return name
