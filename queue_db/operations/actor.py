"""Who asks for an operation, and what they may do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Self

from queue_db.tokens.tokens import SCOPES, Token


class ForbiddenError(Exception):
    """The actor may not do this."""


@dataclass(frozen=True, slots=True)
class Actor:
    """Who asks: the owner of a token, or the user of the command line."""

    name: str
    scopes: frozenset[str]
    #: Glob patterns of the queues, feeds and topics that the scopes are for.
    patterns: tuple[str, ...]
    #: Nothing can be changed here, whatever the token allows.
    read_only: bool = False
    #: When the token ends; None: never, or there is none.
    expires_at: datetime | None = None
    #: Where the request came from, for the log: the method, the path and the id of a request.
    source: str = field(default="", compare=False)
    #: The id of the request alone.
    request: str | None = field(default=None, compare=False)
    #: Asks them before the first change, with what will be changed; raises if they say no.
    confirm: Callable[[str], None] | None = field(default=None, compare=False, repr=False)

    @classmethod
    def of(cls, token: Token) -> Self:
        """The owner of this token."""
        return cls(token.name, frozenset(token.scopes), token.queues, expires_at=token.expires_at)

    def reading(self) -> Self:
        """The same one, who may only look."""
        return replace(self, scopes=self.scopes & {"read"}, read_only=True)

    def allows(self, scope: str, queue: str | None = None) -> bool:
        """Whether the token has this scope, for this queue, or for any if None."""
        return scope in self.scopes and (queue is None or any(fnmatchcase(queue, pattern) for pattern in self.patterns))

    def allows_all(self, scope: str) -> bool:
        """Whether the token has this scope for every queue: for what belongs to no single one."""
        return scope in self.scopes and "*" in self.patterns

    def check(self, scope: str, queue: str | None = None) -> None:
        """Raise unless :meth:`allows`.

        :raises ForbiddenError: with the scope.
        """
        if not self.allows(scope, queue):
            # Without its name: an id may have led here, and names of other queues are not to be seen.
            raise ForbiddenError(self._refusal(scope, "" if queue is None else " for this queue"))

    def check_all(self, scope: str) -> None:
        """Raise unless :meth:`allows_all`.

        :raises ForbiddenError: with the scope.
        """
        if not self.allows_all(scope):
            raise ForbiddenError(self._refusal(scope, " for all queues: name one queue of its patterns, or use a token for '*'"))

    def _refusal(self, scope: str, where: str) -> str:
        if self.read_only and scope != "read":
            return "this service is read-only"
        return f"this token lacks the scope {scope!r}{where}"


#: Everybody, where the service is open.
ANYBODY = Actor("anybody", frozenset(SCOPES), ("*",))
