"""Who asks, and what they may do."""

from __future__ import annotations

import hashlib
import math
import threading
import time
from typing import NamedTuple

from queue_db.operations.actor import Actor
from queue_db.service.live.kept import Clock
from queue_db.tokens.tokens import Tokens

#: Seconds for which a found token is remembered, and most tokens that are.
REMEMBERED_FOR = 1.0
MOST_REMEMBERED = 10_000

#: Seconds for which a found token may scrape the metrics of this process while the database is away.
SCRAPES_FOR = 3600.0


class UnauthorizedError(Exception):
    """No token, or one that is unknown, expired or revoked."""


class _Found(NamedTuple):
    """A token that the database had."""

    who: Actor
    #: By the monotonic clock.
    at: float
    #: Seconds from then until it expires.
    lasts: float
    #: Of the tokens, when it was looked for.
    revocations: int


class FoundTokens:
    """The owners of tokens that were found a moment ago, by the hash of the secret. Safe to share between threads.

    A revocation by the same :class:`~queue_db.tokens.tokens.Tokens` counts at once, one by another process within
    :data:`REMEMBERED_FOR`.
    """

    def __init__(self, tokens: Tokens, clock: Clock) -> None:
        self._tokens = tokens
        self._clock = clock
        self._lock = threading.Lock()
        self._found: dict[bytes, _Found] = {}

    def __len__(self) -> int:
        return len(self._found)

    def recall(self, secret: str, within: float | None = None) -> Actor | None:
        """The owner, if the token was found ``within`` so many seconds (None: a moment); None: :meth:`find` reads the database."""
        found = self._found.get(_key(secret))
        if (
            found is None
            or found.revocations != self._tokens.revocations
            or time.monotonic() - found.at >= min(REMEMBERED_FOR if within is None else within, found.lasts)
        ):
            return None
        return found.who

    def find(self, secret: str) -> Actor | None:
        """The owner of the token with this secret, as the database has it; None: there is none, it has expired or was revoked."""
        # Both before the read: it may not see a revocation that comes meanwhile.
        at, revocations = time.monotonic(), self._tokens.revocations
        token = self._tokens.find(secret)
        if token is None:
            return None
        who = Actor.of(token)
        lasts = math.inf if token.expires_at is None else (token.expires_at - self._clock.now()).total_seconds()
        with self._lock:
            if len(self._found) >= MOST_REMEMBERED:
                self._found.clear()
            self._found[_key(secret)] = _Found(who, at, lasts, revocations)
        return who


def _key(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()
