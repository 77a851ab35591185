"""The cursors of feeds and the spans of shared ones, as users see them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from queue_db.core import Core
from queue_db.database.transaction import Run
from queue_db.errors import FeedError, NoSuchCursorError
from queue_db.feeds.message import CursorInfo, Message, SpanInfo
from queue_db.feeds.position import Position, not_ahead
from queue_db.feeds.store import cursors, span_claims, spans
from queue_db.feeds.store.rows import FeedRow
from queue_db.model import Verdict, from_micros
from queue_db.store import Transaction


def infos(core: Core, feeds: Sequence[int] | None, name: str | None = None) -> list[CursorInfo]:
    """The cursors of these feeds or of all, of one name or of all."""
    found, waiting = core.read("feeds.with_waiting", cursors.with_waiting, feeds, name)
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


def ack(core: Core, name: str, upto: Iterable[Message | str]) -> list[Verdict]:
    """Acknowledge messages of several feeds, all in one transaction."""
    positions = [Position.parse(one.position if isinstance(one, Message) else one) for one in upto]

    def change(tx: Transaction) -> list[Verdict]:
        found, feeds = cursors.named(tx, name)
        own = {row.feed for row in found if row.handed is None}
        current = {(row.token, row.epoch): row for row in feeds if row.id in own}
        highest: dict[int, int] = {}
        for one in positions:
            row = current.get((one.token, one.epoch))
            if row is not None:
                not_ahead(one, row)
                highest[row.id] = max(one.seq, highest.get(row.id, 0))
        if highest:
            cursors.move(tx, name, highest)
        return [Verdict.APPLIED if (one.token, one.epoch) in current else Verdict.LOST for one in positions]

    return core.run(Run("ack"), change) if positions else []


def spans_of(core: Core, feed: FeedRow, cursor: str) -> list[SpanInfo]:
    """The open spans of a shared cursor, by number.

    :raises FeedError: there is no such cursor, or it is not shared.
    """
    known = core.read("feeds.look", span_claims.look, feed, cursor)
    if known is None:
        raise NoSuchCursorError(f"feed {feed.name!r} has no cursor {cursor!r}")
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
        for row in core.read("feeds.open_spans", spans.open_spans, feed.id, cursor)
    ]
