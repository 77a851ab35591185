"""Exit statuses, for scripts."""

from __future__ import annotations

from queue_db.errors import (
    DuplicateJobError,
    JobNotFoundError,
    LeaseLostError,
    QueueDBError,
    StorageError,
    StreamError,
)

OK = 0
NOT_SO = 1
USAGE = 2
DATABASE = 3
BUG = 70
STUCK = 75
INTERRUPTED = 130

#: Status → meaning; the table of the documentation.
MEANINGS = {
    OK: "done",
    NOT_SO: "the thing asked is not so: no such job or stream, a duplicate, an unhealthy `doctor` (with --strict also a slow one), "
    "a schema out of date for `migrate --check`, no worker for `alive`, no for an answer",
    USAGE: "wrong usage or configuration: an argument, the URL, a driver or a table that is missing; nothing was changed",
    DATABASE: "the database: not reachable, wrong password, a statement refused",
    BUG: "a mistake in queue-db; the traceback is on standard error, please report it",
    STUCK: "`work --exit-when-stuck`: handlers hang and keep their slots; start it again",
    INTERRUPTED: "Ctrl-C",
}


def status_of(error: QueueDBError) -> int:
    """The exit status for an error of the library."""
    if isinstance(error, DuplicateJobError | JobNotFoundError | LeaseLostError | StreamError):
        return NOT_SO
    return DATABASE if isinstance(error, StorageError) else USAGE
