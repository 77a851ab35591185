"""Exit statuses, for scripts."""

from __future__ import annotations

from queue_db.errors import (
    DuplicateJobError,
    FeedError,
    GraphNotFoundError,
    JobNotFoundError,
    JobStateError,
    LeaseLostError,
    QueueDBError,
    RouteError,
    StorageError,
    StreamError,
)

OK = 0
NEGATIVE = 1
USAGE = 2
DATABASE = 3
BUG = 70
STUCK = 75
INTERRUPTED = 130

#: Status → meaning, for ``--help`` and the reference (document.py).
MEANINGS = {
    OK: "success",
    NEGATIVE: "the condition is false or the item does not exist: no such job, batch, graph, stream, feed, cursor, route, "
    "schedule or token, a duplicate unique key, an unhealthy `doctor` (with --strict also a slow one), "
    "an outdated schema for `migrate --check`, too few workers for `workers alive`, a confirmation answered with no",
    USAGE: "wrong usage or configuration: an invalid argument or URL, a missing driver or table; nothing was changed",
    DATABASE: "database error: the server does not answer, or refuses the login or a statement",
    BUG: "a bug in queue-db; the traceback is on standard error, please report it",
    STUCK: "start the worker again: `work --exit-when-stuck`: handlers that do not return occupy their slots; `--max-jobs`, "
    "`--max-memory`: so much is used up",
    INTERRUPTED: "interrupted with Ctrl-C",
}


class NegativeError(QueueDBError):
    """The condition is false or the item does not exist, and no error of the library says so."""

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code


# Errors that say that the condition is false, or that the item does not exist.
_NEGATIVE = (
    *(NegativeError, DuplicateJobError, GraphNotFoundError, JobNotFoundError, JobStateError, LeaseLostError),
    *(StreamError, FeedError, RouteError),
)


def status_of(error: QueueDBError) -> int:
    """Return the exit status for an error of the library."""
    if type(error) is FeedError:
        return USAGE  # settings that a feed cannot have; what is missing, held or taken has a class of its own
    if isinstance(error, _NEGATIVE):
        return NEGATIVE
    return DATABASE if isinstance(error, StorageError) else USAGE
