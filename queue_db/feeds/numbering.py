"""Numbering as a help: a reader numbers what waits, if it can, and reads what has a number all the same.

And the numbers of messages that had none when they were published.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from queue_db.concurrency.pauses import Pause
from queue_db.errors import StorageError, TransientStorageError
from queue_db.feeds.position import Unnumbered, belongs
from queue_db.feeds.store import messages, ranking
from queue_db.feeds.store.rows import FeedRow

if TYPE_CHECKING:
    from queue_db.feeds.feed import Feed

log = logging.getLogger("queue_db.feeds")

# Numbers that are looked at in one statement, and in all, for a message: it gets its number soon after it was published.
_AT_ONCE, _LOOKED_AT = 1000, 100_000

# How often, and after which seconds at first and at most, a message without a number is looked for while another process numbers.
_LOOKS, _FIRST, _LONGEST = 6, 0.02, 0.2


def if_possible(feed: Feed, number: Callable[[], int]) -> int:
    """Call ``number``; 0 if the database refuses it, as for a role that may only read.

    If the server is away, the next statement shows it.
    """
    try:
        return number()
    except StorageError as error:
        # Once is enough for what every read meets.
        level = logging.DEBUG if feed.refused or isinstance(error, TransientStorageError) else logging.WARNING
        feed.refused = feed.refused or level == logging.WARNING
        log.log(level, "feed %r: messages that wait are not numbered here, another process has to: %s", feed.name, error)
        return 0


def numbers(feed: Feed, row: FeedRow, ids: Sequence[Unnumbered]) -> dict[int, tuple[int, ...]]:
    """The numbers of messages that had none when they were published, by ``uid``; none for those that are gone.

    :raises PositionError: one of them is of another feed or database.
    :raises TransientStorageError: one of them has no number yet, and another process is numbering.
    """
    for one in ids:
        # Its publisher may not have heard of a new epoch; and no other message has this uid.
        belongs(one._replace(epoch=row.epoch), row)
    pause = Pause(_FIRST, _LONGEST)
    for look in range(_LOOKS):
        if look:
            feed.core.database.pause(pause.next())
        if_possible(feed, feed.rank)
        waiting = feed.core.read("feeds.last_waiting", ranking.last_waiting, row.id)
        row = feed.row(fresh=True)
        found = _found(feed, row, ids)
        if len(found) == len(ids) or waiting is None:
            return {uid: (seq,) for uid, seq in found.items()}
    raise TransientStorageError(f"feed {feed.name!r} numbers messages at the moment: one of these has no number yet, try again")


def _found(feed: Feed, row: FeedRow, ids: Sequence[Unnumbered]) -> dict[int, int]:
    found: dict[int, int] = {}
    missing = {one.uid: max(one.seq, row.first_seq) for one in ids}
    while missing:
        after = min(missing.values()) - 1
        high = min(after + _AT_ONCE, row.next_seq - 1)
        if high > after:
            found |= feed.core.read("feeds.numbers_by_uid", messages.numbers_by_uid, row, list(missing), after, high)
        lowest = {one.uid: one.seq for one in ids}
        missing = {
            uid: max(seq, high + 1)
            for uid, seq in missing.items()
            if uid not in found and high < row.next_seq - 1 and high < max(lowest[uid], row.first_seq) + _LOOKED_AT
        }
    return found
