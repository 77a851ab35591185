"""Who asks, and what they may do."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase

from queue_db.tokens import SCOPES


class ForbiddenError(Exception):
    """The token does not allow this."""


@dataclass(frozen=True, slots=True)
class Identity:
    """The owner of a token."""

    name: str
    scopes: frozenset[str]
    #: Glob patterns of the queues, feeds and topics that the scopes are for.
    patterns: tuple[str, ...]

    def allows(self, scope: str, queue: str | None = None) -> bool:
        """Whether the token has this scope, for this queue, or for any if None."""
        return scope in self.scopes and (queue is None or any(fnmatchcase(queue, pattern) for pattern in self.patterns))

    def check(self, scope: str, queue: str | None = None) -> None:
        """Raise unless :meth:`allows`.

        :raises ForbiddenError: with the scope and the queue.
        """
        if not self.allows(scope, queue):
            raise ForbiddenError(f"this token lacks the scope {scope!r}" + (f" for {queue!r}" if queue is not None else ""))


#: Everybody, where the service is open.
ANYBODY = Identity("anybody", frozenset(SCOPES), ("*",))
