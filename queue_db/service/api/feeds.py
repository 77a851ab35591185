"""Feeds: list, settings, counts, purge, delete.

Zaqar's pools and flavors, which choose a database for a queue, have no counterpart: a service has one database.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, Field

from queue_db.db import QueueDB
from queue_db.feeds.message import FeedInfo
from queue_db.service.feed_shapes import Body, MessageView, Seconds, feed_of, message_view
from queue_db.service.paths import Name
from queue_db.service.refusals import missing
from queue_db.service.requests import Db, Manager, Reader, record
from queue_db.service.times import Time

router = APIRouter(tags=["feeds"])

_Rows = Annotated[int, Field(ge=0, le=2**53)]


class FeedView(BaseModel):
    """A feed."""

    name: str
    ordering: str
    messages: int = Field(description="Numbered messages that are not trimmed.")
    waiting: int = Field(description="Messages without a number yet, counted up to 10,000.")
    start: str = Field(description="The position before the first message that is there.")
    end: str = Field(description="The position after the last message.")
    keep_rows: int | None
    keep_for: float | None = Field(description="Seconds.")
    keep_unread: int
    created_at: Time
    claims: bool = Field(description="Whether messages can be claimed.")
    max_attempts: int | None
    delay: float
    expires_in: float | None


class FeedList(BaseModel):
    """The feeds by name."""

    feeds: list[FeedView]


class FeedSettings(Body):
    """Settings of a feed; what is missing stays as it is."""

    ordering: Annotated[str, Field(max_length=20, description="`ranked`, `counter` or `ticks`; only for a new feed.")] | None = None
    keep_for: Seconds | None = None
    keep_rows: _Rows | None = None
    keep_unread: _Rows | None = None
    claims: bool | None = Field(None, description="Whether messages can be claimed; only for a new feed.")
    max_attempts: Annotated[int, Field(ge=0, le=2**31 - 1)] | None = Field(None, description="0: any number.")
    delay: Seconds | None = None
    expires_in: Seconds | None = None


class FeedCounts(BaseModel):
    """The messages of a feed with claims, without those that have expired."""

    total: int
    free: int
    claimed: int
    delayed: int
    oldest: MessageView | None
    newest: MessageView | None


class PurgedMessages(BaseModel):
    """What a purge has deleted."""

    purged: int


@router.get("/feeds")
def list_feeds(db: Db, who: Reader) -> FeedList:
    """List the feeds."""
    return FeedList(feeds=[_view(one) for one in db.feeds.list() if who.allows("read", one.name)])


@router.get("/feeds/{feed}")
def get_feed(feed: Name, db: Db, who: Reader) -> FeedView:
    """Get one feed."""
    who.check("read", feed)
    return _view(_info(db, feed))


@router.put("/feeds/{feed}")
def set_feed(feed: Name, settings: FeedSettings, request: Request, db: Db, who: Manager) -> FeedView:
    """Create a feed with these settings, or change them."""
    who.check("manage", feed)
    given = settings.model_dump(exclude_none=True)
    db.feeds.set(feed, **given)
    record(request, who, "set", f"feed {feed}", detail=given)
    return _view(_info(db, feed))


@router.delete("/feeds/{feed}", status_code=204)
def delete_feed(feed: Name, request: Request, db: Db, who: Manager) -> Response:
    """Delete a feed with its messages and cursors."""
    who.check("manage", feed)
    if not db.feeds.delete(feed):
        raise missing("feed", f"no feed {feed!r}")
    record(request, who, "delete", f"feed {feed}")
    return Response(status_code=204)


@router.get("/feeds/{feed}/stats")
def get_feed_stats(feed: Name, db: Db, who: Reader) -> FeedCounts:
    """Count the messages of a feed with claims: free, claimed, delayed."""
    who.check("read", feed)
    stats = feed_of(db, feed).stats()
    ends = [None if one is None else message_view(one) for one in (stats.oldest, stats.newest)]
    return FeedCounts(
        total=stats.total, free=stats.free, claimed=stats.claimed, delayed=stats.delayed, oldest=ends[0], newest=ends[1]
    )


@router.post("/feeds/{feed}/purge")
def purge_feed(feed: Name, request: Request, db: Db, who: Manager) -> PurgedMessages:
    """Delete all messages of a feed. Positions from before are refused."""
    who.check("manage", feed)
    feed_of(db, feed)
    purged = db.feeds.purge(feed)
    record(request, who, "purge", f"feed {feed}", purged)
    return PurgedMessages(purged=purged)


def _info(db: QueueDB, name: str) -> FeedInfo:
    for one in db.feeds.list():
        if one.name == name:
            return one
    raise missing("feed", f"no feed {name!r}")


def _view(info: FeedInfo) -> FeedView:
    return FeedView(**{name: getattr(info, name) for name in FeedView.model_fields})
