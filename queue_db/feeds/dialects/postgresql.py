"""PostgreSQL for feeds: one statement moves and numbers the messages."""

from __future__ import annotations

from typing import ClassVar

from queue_db.dialects.transactions import Sender
from queue_db.feeds.dialects import numbering
from queue_db.feeds.dialects.base import FeedDialect
from queue_db.feeds.dialects.numbering import NumberedMove


class PostgreSQLForFeeds(FeedDialect):
    """Changes rows in a WITH clause."""

    names: ClassVar[tuple[str, ...]] = ("postgresql",)

    def move_numbered(self, tx: Sender, move: NumberedMove, *, feed: int, first: int, most: int, largest: int) -> int:
        values = {"of_feed": feed, "first": first, "most": most, "largest": largest}
        ((moved,),) = tx.fetch(numbering.in_one_statement(move), values)
        return int(moved)
