"""The newest messages of a feed, read from its end back.

A feed is read forwards, and its numbers have gaps where consumers delete messages. So where its last messages are has to be looked
for: in ranges of numbers that grow while they are empty, and, in a range with more messages than one read, nearer to its end.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from queue_db.db import QueueDB
from queue_db.feeds import Message
from queue_db.feeds.message import FeedInfo
from queue_db.feeds.position import Position
from queue_db.service.api import paging

# Messages of one read, and reads of one page. After an empty range the next one is wider by this factor.
_AT_ONCE, _READS, _WIDER = 25, 40, 8


@dataclass(slots=True)
class Newest:
    """The last messages of a feed, newest first: no message is left out between them, or after them."""

    messages: list[Message] = field(default_factory=list)
    #: Numbers at the end of the feed that were looked at.
    numbers: int = 0


def newest(db: QueueDB, info: FeedInfo, limit: int) -> Newest:
    """The last messages of a feed: up to ``limit``, fewer where they are large or far apart."""
    low, end = Position.parse(info.start).seq, Position.parse(info.end)
    feed, found = db.feed(info.name), Newest()
    # All numbers above `high` were looked at. If `seen` is above `low`, there is a message with this number, not above `high`.
    high, seen, width = end.seq, low, _AT_ONCE
    for _ in range(_READS):
        most = min(_AT_ONCE, limit - len(found.messages))
        after = max(low, min(high - most, (seen + high) // 2 if seen > low else high - width))
        read = feed.read(str(end._replace(seq=after)), most, on_trimmed="skip").messages
        if len(read) == most and read[-1].seq < high:
            seen = read[-1].seq  # between it and `high` there may be more
            continue
        some = [one for one in read if one.seq <= high]
        large = _add(found.messages, some)
        found.numbers = end.seq - after
        if large or after <= low or len(found.messages) == limit:
            break
        width = _next(width, len(some), most)
        high, seen = after, seen if seen <= after else low
    return found


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
