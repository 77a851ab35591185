"""Rights to what belongs to no single queue: workers, the action log, tokens."""

from __future__ import annotations

from queue_db.operations.actor import Actor, ForbiddenError


def for_all(who: Actor, scope: str, *, required: bool = False) -> bool:
    """Whether somebody has a scope for all queues.

    :raises ForbiddenError: they have not, and it is ``required``.
    """
    has = who.allows(scope) and "*" in who.patterns
    if required and not has:
        raise ForbiddenError(f"this needs a token with the scope {scope!r} for all queues ('*')")
    return has
