"""Feeds: ordered, durable messages for any number of readers. ``db.feed(name)`` is one feed, ``db.feeds`` all of them."""

from queue_db.feeds.claims import MessageClaim
from queue_db.feeds.cursor import Cursor
from queue_db.feeds.feed import Feed
from queue_db.feeds.message import ClaimInfo, CursorInfo, FeedInfo, FeedStats, Message, Page, SpanInfo
from queue_db.feeds.registry import Feeds
from queue_db.feeds.shared import SharedCursor, Span

__all__ = [
    "ClaimInfo",
    "Cursor",
    "CursorInfo",
    "Feed",
    "FeedInfo",
    "FeedStats",
    "Feeds",
    "Message",
    "MessageClaim",
    "Page",
    "SharedCursor",
    "Span",
    "SpanInfo",
]
