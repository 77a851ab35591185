"""Cursors of feeds: open, acknowledge, close, move. Read with ``GET /feeds/{feed}/messages?after=…``.

``PUT`` opens a cursor and returns an ETag. The others send it back as ``If-Match``; 412: another process has opened the cursor.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal

from fastapi import APIRouter, Header, Query, Response
from pydantic import BaseModel, Field

from queue_db.errors import NoSuchCursorError
from queue_db.feeds import Feed
from queue_db.feeds.cursor import Cursor
from queue_db.feeds.position import Position
from queue_db.operations import cursors as operations
from queue_db.service.api import shapes
from queue_db.service.api.feed_shapes import Lease, PositionText, feed_of
from queue_db.service.http.paths import Name, NewName
from queue_db.service.http.refusals import RefusedError, unconditional
from queue_db.service.http.requests import Db, Manager, Reader, WorkerClient
from queue_db.service.http.times import Time

router = APIRouter(tags=["feeds"])

_TAG = re.compile(r'"([0-9]{1,18})"', re.ASCII)

Hold = Annotated[
    str | None, Header(alias="If-Match", max_length=100, description='The generation: the ETag of the open cursor, `"7"`.')
]
Start = Annotated[str, Query(min_length=1, max_length=60, description="Where a new cursor begins: `start`, `end` or a position.")]


class CursorView(shapes.View):
    """A cursor."""

    feed: str
    name: str
    position: str = Field(description="After the last message that was acknowledged.")
    behind: int
    trimmed: int = Field(description="Of the messages behind, those that are trimmed already.")
    holder: str | None
    seen_at: Time
    created_at: Time
    shared: bool
    spans: int


class CursorList(BaseModel):
    """Cursors by feed and name."""

    cursors: list[CursorView]


class OpenCursor(BaseModel):
    """An open cursor."""

    feed: str
    name: str
    position: str = Field(description="Read on after it.")
    generation: str = Field(description="The number of this opening, as in the ETag.")


class Acknowledgement(shapes.Request):
    """What is done."""

    upto: PositionText


class Acknowledgements(shapes.Request):
    """What is done in several feeds."""

    upto: Annotated[list[PositionText], Field(min_length=1, max_length=1000)]


class CursorVerdicts(BaseModel):
    """A verdict for each position, in their order."""

    verdicts: list[Literal["applied", "lost"]]


class CursorSeek(shapes.Request):
    """Where to go."""

    position: Annotated[str, Field(min_length=1, max_length=60, description="`start`, `end` or a position.")]


@router.get("/cursors/{cursor}")
def list_cursors_of_name(cursor: Name, db: Db, who: Reader) -> CursorList:
    """List the cursors of one name in all feeds, such as all groups of a member."""
    return CursorList(cursors=[CursorView.of(one) for one in db.feeds.cursors(cursor) if who.allows("read", one.feed)])


@router.post("/cursors/{cursor}/ack")
def acknowledge_cursors(cursor: Name, done: Acknowledgements, db: Db, who: WorkerClient) -> CursorVerdicts:
    """Acknowledge positions in several feeds for the cursors of one name, whoever holds them; none moves back.

    `lost`: the feed has no such cursor, a shared one, or other messages since a purge.
    """
    own = {Position.parse(one.position).token for one in db.feeds.cursors(cursor) if who.allows("work", one.feed)}
    mine = [one for one in done.upto if Position.parse(one).token in own]
    verdicts = dict(zip(mine, db.feeds.ack(cursor, mine), strict=True))
    return CursorVerdicts(verdicts=["applied" if verdicts.get(one) else "lost" for one in done.upto])


@router.get("/feeds/{feed}/cursors")
def list_cursors(feed: Name, db: Db, who: Reader) -> CursorList:
    """List the cursors of a feed."""
    who.check("read", feed)
    return CursorList(cursors=[CursorView.of(one) for one in feed_of(db, feed).cursors()])


@router.put("/feeds/{feed}/cursors/{cursor}", responses={201: {"model": OpenCursor, "description": "It is new."}})
def open_cursor(
    feed: Name,
    cursor: NewName,
    response: Response,
    db: Db,
    who: WorkerClient,
    start: Start = "start",
    lease: Lease = 30.0,
    take_over: Annotated[bool, Query(description="Open it although another process holds it.")] = False,
) -> OpenCursor:
    """Open a cursor: nobody else can until `lease` seconds pass without an acknowledgement. 409: another process holds it."""
    who.check("work", feed)
    found = feed_of(db, feed)
    new = all(one.name != cursor for one in found.cursors())
    opened = _open(found.cursor(cursor, start=start, lease=lease, take_over=take_over), response)
    if new:
        response.status_code = 201
    return opened


@router.post("/feeds/{feed}/cursors/{cursor}/ack")
def acknowledge_cursor(
    feed: Name,
    cursor: Name,
    done: Acknowledgement,
    response: Response,
    db: Db,
    who: WorkerClient,
    if_match: Hold = None,
    lease: Lease = 30.0,
) -> OpenCursor:
    """Acknowledge all messages up to a position, and hold the cursor for another `lease` seconds."""
    who.check("work", feed)
    opened = feed_of(db, feed).resume(cursor, _hold(if_match), lease=lease)
    opened.ack(done.upto).require()
    return _open(opened, response)


@router.post("/feeds/{feed}/cursors/{cursor}/close", status_code=204)
def close_cursor(feed: Name, cursor: Name, db: Db, who: WorkerClient, if_match: Hold = None) -> None:
    """End the hold; the position stays."""
    who.check("work", feed)
    feed_of(db, feed).resume(cursor, _hold(if_match)).close()


@router.post("/feeds/{feed}/cursors/{cursor}/seek")
def seek_cursor(feed: Name, cursor: Name, to: CursorSeek, db: Db, who: Manager) -> CursorView:
    """Move a cursor, forwards or back; who holds it loses it."""
    operations.seek(db, who, feed, cursor, to.position)
    return _find(feed_of(db, feed), cursor)


@router.get("/feeds/{feed}/cursors/{cursor}")
def get_cursor(feed: Name, cursor: Name, db: Db, who: Reader) -> CursorView:
    """Get one cursor."""
    who.check("read", feed)
    return _find(feed_of(db, feed), cursor)


@router.delete("/feeds/{feed}/cursors/{cursor}", status_code=204)
def delete_cursor(feed: Name, cursor: Name, db: Db, who: Manager) -> None:
    """Delete a cursor, so that retention does not wait for it."""
    if not operations.remove(db, who, feed, cursor):
        raise _missing(feed, cursor)


def _hold(if_match: str | None) -> int:
    if if_match is None:
        raise unconditional("send the ETag of the open cursor")
    found = _TAG.fullmatch(if_match.strip())
    if found is None:
        raise RefusedError(
            412,
            "The cursor is held by another, or was never opened",
            'If-Match must be the ETag of the open cursor: "<generation>"',
            code="not_held",
        )
    return int(found[1])


def _open(cursor: Cursor, response: Response) -> OpenCursor:
    response.headers["ETag"] = f'"{cursor.generation}"'
    return OpenCursor(feed=cursor.feed.name, name=cursor.name, position=cursor.position, generation=str(cursor.generation))


def _find(feed: Feed, name: str) -> CursorView:
    for one in feed.cursors():
        if one.name == name:
            return CursorView.of(one)
    raise _missing(feed.name, name)


def _missing(feed: str, name: str) -> NoSuchCursorError:
    return NoSuchCursorError(f"feed {feed!r} has no cursor {name!r}")
