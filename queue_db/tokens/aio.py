# Generated from queue_db/tokens/tokens.py. Do not change it: `make aio` writes it anew.
"""Tokens for asyncio."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from queue_db.aio.bases import Twin
from queue_db.concurrency.greenlets import run
from queue_db.tokens.tokens import SESSION_LASTS, LoginSession, Token, Tokens


class AsyncTokens(Twin[Tokens]):
    """The API tokens of one database, and the sessions of people who logged in with one."""

    async def create(
        self,
        name: str,
        scopes: Iterable[str],
        *,
        queues: Iterable[str] = ("*",),
        expires_in: float | None = None,
        until: datetime | None = None,
    ) -> str:
        """Make a token and return its secret, which is not stored and cannot be read again.

        :param name: the person or program that uses it; the action log shows it. Names are not used twice, also not after
            :meth:`revoke`.
        :param scopes: of ``read``, ``enqueue``, ``work`` and ``manage``.
        :param queues: glob patterns of the queues, feeds and topics that the scopes are for.
        :param expires_in: seconds; default: it does not expire.
        :param until: it expires at this time at the latest.
        :raises ArgumentError: the name is taken, or an argument is outside its allowed range.
        """
        return await run(self._sync.create, name, scopes, queues=queues, expires_in=expires_in, until=until)

    async def find(self, secret: str) -> Token | None:
        """The token with this secret; None if there is none, or it has expired or was revoked."""
        return await run(self._sync.find, secret)

    async def list(self) -> list[Token]:
        """All tokens by name, also the expired and revoked ones."""
        return await run(self._sync.list)

    async def revoke(self, name: str) -> bool:
        """Revoke a token: it is refused from now on, and its sessions end. False if there is none, or it was revoked before."""
        return await run(self._sync.revoke, name)

    async def log_in(self, secret: str, *, lasts: float = SESSION_LASTS) -> str | None:
        """Begin a session with the secret of a token and return the session's own secret, for a cookie; None if :meth:`find` is.

        :param lasts: seconds until the session ends, if the token does not end before.
        """
        return await run(self._sync.log_in, secret, lasts=lasts)

    async def session(self, key: str) -> LoginSession | None:
        """The session with this secret; None if there is none, it has ended, or its token has expired or was revoked."""
        return await run(self._sync.session, key)

    async def log_out(self, key: str) -> bool:
        """End a session; False if there is none."""
        return await run(self._sync.log_out, key)
