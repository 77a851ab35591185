"""Settings of feeds: those of a new one, and its ordering."""

from __future__ import annotations

import secrets
from typing import Any, Literal

from queue_db.core import Core
from queue_db.errors import FeedError
from queue_db.feeds.store.orderings import ORDERINGS, Ordering
from queue_db.feeds.store.rows import FeedRow

OnTrimmed = Literal["raise", "skip"]
"""What a reader does if messages after its position were trimmed."""

FeedOrdering = Literal["ranked", "counter"]
"""How the messages of a feed get their numbers."""

#: Retention of a feed whose settings were never set: a week.
KEEP_FOR = 7 * 86_400 * 1_000_000

#: Most messages that retention keeps for cursors that have not acknowledged them, unless it is set.
KEEP_UNREAD = 1_000_000


def defaults(core: Core) -> dict[str, Any]:
    """The settings of a new feed."""
    return {
        "ordering": "ranked" if core.store.dialect.served else "counter",
        "token": secrets.token_hex(4),
        "keep_for": KEEP_FOR,
        "keep_unread": KEEP_UNREAD,
    }


def ordering_of(row: FeedRow) -> Ordering:
    """The ordering of a feed.

    :raises FeedError: this version does not know it.
    """
    ordering = ORDERINGS.get(row.ordering)
    if ordering is None:
        raise FeedError(f"feed {row.name!r} has the ordering {row.ordering!r}, which this version does not know")
    return ordering
