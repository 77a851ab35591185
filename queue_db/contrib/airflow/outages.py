"""A database that does not answer is asked again: how long, and with which pauses."""

from __future__ import annotations

import logging
import time

from queue_db.errors import StorageError, TransientStorageError

#: Seconds for which a trigger bears a database that does not answer.
OUTAGE = 600.0

#: Seconds between two tries meanwhile, at most.
_LONGEST_PAUSE = 30.0

log = logging.getLogger("queue_db.airflow")


def passes(error: StorageError) -> bool:
    """Whether the database may answer later."""
    return error.server_away or isinstance(error, TransientStorageError)


class Outage:
    """How long the database has not answered, and the pause before the next try.

    :param what: who waits, for the log.
    :param poll: seconds between two looks at a database that answers.
    """

    def __init__(self, what: str, poll: float) -> None:
        self._what = what
        self._poll = poll
        self._pause = poll
        self._since: float | None = None

    def over(self) -> None:
        """The database has answered."""
        self._pause, self._since = self._poll, None

    def pause(self, error: StorageError) -> float:
        """Seconds to wait before the next try.

        :raises StorageError: ``error`` does not pass, or the database has not answered for :data:`OUTAGE` seconds.
        """
        now = time.monotonic()
        self._since = now if self._since is None else self._since
        if not passes(error) or now - self._since > OUTAGE:
            raise error
        log.warning("%s: the database does not answer, and is asked again: %s", self._what, error)
        self._pause = max(self._poll, min(2 * self._pause, _LONGEST_PAUSE))
        return self._pause
