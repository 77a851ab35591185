"""Numbering as a help: a reader numbers what waits, if it can, and reads what has a number all the same."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from queue_db.errors import StorageError, TransientStorageError
from queue_db.store.feeds.ticking import RestoredError

if TYPE_CHECKING:
    from queue_db.feeds.feed import Feed

log = logging.getLogger("queue_db.feeds")


def if_possible(feed: Feed, number: Callable[[], int]) -> int:
    """Call ``number``; 0 if the database refuses it, as for a role that may only read.

    If the server is away, the next statement shows it.

    :raises PermanentStorageError: the database was restored from a backup, and ``db.feeds.restored()`` was not called.
    """
    try:
        return number()
    except RestoredError:
        raise
    except StorageError as error:
        # Once is enough for what every read meets.
        level = logging.DEBUG if feed.refused or isinstance(error, TransientStorageError) else logging.WARNING
        feed.refused = feed.refused or level == logging.WARNING
        log.log(level, "feed %r: messages that wait are not numbered here, another process has to: %s", feed.name, error)
        return 0
