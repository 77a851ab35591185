"""Retention: trims of feeds, as publishers, ``feed.trim()`` and workers make them."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from queue_db.core import ONCE, Core
from queue_db.database.transaction import Run
from queue_db.db import QueueDB
from queue_db.errors import StorageError
from queue_db.feeds.store import messages, rows
from queue_db.feeds.store.orderings import ORDERINGS
from queue_db.feeds.store.ranking import RANKED_AT_ONCE
from queue_db.feeds.store.rows import FeedRow
from queue_db.model import Capability
from queue_db.slices import AGAIN, Task

if TYPE_CHECKING:
    from queue_db.worker.options import Options

log = logging.getLogger("queue_db.feeds")

#: Seconds between two trims by a worker.
TRIM_EVERY = 60.0

#: One try: another process ranks or trims next. A look at the inbox comes before a transaction begins.
RANK = Run("rank", attempts=1, lazy=True)


def trim_once(core: Core, row: FeedRow, how: Run = ONCE, *, skip: bool = False) -> int:
    """Delete the oldest messages of a feed that its retention does not keep, a bounded number; return how many.

    :param skip: none if another transaction has locked the feed.
    """
    gone = core.run(how.named("feeds.trim"), messages.trim, row, skip=skip)
    if gone:
        counters = core.database.counters
        with core.database.counting:
            counters.trimmed += gone
    return gone


def trim_all(core: Core) -> tuple[dict[str, int], bool]:
    """In each feed number what waits and trim, a bounded number of messages of each.

    Without it nothing would trim a feed whose publishers all publish within transactions of their own, and which is not read.

    :return: how many messages of each feed were deleted, without those that have none, and whether there are more.
    """
    trimmed: dict[str, int] = {}
    more = False
    skip = Capability.SKIP_LOCKED in core.store.capabilities
    for row in core.read("feeds.by_name", rows.by_name):
        ordering = ORDERINGS.get(row.ordering)
        if ordering is None:
            continue  # of a later version
        try:
            ranked = core.run(RANK, ordering.rank, row.id) if ordering.ranks else 0
            gone = trim_once(core, row, skip=skip)
        except StorageError as error:
            if error.server_away:
                raise
            log.warning("feed %r is not trimmed now: %s", row.name, error)
            continue
        if gone:
            trimmed[row.name] = gone
        more = more or gone >= messages.at_once(row) or ranked == RANKED_AT_ONCE
    return trimmed, more


def tasks(db: QueueDB, _: Options) -> list[Task]:
    """What a worker does for feeds."""

    def trim() -> float | None:
        trimmed, more = trim_all(db.core)
        for name, gone in trimmed.items():
            logging.getLogger("queue_db.worker").info("trimmed %d messages of feed %r", gone, name)
        return AGAIN if more else None

    return [Task("trimming feeds", TRIM_EVERY, trim)]
