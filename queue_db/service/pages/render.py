"""Pages out of templates: everything in them is escaped, and nothing in them is inline script or style."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from functools import cache, partial
from typing import Any
from urllib.parse import urlencode

import jinja2
from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, RedirectResponse
from markupsafe import Markup
from starlette.routing import Route

from queue_db import __version__
from queue_db.operations.actor import Actor
from queue_db.service.auth import session
from queue_db.service.http.paths import escaped
from queue_db.service.http.requests import of
from queue_db.service.pages import words
from queue_db.service.pages.assets import VERSION
from queue_db.service.pages.board import board
from queue_db.service.pages.charts import sparkline


@dataclass(frozen=True, slots=True)
class Place:
    """A page in the menu; it is shown once its route exists."""

    title: str
    route: str
    #: ``g`` and then this key leads there.
    key: str
    #: It needs this scope for all queues.
    scope: str | None = None


#: The menu, by group.
MENU = {
    "Jobs": (
        Place("Overview", "overview", "o"),
        Place("Jobs", "jobs", "j"),
        Place("Failures", "failures", "f"),
        Place("Dead", "dead", "d"),
        Place("Finished", "finished", "i"),
        Place("Batches", "batches", "b"),
        Place("Groups", "groups", "r"),
        Place("Graphs", "graphs", "h"),
    ),
    "Running": (
        Place("Workers", "workers", "w"),
        Place("Schedules", "schedules", "s"),
        Place("Streams", "streams", "p"),
        Place("Feeds", "feeds", "e"),
        Place("Routes", "routes", "u"),
    ),
    "Service": (
        Place("Strategy", "strategy", "y"),
        Place("Actions", "actions", "a", "read"),
        Place("Tokens", "tokens", "t", "manage"),
    ),
}

#: What an action did, by the word that the address has after it: no text of an address is ever shown. ``{jobs}``: the number in
#: the address as one of jobs; ``{job}``: as the id of one.
DONE = {
    "paused": "Paused: workers claim nothing more from this queue.",
    "resumed": "Resumed: workers claim from this queue again.",
    "limited": "The limits are set; workers obey them within 1.5 s.",
    "fair": "Fair: claims take turns among the groups, in all processes within a second.",
    "unfair": "Not fair any more: groups order the jobs that are added from now on.",
    "groups-limited": "The limits of groups are set; all claims obey them within a second.",
    "rescued": "Released: {number}, jobs and spans of shared cursors together. If the worker is alive, it has lost its leases.",
    "ran": "Enqueued: a free worker takes the job as soon as there is one.",
    "purged": "Purged: {jobs} that waited.",
    "repaired": "Repaired groups, whose next job waited for no other one: {number}.",
    "pruned": "Expired rows deleted: {number}.",
    "graph-cancelled": "Cancelled nodes: {number}. A retry brings them back.",
    "graph-retried": "Retried nodes: {number}. Those with parents to wait for wait for them.",
    "schedule-set": "Set: workers enqueue by this schedule from now on.",
    "schedule-removed": "Removed: nothing more is enqueued by this schedule; its jobs stay.",
    "schedule-paused": "Paused: nothing is enqueued by this schedule.",
    "schedule-resumed": "Resumed: what was missed meanwhile is handled as the schedule says.",
    "stream-released": "Released: {jobs} of the stream, back in the queue.",
    "cursor-removed": "Removed: the feed keeps no messages for this cursor any more.",
    "route-paused": "Paused: messages that are published now are not kept for this route.",
    "route-resumed": "Resumed: the route works on messages that are published from now on.",
    "feed-set": "Set: the feed has these settings from now on.",
    "feed-purged": "Deleted: {messages} of the feed.",
    "feed-removed": "Removed, with its messages and cursors.",
    "restored": "Feeds whose earlier positions are refused from now on: {number}.",
    "cursor-moved": "Moved: who held the cursor has lost it.",
    "route-set": "Set: the route does this with messages that are published from now on.",
    "route-removed": "Removed, with its subscriptions.",
    "subscribed": "Subscribed: messages that are published to these topics from now on go to the route.",
    "unsubscribed": "Unsubscribed: messages of these topics do not go to the route any more.",
    "counter-reset": "Reset: it begins at 0 again.",
    "stream-completed": "Completed: {jobs} of the stream have left the queue.",
    "streams-released": "Streams whose jobs are back in their queues: {number}.",
    "revoked": "Revoked: the token is refused from now on, and its sessions have ended.",
    "due": "The job is due now: the next free worker takes it.",
    "later": "The job is due later: see below.",
    "moved": "The job has another priority; lower ones are claimed first.",
    "cancelled": "Cancelled: {job} has left its queue.",
    "redriven": "Redriven: the job is due now, with no attempts counted.",
    "redrive_all": "Redriven: {jobs}, due now, with no attempts counted. A job stays dead while a live one has its unique key.",
    "purge_all": "Purged: {jobs}.",
    "lost": "Nothing was changed: the job has changed meanwhile. This is how it is now.",
}

_environment = jinja2.Environment(
    loader=jinja2.PackageLoader("queue_db.service.pages"),
    autoescape=True,
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_environment.filters.update(span=words.span, number=words.number, rate=words.rate, share=words.share, size=words.size)
_environment.filters.update(millis=words.millis, exact=words.exact, iso=words.iso, minute=words.minute)
_environment.globals.update(sparkline=sparkline, menu=MENU, product_version=__version__)


def address(request: Request, route: str, /, query: dict[str, Any] | None = None, **names: object) -> str:
    """The path of a page, wherever the application is mounted. ``query``: those that are not None are added."""
    segments = {name: escaped(str(value)) for name, value in names.items()}
    path = request.scope.get("app_root_path", "") + request.app.state.addresses[route].url_path_for(route, **segments)
    asked = {name: value for name, value in (query or {}).items() if value is not None}
    return f"{path}?{urlencode(asked)}" if asked else str(path)


def by_name(*routers: APIRouter) -> dict[str, Route]:
    """The routes of these routers by name: an application that looks for a name tries each of its routes."""
    return {route.name: route for router in routers for route in router.routes if isinstance(route, Route)}


def _number(request: Request) -> int | None:
    """The number in the address of a page after an action."""
    text = request.query_params.get("number", "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= 19 else None


def _notice(done: str, number: int | None) -> str | None:
    """What an action did."""
    if done not in DONE:
        return None
    if number is None:
        return DONE[done].format(jobs="the jobs", job="the job", messages="the messages", number="all")
    jobs, messages = (f"{number:,} {one}{'' if number == 1 else 's'}" for one in ("job", "message"))
    return DONE[done].format(jobs=jobs, job=f"job {number}", messages=messages, number=f"{number:,}")


def page(request: Request, name: str, *, here: str = "", status: int = 200, **values: Any) -> HTMLResponse:
    """A page by the name of its template. ``here``: the route in the menu that it belongs to, where this is not its name."""
    service, found = of(request), request.state.session
    who: Actor = found.who
    refused = {place.route for places in MENU.values() for place in places if place.scope and not who.allows_all(place.scope)}
    # Read where a page shows a time: one that says that the database is away shows none.
    now = cache(board(request).clock.now)
    done, number = request.query_params.get("done", ""), _number(request)
    link = partial(address, request)

    def when(moment: datetime | None) -> Markup | str:
        """A time as a distance, with the exact one as its title."""
        if moment is None:
            return words.NOTHING
        return Markup('<time datetime="{}" title="{}">{}</time>').format(
            words.iso(moment), words.exact(moment), words.ago(moment, now())
        )

    text = _environment.get_template(f"{name}.html.jinja").render(
        link=link,
        when=when,
        static=lambda file: link("static", version=VERSION, file=file),
        here=here or name,
        status=status,
        routes=request.app.state.addresses.keys() - refused,
        who=who,
        csrf=found.csrf,
        named=found.named,
        read_only=service.read_only,
        changes=not service.read_only and "manage" in who.scopes,
        masked=service.settings.masked,
        brief=lambda value, most=80: words.brief(value, service.settings.masked, most),
        payload=lambda value: words.payload(value, service.settings.masked),
        database=service.db.url,
        server=service.db.database.server,
        replica=service.db.core.replicas and service.db.core.replicas.words,
        whereabouts=words.whereabouts(service.db.url),
        instance=service.settings.name,
        theme=request.cookies.get("theme") if request.cookies.get("theme") in {"light", "dark"} else None,
        root=request.scope.get("app_root_path", "") or "/",
        notice=_notice(done, number),
        noticed_job=number if done == "ran" else None,
        now=now,
        **values,
    )
    response = HTMLResponse(text, status, {"Cache-Control": "no-store"})
    if not found.named:
        session.remember_guest(request, response, found.csrf)
    return response


def back(request: Request, route: str, done: str, query: dict[str, Any] | None = None, **names: object) -> RedirectResponse:
    """After an action: to the page that shows what it did. What was read before it is read again."""
    board(request).forget()
    return RedirectResponse(address(request, route, {**(query or {}), "done": done}, **names), 303)
