"""What feeds need of a database, with defaults that work on most."""

from __future__ import annotations

from collections.abc import Sequence

from queue_db.dialects.base import Companion
from queue_db.dialects.transactions import Sender
from queue_db.feeds.dialects import numbering
from queue_db.feeds.dialects.numbering import NumberedMove

# Messages moved in one statement.
_IDS = 500


class FeedDialect(Companion):
    """The move of messages from the inbox, where they get their numbers."""

    def move_numbered(self, tx: Sender, move: NumberedMove, *, feed: int, first: int, most: int, largest: int) -> int:
        """Move the first rows of a feed, in a transaction that has begun; return how many.

        :param first: the number of the first.
        :param most: rows.
        :param largest: of their payloads together, unless it is one row; in the unit in which the database measures a text.
        """
        found = tx.fetch(numbering.waiting(move.inbox), {"of_feed": feed, "most": most})
        # Ids, not the same condition twice: others may commit rows with lower ids between two statements.
        ids = numbering.first_few(found, largest)
        for start in range(0, len(ids), _IDS):
            self.move_ids(tx, move, ids[start : start + _IDS], first + start)
        return len(ids)

    def move_ids(self, tx: Sender, move: NumberedMove, ids: Sequence[int], first: int) -> None:
        """Move the rows with these ids, in their order, without a wait for other rows."""
        tx.execute(numbering.copy(move), {"of_ids": ids, "first": first})
        tx.execute(numbering.removal(move), {"of_ids": ids})
