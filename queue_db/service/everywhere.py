"""Requests that are not about one queue: they need the scope for the queue that they name, or for all."""

from __future__ import annotations

from queue_db.service.identity import Identity


def check(who: Identity, scope: str, queue: str | None) -> None:
    """Raise unless the token has this scope for the queue, or for every queue if None.

    :raises ForbiddenError: it has not.
    """
    if queue is not None:
        who.check(scope, queue)
    else:
        who.check_all(scope)
