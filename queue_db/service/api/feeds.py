"""Feeds: list, settings, counts, purge, delete; what to do after a restore.

Zaqar's pools and flavors, which choose a database for a queue, have no counterpart: a service has one database.
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, Field

from queue_db.db import QueueDB
from queue_db.errors import NoSuchFeedError
from queue_db.feeds.message import FeedInfo
from queue_db.operations import feeds as operations
from queue_db.operations.feeds import DEFAULTS, OF_CLAIMS, Settings
from queue_db.service.api import shapes
from queue_db.service.api.feed_shapes import MessageView, feed_of, message_view
from queue_db.service.api.shapes import Seconds
from queue_db.service.http.openapi import problems
from queue_db.service.http.paths import Name, NewName
from queue_db.service.http.refusals import invalid
from queue_db.service.http.requests import Db, Manager, Reader
from queue_db.service.http.times import Time

router = APIRouter(tags=["feeds"])

_Rows = Annotated[int, Field(ge=0, le=2**53)]


class FeedView(shapes.View):
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


class RestoredFeeds(BaseModel):
    """What a restore means for feeds."""

    feeds: int = Field(description="Feeds whose earlier positions are refused.")


@router.get("/feeds")
def list_feeds(db: Db, who: Reader) -> FeedList:
    """List the feeds."""
    return FeedList(feeds=[FeedView.of(one) for one in db.feeds.list() if who.allows("read", one.name)])


@router.get("/feeds/{feed}")
def get_feed(feed: Name, db: Db, who: Reader) -> FeedView:
    """Get one feed."""
    who.check("read", feed)
    return FeedView.of(_info(db, feed))


@router.put("/feeds/{feed}", responses={201: {"model": FeedView, "description": "It is new."}, **problems(404)})
def set_feed(feed: NewName, settings: FeedSettings, db: Db, who: Manager, response: Response) -> FeedView:
    """Create a feed with these settings, or replace all of them."""
    if operations.set(db, who, feed, Settings(**settings.model_dump()), every=True):
        response.status_code = 201
    return FeedView.of(_info(db, feed))


@router.patch("/feeds/{feed}", responses=problems(404, 409))
def change_feed(feed: Name, change: FeedChange, db: Db, who: Manager) -> FeedView:
    """Change some settings of a feed, and leave the others."""
    who.check("manage", feed)
    _info(db, feed)
    given = change.model_dump(exclude_unset=True)
    if not given:
        raise invalid(f"name at least one of {', '.join(FeedChange.model_fields)}")
    defaults: dict[str, Any] = {**DEFAULTS, **OF_CLAIMS}
    settings = {name: defaults[name] if value is None else value for name, value in given.items()}
    operations.set(db, who, feed, Settings(**settings))
    return FeedView.of(_info(db, feed))


@router.delete("/feeds/{feed}", status_code=204)
def delete_feed(feed: Name, db: Db, who: Manager) -> None:
    """Delete a feed with its messages and cursors."""
    if not operations.remove(db, who, feed):
        raise _missing(feed)


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
def purge_feed(
    feed: Name,
    db: Db,
    who: Manager,
    retained: Annotated[
        bool, Query(description="Only what the feed's retention does not keep, at once; positions stay valid.")
    ] = False,
) -> PurgedMessages:
    """Delete all messages of a feed. Positions from before are refused."""
    return PurgedMessages(purged=operations.purge(db, who, feed, retained=retained))


@router.post("/restored")
def declare_restored(db: Db, who: Manager) -> RestoredFeeds:
    """Call it once after the database was restored from a backup: holders lose their cursors, earlier positions are refused.

    Without it a reader whose position is newer than the backup would miss the messages that take the same numbers again.
    """
    return RestoredFeeds(feeds=operations.restored(db, who))


def _info(db: QueueDB, name: str) -> FeedInfo:
    for one in db.feeds.list([name]):
        return one
    raise _missing(name)


def _missing(name: str) -> NoSuchFeedError:
    return NoSuchFeedError(f"there is no feed {name!r}")
