"""One feed: its settings, its cursors and its newest messages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fastapi import Request
from fastapi.responses import HTMLResponse
from starlette.exceptions import HTTPException

from queue_db.db import QueueDB
from queue_db.errors import PayloadError
from queue_db.feeds import Message
from queue_db.feeds.message import FeedInfo
from queue_db.feeds.position import Position
from queue_db.service.pages.render import page
from queue_db.service.pages.routing import page_router
from queue_db.service.paths import Name
from queue_db.service.requests import Db, Person

router = page_router()

#: Messages on the page.
LIMIT = 50

# Where consumers delete messages, numbers are missing: up to so many further reads, each over so many times as many numbers.
_WIDER, _FURTHER = 8, 4


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
    info = next((one for one in db.feeds.list() if one.name == name), None)
    if info is None:
        raise HTTPException(404, "There is no such feed")
    found = [_shown(one) for one in reversed(newest(db, info))]
    cursors = [one for one in db.feeds.cursors() if one.feed == name]
    return page(request, "feed.html.jinja", who, here="feeds", feed=info, cursors=cursors, messages=found, most=LIMIT)


def newest(db: QueueDB, info: FeedInfo) -> list[Message]:
    """The last messages of a feed, in their order: up to :data:`LIMIT`, in a few reads of as many.

    Where many numbers are missing, they may be fewer than there are.
    """
    first, end = Position.parse(info.start).seq, Position.parse(info.end)
    feed, found, numbers = db.feed(info.name), list[Message](), LIMIT
    for _ in range(1 + _FURTHER):
        after = max(first, end.seq - numbers)
        read = feed.read(str(end._replace(seq=after)), LIMIT, on_trimmed="skip")
        if found and read.behind:
            break  # there are more than a page in between
        found = read.messages
        if len(found) == LIMIT or after == first or not info.claims:
            break
        numbers *= _WIDER
    return found


def _shown(message: Message) -> Shown:
    try:
        return Shown(message, message.payload, decoded=True)
    except PayloadError:
        return Shown(message, None, decoded=False)
