"""One feed: its settings, its cursors and its newest messages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fastapi import Request
from fastapi.responses import HTMLResponse
from starlette.exceptions import HTTPException

from queue_db.errors import PayloadError
from queue_db.feeds import Message
from queue_db.service.http.paths import Name
from queue_db.service.http.requests import Db, Person
from queue_db.service.pages.feeds import MOST_CURSORS
from queue_db.service.pages.newest import newest
from queue_db.service.pages.render import page
from queue_db.service.pages.routing import page_router

router = page_router()

#: Messages on the page.
LIMIT = 50


@dataclass(frozen=True, slots=True)
class Shown:
    """A message, and its payload."""

    message: Message
    payload: Any
    decoded: bool


@router.get("/feeds/{name}", name="feed", response_class=HTMLResponse)
def show(request: Request, db: Db, who: Person, name: Name) -> HTMLResponse:
    """A feed. Its messages are for those who may read it over REST."""
    who.check("read", name)
    info = next(iter(db.feeds.list([name])), None)
    if info is None:
        raise HTTPException(404, "There is no such feed")
    found = newest(db, info, LIMIT)
    cursors = db.feeds.cursors(feeds=[name])
    return page(
        request,
        "feed.html.jinja",
        who,
        here="feeds",
        feed=info,
        cursors=cursors,
        most_cursors=MOST_CURSORS,
        may=who.allows("manage", name),
        messages=[_shown(one) for one in found.messages],
        numbers=found.numbers,
    )


def _shown(message: Message) -> Shown:
    try:
        return Shown(message, message.payload, decoded=True)
    except PayloadError:
        return Shown(message, None, decoded=False)
