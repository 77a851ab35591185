"""One feed: its settings, its cursors and its newest messages.

A feed is read forwards, and its numbers have gaps where consumers delete messages. So where its last messages are has to be looked
for: in ranges of numbers that grow while they are empty, and, in a range with more messages than one read, nearer to its end.
"""

from __future__ import annotations

from typing import Any

from fastapi import Request, Response
from starlette.exceptions import HTTPException

from queue_db.db import QueueDB
from queue_db.errors import PayloadError
from queue_db.feeds import Message
from queue_db.feeds.message import FeedInfo
from queue_db.feeds.position import Position
from queue_db.service.api import paging
from queue_db.service.http.paths import Name
from queue_db.service.http.requests import Db, Person
from queue_db.service.pages.feeds import MOST_CURSORS
from queue_db.service.pages.render import page
from queue_db.service.pages.routing import page_router

router = page_router()

#: Messages on the page.
LIMIT = 50

# Messages of one read, and reads of one page. After an empty range the next one is wider by this factor.
_AT_ONCE, _READS, _WIDER = 25, 40, 8


@router.get("/feeds/{name}", name="feed")
def show(request: Request, db: Db, who: Person, name: Name) -> Response:
    """A feed. Its messages are for those who may read it over REST."""
    who.check("read", name)
    info = next(iter(db.feeds.list([name])), None)
    if info is None:
        raise HTTPException(404, "There is no such feed")
    messages, numbers = newest(db, info, LIMIT)
    return page(
        request,
        "feed",
        here="feeds",
        feed=info,
        cursors=db.feeds.cursors(feeds=[name]),
        most_cursors=MOST_CURSORS,
        may=who.allows("manage", name),
        messages=[(one, *_payload(one)) for one in messages],
        numbers=numbers,
    )


def _payload(message: Message) -> tuple[bool, Any]:
    """Whether the payload can be decoded here, and the payload."""
    try:
        return True, message.payload
    except PayloadError:
        return False, None


def newest(db: QueueDB, info: FeedInfo, limit: int) -> tuple[list[Message], int]:
    """The last messages of a feed, and how many numbers at its end were looked at.

    Newest first and without gaps: up to ``limit`` messages, fewer where they are large or far apart.
    """
    low, end = Position.parse(info.start).seq, Position.parse(info.end)
    feed, messages, numbers = db.feed(info.name), list[Message](), 0
    # All numbers above `high` were looked at. If `seen` is above `low`, there is a message with this number, not above `high`.
    high, seen, width = end.seq, low, _AT_ONCE
    for _ in range(_READS):
        most = min(_AT_ONCE, limit - len(messages))
        after = max(low, min(high - most, (seen + high) // 2 if seen > low else high - width))
        read = feed.read(str(end._replace(seq=after)), most, on_trimmed="skip").messages
        if len(read) == most and read[-1].seq < high:
            seen = read[-1].seq  # between it and `high` there may be more
            continue
        some = [one for one in read if one.seq <= high]
        large = _add(messages, some)
        numbers = end.seq - after
        if large or after <= low or len(messages) == limit:
            break
        width = _next(width, len(some), most)
        high, seen = after, seen if seen <= after else low
    return messages, numbers


def _add(messages: list[Message], some: list[Message]) -> bool:
    """Add the messages before those; whether the page ends with them, because they are large."""
    size = sum(len(one.payload_text) for one in messages)
    for one in reversed(some):
        messages.append(one)
        size += len(one.payload_text)
        if size >= paging.MOST_BYTES:
            return True
    return False


def _next(width: int, found: int, most: int) -> int:
    """How many numbers to look at next: as many as will have about as many messages as one read."""
    if found == most:
        return _AT_ONCE
    return width * _WIDER if found * _WIDER <= most else width
