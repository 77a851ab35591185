"""The cursors of feeds and the spans of shared ones, as users see them."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Row

from queue_db.core import Core
from queue_db.errors import FeedError
from queue_db.feeds.message import CursorInfo, SpanInfo
from queue_db.feeds.position import Position
from queue_db.model import from_micros
from queue_db.store import Store
from queue_db.store.feeds import cursors, rows, span_claims, spans
from queue_db.store.feeds.rows import FeedRow


def infos(core: Core, feed: int | None) -> list[CursorInfo]:
    """The cursors of one feed, or of all."""
    found, waiting = core.read(_cursors, feed)
    return [
        CursorInfo(
            feed=row.feed_name,
            name=row.name,
            position=str(Position(row.token, row.epoch, row.position)),
            behind=row.next_seq - 1 - row.position + waiting[row.feed],
            trimmed=max(0, row.first_seq - 1 - row.position),
            holder=row.holder if row.until > row.now else None,
            seen_at=from_micros(row.seen_at),
            created_at=from_micros(row.created_at),
            shared=row.handed is not None,
            spans=row.spans,
        )
        for row in found
    ]


def _cursors(connection: Connection, store: Store, feed: int | None) -> tuple[list[Row[Any]], dict[int, int]]:
    """The cursors, and how many messages of each of their feeds wait for a number."""
    # In this order: what gets its number in between is counted twice, and not left out.
    waiting = {one: rows.waiting(connection, store, one, of) for one, of in cursors.feeds(connection, store, feed)}
    return [row for row in cursors.every(connection, store, feed) if row.feed in waiting], waiting


def spans_of(core: Core, feed: FeedRow, cursor: str) -> list[SpanInfo]:
    """The open spans of a shared cursor, by number.

    :raises FeedError: there is no such cursor, or it is not shared.
    """
    known = core.read(span_claims.look, feed, cursor)
    if known is None:
        raise FeedError(f"feed {feed.name!r} has no cursor {cursor!r}")
    if known.handed is None:
        raise FeedError(f"cursor {cursor!r} of feed {feed.name!r} has one holder at a time, and no spans")
    return [
        SpanInfo(
            feed=feed.name,
            cursor=cursor,
            id=row.id,
            low=row.low,
            high=row.high,
            attempts=row.attempts,
            worker=row.worker,
            expires_at=from_micros(row.until) if row.until > row.now else None,
        )
        for row in core.read(spans.every, feed.id, cursor)
    ]
