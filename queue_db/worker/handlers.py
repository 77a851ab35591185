"""What a worker calls: one function for every job, or one for each kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol, runtime_checkable

from queue_db.errors import ArgumentError, UnknownKindError
from queue_db.leased import LeasedJob
from queue_db.outcomes import Outcome

#: Gets the job and returns nothing (done), Snooze, Retry, Cancel or Dead; an exception fails the attempt.
Handler = Callable[[LeasedJob], Outcome]


@runtime_checkable
class Stoppable(Protocol):
    """A handler that can end its running calls: it is told before their jobs are given back."""

    def stop(self) -> None:
        """End what is running; its results no longer count."""
        ...


def one_handler(handler: Handler | Mapping[str, Handler]) -> Handler:
    """The handler itself, or a function that picks the one of the job's kind.

    :raises ArgumentError: for what cannot be called.
    """
    if not isinstance(handler, Mapping):
        if not callable(handler):
            raise ArgumentError(f"handler={handler!r}: must be a function of one job, or a mapping from kind to such functions")
        return handler
    by_kind = dict(handler)
    for kind, one in by_kind.items():
        if not callable(one):
            raise ArgumentError(f"the handler of kind {kind!r} is {one!r}: must be a function of one job")

    def pick(job: LeasedJob) -> Outcome:
        try:
            chosen = by_kind[job.kind]
        except KeyError:
            raise UnknownKindError(job.kind, list(by_kind)) from None
        return chosen(job)

    return pick
