"""How messages get their numbers: one object for each ordering, by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from queue_db.feeds.store import messages, ranking
from queue_db.feeds.store.messages import First, NewMessage
from queue_db.feeds.store.rows import FeedRow
from queue_db.store.base import Transaction


class Ordering(Protocol):
    """One way to give numbers. What a reader relies on: a number is visible only after all lower ones of its feed are."""

    name: str

    #: Whether messages may wait without a number, for :meth:`rank`.
    ranks: bool

    #: Whether publishes that come at the same time from one process go together.
    coalesces: bool

    def append(self, tx: Transaction, feed: FeedRow, messages: Sequence[NewMessage]) -> First | None:
        """Add messages; return the number of the first, None where it has none yet.

        :raises LookupError: the feed was deleted.
        """
        ...

    def rank(self, tx: Transaction, feed: int) -> int:
        """Number some messages that have no number; return how many.

        The transaction may not have begun: call ``tx.begin()`` before several statements that belong together.
        """
        ...


class Counter:
    """A publisher takes the numbers itself: publishers of one feed wait for each other's commit."""

    name = "counter"
    ranks = False
    coalesces = True

    def append(self, tx: Transaction, feed: FeedRow, new: Sequence[NewMessage]) -> First | None:
        return messages.append(tx, feed.id, new)

    def rank(self, tx: Transaction, feed: int) -> int:
        return 0


class Ranked:
    """Publishers insert into an inbox and wait for nobody; the next ranker gives the numbers."""

    name = "ranked"
    ranks = True
    coalesces = True

    def append(self, tx: Transaction, feed: FeedRow, new: Sequence[NewMessage]) -> First | None:
        ranking.append(tx, feed, new)
        return None

    def rank(self, tx: Transaction, feed: int) -> int:
        return ranking.rank(tx, feed)


#: Ordering by name. A test adds its negative controls.
ORDERINGS: dict[str, Ordering] = {ordering.name: ordering for ordering in (Counter(), Ranked())}
