"""Feeds with their cursors, one with its newest messages, and what can be done with them.

A feed is read forwards, and its numbers have gaps where consumers delete messages. So where its last messages are has to be looked
for: in ranges of numbers that grow while they are empty, and, in a range with more messages than one read, nearer to its end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import Annotated, Any, cast

from fastapi import Query, Request, Response
from starlette.exceptions import HTTPException

from queue_db.db import QueueDB
from queue_db.errors import PayloadError
from queue_db.feeds import FeedInfo, Message
from queue_db.feeds.position import Position
from queue_db.feeds.settings import FeedOrdering
from queue_db.operations import cursors
from queue_db.operations import feeds as operations
from queue_db.operations.feeds import Settings
from queue_db.service.api import paging
from queue_db.service.http.paths import Name
from queue_db.service.http.requests import Db, Fields, Person
from queue_db.service.pages.queues import number, whole
from queue_db.service.pages.render import back, page
from queue_db.service.pages.routing import page_router
from queue_db.store.schema import FEED_LENGTH

router = page_router()

#: Feeds on one page, and cursors of these.
MOST, MOST_CURSORS = 50, 100

#: Messages on the page.
LIMIT = 50

# Messages of one read, and reads of one page. After an empty range the next one is wider by this factor.
_AT_ONCE, _READS, _WIDER = 25, 40, 8


@router.get("/feeds", name="feeds")
def feeds(
    request: Request, db: Db, who: Person, after: Annotated[str | None, Query(min_length=1, max_length=FEED_LENGTH)] = None
) -> Response:
    """The feeds by name, with their cursors. ``after``: the name of the last feed of the previous page."""
    who.check("read")
    readable = list(islice(_readable(db, who, after), MOST + 1))
    some = readable[:MOST]
    found = sorted(db.feeds.cursors(feeds=[one.name for one in some]), key=lambda one: -one.behind)
    return page(
        request,
        "feeds",
        feeds=some,
        numbers=Counter(one.feed for one in found),
        cursors=found[:MOST_CURSORS],
        number_of_cursors=len(found),
        may=who.allows("manage"),
        may_all=who.allows_all("manage"),
        after=after,
        next=some[-1].name if len(readable) > MOST else None,
    )


def _readable(db: Db, who: Person, after: str | None) -> Iterator[FeedInfo]:
    """The feeds that the token may read, by name: those between them are not shown, counted or named in a link."""
    while found := db.feeds.list(after=after, limit=MOST + 1):
        yield from (one for one in found if who.allows("read", one.name))
        after = found[-1].name


@router.get("/feeds/{name}", name="feed")
def feed(request: Request, db: Db, who: Person, name: Name) -> Response:
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
    found, messages, numbers = db.feed(info.name), list[Message](), 0
    # All numbers above `high` were looked at. If `seen` is above `low`, there is a message with this number, not above `high`.
    high, seen, width = end.seq, low, _AT_ONCE
    for _ in range(_READS):
        most = min(_AT_ONCE, limit - len(messages))
        after = max(low, min(high - most, (seen + high) // 2 if seen > low else high - width))
        read = found.read(str(end._replace(seq=after)), most, on_trimmed="skip").messages
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


@router.post("/feeds/make", name="make_feed")
def make_feed(request: Request, db: Db, who: Person, fields: Fields) -> Response:
    """Create a feed, or change its settings."""
    feed = fields.get("feed", "").strip()
    settings = Settings(
        ordering=cast("FeedOrdering", fields.get("ordering") or None),
        claims=True if fields.get("claims") else None,
        **_numbers(fields),
    )
    operations.set(db, who, feed, settings)
    return back(request, "feed", "feed-set", name=feed)


@router.post("/feeds/set", name="set_feed")
def set_feed(request: Request, db: Db, who: Person, fields: Fields) -> Response:
    """Change its settings; what is empty stays."""
    feed = _chosen(db, who, fields)
    operations.set(db, who, feed, Settings(**_numbers(fields)))
    return back(request, "feed", "feed-set", name=feed)


@router.post("/feeds/purge", name="purge_feed")
def purge_feed(request: Request, db: Db, who: Person, fields: Fields) -> Response:
    """Delete its messages: all of them, or those that its retention does not keep."""
    feed = _chosen(db, who, fields)
    gone = operations.purge(db, who, feed, retained=bool(fields.get("retained")))
    return back(request, "feed", "feed-purged", {"number": gone}, name=feed)


@router.post("/feeds/remove", name="remove_feed")
def remove_feed(request: Request, db: Db, who: Person, fields: Fields) -> Response:
    """Delete it with its messages and cursors."""
    operations.remove(db, who, _chosen(db, who, fields))
    return back(request, "feeds", "feed-removed")


@router.post("/feeds/restored", name="restored_feeds")
def restored(request: Request, db: Db, who: Person) -> Response:
    """The database was restored from a backup."""
    return back(request, "feeds", "restored", {"number": operations.restored(db, who)})


@router.post("/feeds/cursors/seek", name="seek_cursor")
def seek_cursor(request: Request, db: Db, who: Person, fields: Fields) -> Response:
    """Move a cursor."""
    feed = _chosen(db, who, fields)
    cursors.seek(db, who, feed, fields.get("name", ""), fields.get("position", "").strip())
    return back(request, "feed", "cursor-moved", name=feed)


@router.post("/feeds/cursors/remove", name="remove_cursor")
def remove_cursor(request: Request, db: Db, who: Person, fields: Fields) -> Response:
    """Delete a cursor, so that the feed keeps no messages for it."""
    feed = _chosen(db, who, fields)
    cursors.remove(db, who, feed, fields.get("name", ""))
    return back(request, "feed", "cursor-removed", name=feed)


def _numbers(fields: Fields) -> dict[str, Any]:
    """The settings that are numbers; None where a field is empty."""
    seconds = {name: number(fields, name) for name in ("keep_for", "delay", "expires_in")}
    return {**seconds, **{name: whole(fields, name) for name in ("keep_rows", "keep_unread", "max_attempts")}}


def _chosen(db: Db, who: Person, fields: Fields) -> str:
    """The name of the feed of a form; who sent it may change it."""
    feed = fields.get("feed", "")
    who.check("manage", feed)
    if not feed or not db.feeds.list([feed]):
        raise HTTPException(404, "There is no such feed")
    return feed
