"""Feeds: list, settings, counts, purge, delete.

Zaqar's pools and flavors, which choose a database for a queue, have no counterpart: a service has one database.
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, Field

from queue_db.db import QueueDB
from queue_db.feeds.message import FeedInfo
from queue_db.feeds.settings import KEEP_FOR, KEEP_UNREAD
from queue_db.service.api import shapes
from queue_db.service.api.feed_shapes import MessageView, feed_of, message_view
from queue_db.service.api.shapes import Seconds
from queue_db.service.http.openapi import problems
from queue_db.service.http.paths import Name, NewName
from queue_db.service.http.refusals import invalid, missing
from queue_db.service.http.requests import Db, Manager, Reader, record
from queue_db.service.http.times import Time

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


class FeedChange(shapes.Request):
    """Settings of a feed; null: the default."""

    keep_for: Seconds | None = Field(None, description="0: without limit; default: a week.")
    keep_rows: _Rows | None = Field(None, description="0, the default: without limit.")
    keep_unread: _Rows | None = Field(None, description="Default: 1,000,000.")
    max_attempts: Annotated[int, Field(ge=0, le=2**31 - 1)] | None = Field(None, description="0, the default: any number.")
    delay: Seconds | None = Field(None, description="Default: 0.")
    expires_in: Seconds | None = Field(None, description="0, the default: never.")


class FeedSettings(FeedChange):
    """All settings of a feed; what is missing gets its default. Ordering and claims of a feed that is there stay."""

    ordering: Annotated[str, Field(max_length=20, description="`ranked` or `counter`; only for a new feed.")] | None = None
    claims: bool | None = Field(None, description="Whether messages can be claimed; only for a new feed.")


_DEFAULTS = {"keep_for": KEEP_FOR / 1_000_000, "keep_rows": 0, "keep_unread": KEEP_UNREAD}

# Only a feed with claims has these.
_OF_CLAIMS = {"max_attempts": 0, "delay": 0, "expires_in": 0}


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


@router.put("/feeds/{feed}", responses={201: {"model": FeedView, "description": "It is new."}})
def set_feed(feed: NewName, settings: FeedSettings, request: Request, db: Db, who: Manager, response: Response) -> FeedView:
    """Create a feed with these settings, or replace all of them."""
    who.check("manage", feed)
    given = settings.model_dump(exclude_none=True)
    before = next(iter(db.feeds.list([feed])), None)
    claims = given.get("claims", before is not None and before.claims)
    settled: dict[str, Any] = {**_DEFAULTS, **(_OF_CLAIMS if claims else {}), **given}
    db.feeds.set(feed, **settled)
    if before is None:
        response.status_code = 201
    record(request, who, "set", f"feed {feed}", detail=given)
    return _view(_info(db, feed))


@router.patch("/feeds/{feed}", responses=problems(404, 409))
def change_feed(feed: Name, change: FeedChange, request: Request, db: Db, who: Manager) -> FeedView:
    """Change some settings of a feed, and leave the others."""
    who.check("manage", feed)
    _info(db, feed)
    given = change.model_dump(exclude_unset=True)
    if not given:
        raise invalid(f"name at least one of {', '.join(FeedChange.model_fields)}")
    defaults: dict[str, Any] = {**_DEFAULTS, **_OF_CLAIMS}
    db.feeds.set(feed, **{name: defaults[name] if value is None else value for name, value in given.items()})
    record(request, who, "change", f"feed {feed}", detail=given)
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
    for one in db.feeds.list([name]):
        return one
    raise missing("feed", f"no feed {name!r}")


def _view(info: FeedInfo) -> FeedView:
    return FeedView(**{name: getattr(info, name) for name in FeedView.model_fields})
