"""Feeds with their cursors, and the routes that lead to them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import Annotated

from fastapi import Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse
from starlette.exceptions import HTTPException

from queue_db.feeds import FeedInfo
from queue_db.service.http.requests import Db, Fields, Person, record
from queue_db.service.pages.render import back, page
from queue_db.service.pages.routing import page_router
from queue_db.store.schema import FEED_LENGTH

router = page_router()

#: Feeds on one page, and cursors of these.
MOST, MOST_CURSORS = 50, 100


@router.get("/feeds", name="feeds", response_class=HTMLResponse)
def show(
    request: Request, db: Db, who: Person, after: Annotated[str | None, Query(min_length=1, max_length=FEED_LENGTH)] = None
) -> HTMLResponse:
    """The feeds by name, with their cursors. ``after``: the name of the last feed of the previous page."""
    who.check("read")
    readable = list(islice(_readable(db, who, after), MOST + 1))
    feeds = readable[:MOST]
    cursors = sorted(db.feeds.cursors(feeds=[one.name for one in feeds]), key=lambda one: -one.behind)
    return page(
        request,
        "feeds.html.jinja",
        who,
        here="feeds",
        feeds=feeds,
        numbers=Counter(one.feed for one in cursors),
        cursors=cursors[:MOST_CURSORS],
        number_of_cursors=len(cursors),
        after=after,
        next=feeds[-1].name if len(readable) > MOST else None,
    )


def _readable(db: Db, who: Person, after: str | None) -> Iterator[FeedInfo]:
    """The feeds that the token may read, by name: those between them are not shown, counted or named in a link."""
    while found := db.feeds.list(after=after, limit=MOST + 1):
        yield from (one for one in found if who.allows("read", one.name))
        after = found[-1].name


@router.post("/feeds/cursors/remove", name="remove_cursor")
def remove_cursor(request: Request, db: Db, who: Person, fields: Fields) -> RedirectResponse:
    """Delete a cursor, so that the feed keeps no messages for it."""
    feed, name = fields.get("feed", ""), fields.get("name", "")
    who.check("manage", feed)
    if not db.feeds.list([feed]):
        raise HTTPException(404, "There is no such feed")
    if db.feed(feed).remove_cursor(name):
        record(request, who, "remove", f"cursor {name} of feed {feed}")
    return back(request, "feeds", "cursor-removed")


@router.get("/routes", name="routes", response_class=HTMLResponse)
def show_routes(request: Request, db: Db, who: Person) -> HTMLResponse:
    """The routes by name, with the topics that they are subscribed to."""
    who.check("read")
    routes = [one for one in db.routes.list() if who.allows("read", one.name)]
    return page(request, "routes.html.jinja", who, here="routes", routes_=routes)


def _chosen(db: Db, who: Person, fields: Fields) -> str:
    """The name of the route of a form; who sent it may change it."""
    name = fields.get("name", "")
    who.check("manage", name)
    if all(one.name != name for one in db.routes.list()):
        raise HTTPException(404, "There is no such route")
    return name


@router.post("/routes/pause", name="pause_route")
def pause_route(request: Request, db: Db, who: Person, fields: Fields) -> RedirectResponse:
    """Let it do nothing."""
    name = _chosen(db, who, fields)
    db.routes.pause(name)
    record(request, who, "pause", f"route {name}")
    return back(request, "routes", "route-paused")


@router.post("/routes/resume", name="resume_route")
def resume_route(request: Request, db: Db, who: Person, fields: Fields) -> RedirectResponse:
    """Let it go on."""
    name = _chosen(db, who, fields)
    db.routes.resume(name)
    record(request, who, "resume", f"route {name}")
    return back(request, "routes", "route-resumed")
