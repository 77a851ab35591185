"""``db.tokens``: API tokens with their scopes and queues, and login sessions. Secrets are stored as SHA-256 only."""

from __future__ import annotations

from collections.abc import Iterable

from queue_db.concurrency.greenlets import run
from queue_db.tokens import SESSION_LASTS, LoginSession, Token, Tokens


class AsyncTokens:
    """The API tokens of one database, and the sessions of people who logged in with one."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens

    async def create(
        self, name: str, scopes: Iterable[str], *, queues: Iterable[str] = ("*",), expires_in: float | None = None
    ) -> str:
        """Make a token and return its secret, which is not stored and cannot be read again.

        :param name: the person or program that uses it; the action log shows it. Names are not used twice, also not after
            :meth:`revoke`.
        :param scopes: of ``read``, ``enqueue``, ``work`` and ``manage``.
        :param queues: glob patterns of the queues, feeds and topics that the scopes are for.
        :param expires_in: seconds; default: it does not expire.
        :raises ArgumentError: the name is taken, or an argument is outside its allowed range.
        """
        return await run(self._tokens.create, name, scopes, queues=queues, expires_in=expires_in)

    async def find(self, secret: str) -> Token | None:
        """The token with this secret; None if there is none, or it has expired or was revoked."""
        return await run(self._tokens.find, secret)

    async def list(self) -> list[Token]:
        """All tokens by name, also the expired and revoked ones."""
        return await run(self._tokens.list)

    async def revoke(self, name: str) -> bool:
        """Revoke a token: it is refused from now on, and its sessions end. False if there is none, or it was revoked before."""
        return await run(self._tokens.revoke, name)

    async def log_in(self, secret: str, *, lasts: float = SESSION_LASTS) -> str | None:
        """Begin a session with the secret of a token and return the session's own secret, for a cookie; None if :meth:`find` is.

        :param lasts: seconds until the session ends, if the token does not end before.
        """
        return await run(self._tokens.log_in, secret, lasts=lasts)

    async def session(self, key: str) -> LoginSession | None:
        """The session with this secret; None if there is none, it has ended, or its token has expired or was revoked."""
        return await run(self._tokens.session, key)

    async def log_out(self, key: str) -> bool:
        """End a session; False if there is none."""
        return await run(self._tokens.log_out, key)
