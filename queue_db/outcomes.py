"""What a handler may return. If it returns nothing, the job is completed; if it raises, the attempt has failed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from queue_db import arguments
from queue_db.errors import HandlerResultError


@dataclass(frozen=True, slots=True)
class Snooze:
    """Make the job due again after ``seconds``; this does not count as an attempt."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Retry:
    """Count this attempt as failed and try again, after ``seconds`` or after the usual backoff."""

    reason: str = "the handler asked for a retry"
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Cancel:
    """The work is no longer wanted: take the job out of the queue."""

    reason: str = ""


@dataclass(frozen=True, slots=True)
class Dead:
    """Send the job to the dead table: a retry would not help."""

    reason: str = "the handler gave the job up"


class Suspended(BaseException):
    """Ends the run of a handler whose job sleeps, waits for a signal or was interrupted: its lease has ended already.

    A worker understands it. A loop of your own over ``queue.claim()`` catches it and goes on with the next job.

    :ivar job_id: the id of the job.
    """

    def __init__(self, job_id: int, why: str) -> None:
        super().__init__(f"job {job_id} {why}: it runs again, and goes on from its steps")
        self.job_id = job_id


Outcome = Snooze | Retry | Cancel | Dead | None

_OUTCOMES = (Snooze, Retry, Cancel, Dead)

# The types of most results, which need no further check.
_DATA = frozenset((type(None), Snooze, Retry, Cancel, Dead, dict, list, str, int, float, bool))


def checked(returned: Any) -> Any:
    """Return ``returned``, if it can be the outcome of a job.

    :raises HandlerResultError: ``returned`` is a coroutine, a generator, a function, a class of an outcome, or an exception.
    """
    if type(returned) in _DATA:
        return returned
    if isinstance(returned, BaseException):
        raise HandlerResultError(f"the handler returned {arguments.shown(returned)}: raise it") from returned
    if isinstance(returned, type) and issubclass(returned, (*_OUTCOMES, BaseException)):
        name = returned.__name__
        fix = f"raise {name}(…)" if issubclass(returned, BaseException) else f"return {name}(…), with brackets"
        raise HandlerResultError(f"the handler returned the class {name}: {fix}")
    arguments.done("the handler", returned)
    return returned
