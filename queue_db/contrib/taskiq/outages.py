"""A database that is away: one line in the log when that begins, one when it is over, and pauses between the tries."""

from __future__ import annotations

import logging
import threading

from queue_db import StorageError
from queue_db.backoff import exponential

log = logging.getLogger("queue_db.taskiq")

#: Try → seconds until the next one, with jitter.
pause = exponential(base=0.2, factor=2.0, max=15.0)


class Outage:
    """What the threads of one worker know together about their database."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_on = False

    def failed(self, what: str, error: BaseException, wait: float = 0.0) -> None:
        """A statement failed; it is tried again."""
        if not isinstance(error, StorageError):
            log.error("%s failed", what, exc_info=error)
            return
        with self._lock:
            was_on, self._is_on = self._is_on, True
        if not was_on:
            log.warning("the database does not answer, and is asked again until it does: %s", error)

    def worked(self) -> None:
        """A statement succeeded."""
        with self._lock:
            was_on, self._is_on = self._is_on, False
        if was_on:
            log.warning("the database answers again")
