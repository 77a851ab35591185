"""Streams of server-sent events: the live numbers of queues, and the messages of a feed as they come."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Annotated, Any

from fastapi import APIRouter, Header, Request, Response
from fastapi.sse import format_sse_event
from starlette.concurrency import run_in_threadpool

from queue_db.feeds import Feed
from queue_db.service.api.feed_shapes import PositionText, feed_of, message_view
from queue_db.service.http.paths import Name
from queue_db.service.http.requests import Db, Reader, Standing
from queue_db.service.live.arrivals import arrivals_of
from queue_db.service.live.events import IDLE, EventStream, live_of

router = APIRouter(tags=["events"])

_STREAM: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}, "description": "Events, until the stream ends."}
}

# Messages of one read.
_PAGE = 100

Last = Annotated[PositionText | None, Header(alias="Last-Event-ID", description="What a browser sends when it connects again.")]


@router.get("/events", response_class=Response, responses=_STREAM)
async def follow_queues(request: Request, who: Reader) -> Response:
    """Get the latest numbers of the queues each time that they change, as events named `queues`.

    The last event of a stream that ends by an error is named `problem`: 401 if the token was revoked or has expired.
    """
    return EventStream(live_of(request).follow(lambda queue: who.allows("read", queue)), Standing(request, "read").check)


@router.get("/feeds/{feed}/events", response_class=Response, responses=_STREAM)
async def follow_feed(
    request: Request, feed: Name, db: Db, who: Reader, after: PositionText | None = None, last_event_id: Last = None
) -> Response:
    """Get the messages after a position, and those that come, each as an event with its id. Without a position: from now on.

    A stream ends after ten minutes; a browser connects again by itself and goes on where it was. The last event of a stream that
    ends by an error is named `problem`: 410 if messages were trimmed, 401 if the token was revoked or has expired.
    """
    who.check("read", feed)
    found = await run_in_threadpool(feed_of, db, feed)
    begin = last_event_id or after
    if begin is None:
        begin = await run_in_threadpool(found.end)
    # Before the first byte: a position of another feed is refused with its status.
    await run_in_threadpool(found.read, begin, 1)
    return EventStream(_messages(request, found, begin), Standing(request, "read", feed).check)


async def _messages(request: Request, feed: Feed, after: str) -> AsyncGenerator[bytes | None, None]:
    def page() -> tuple[list[bytes], str, int]:
        one = feed.read(after, _PAGE)
        views = [message_view(message) for message in one.messages]
        return [format_sse_event(data_str=view.model_dump_json(), id=view.id) for view in views], one.position, one.behind

    with arrivals_of(request).waiter(feed.name) as waiter:
        while not waiter.ending:
            events, after, behind = await run_in_threadpool(page)
            waiter.position = after
            for one in events:
                yield one
            while not behind and not await waiter.wait(IDLE) and not waiter.ending:
                yield None
                break
