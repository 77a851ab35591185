"""Which feed has its messages where, by its ordering."""

from __future__ import annotations

from queue_db.store.feeds.numbered import Numbers, Stored
from queue_db.store.feeds.ticked import Ticked

STORED: Numbers = Stored()

# By ordering; all others store the numbers.
_OTHERS: dict[str, Numbers] = {"ticks": Ticked()}


def numbers_of(ordering: str) -> Numbers:
    """Where a feed with this ordering has its messages."""
    return _OTHERS.get(ordering, STORED)
