"""Commands that run until Ctrl-C: they wait until a database that is away is back, and go on."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import TypeVar

from queue_db.errors import StorageError, TransientStorageError
from queue_db.feeds import Feed
from queue_db.pauses import Pause
from queue_db.worker.outages import Activity

_T = TypeVar("_T")

# Seconds between two tries while the database is away: first, longest.
RETRY = (0.1, 5.0)


def lasting(what: str, run: Callable[[bool], Iterator[_T]], *, retry: bool = True) -> Iterator[_T]:
    """What ``run`` yields. When the database is away, this is logged once, and ``run`` is called again with True until it is back.

    :param what: it does, for the log.
    :param retry: False: such an error is raised.
    """
    activity, pause = Activity(), Pause(*RETRY)
    again = False
    while True:
        try:
            with closing(run(again)) as found:  # type: ignore[type-var]
                for one in found:
                    activity.worked()
                    pause.reset()
                    yield one
        except StorageError as error:
            if not retry or not (error.server_away or isinstance(error, TransientStorageError)):
                raise
            wait = pause.next()
            activity.failed(what, error, wait)
            time.sleep(wait)
            again = True
        else:
            return


def held_here(feed: Feed, cursor: str) -> bool:
    """Whether this process holds the cursor: its last hold could not be ended because the database was away."""
    return any(info.name == cursor and info.holder == feed.core.worker for info in feed.cursors())
