"""``db.tokens``: API tokens with their scopes and queues, and login sessions. Secrets are stored as SHA-256 only."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from queue_db import arguments
from queue_db.core import ONCE, Core
from queue_db.database.transaction import Run
from queue_db.errors import ArgumentError, StorageError
from queue_db.model import from_micros
from queue_db.store.schema import TOPIC_LENGTH
from queue_db.tokens import store as stored
from queue_db.tokens.tables import TOKEN_NAME_LENGTH

#: read: look at everything; enqueue: add jobs and publish messages; work: claim and settle; manage: everything else.
SCOPES = ("read", "enqueue", "work", "manage")

#: How each secret begins, so that programs that search for secrets find it.
PREFIX = "qdb_"

#: ``used_at`` is written at most once in this many seconds.
USED_EVERY = 60.0

#: A session ends after this many seconds.
SESSION_LASTS = 12 * 3600.0

#: Most patterns of queues of one token.
MOST_PATTERNS = 100

# Random bytes of a secret.
_RANDOM = 32

# Longest text that can be a secret, characters.
_LONGEST = 200


# A person waits for it.
_FEW = Run(attempts=3)


@dataclass(frozen=True, slots=True)
class Token:
    """An API token at the time of the call, without its secret."""

    name: str
    scopes: tuple[str, ...]  #: read, enqueue, work, manage
    queues: tuple[str, ...]  #: glob patterns of the queues, feeds and topics that the scopes are for
    created_at: datetime
    expires_at: datetime | None
    used_at: datetime | None  #: with up to a minute's delay
    revoked_at: datetime | None
    active: bool  #: neither expired nor revoked


@dataclass(frozen=True, slots=True)
class LoginSession:
    """The session of a person who logged in with a token."""

    token: Token
    csrf: str  #: what each form of the session carries
    expires_at: datetime


class Tokens:
    """The API tokens of one database, and the sessions of people who logged in with one."""

    def __init__(self, core: Core) -> None:
        self._core = core
        # By name: when the last use was to be written. Where the database takes no writes, not each use is a try.
        self._noted: dict[str, int] = {}
        #: How many tokens were revoked, and sessions ended, by this object: what was found before the last one may be wrong now.
        self.revocations = 0

    def create(
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
        arguments.name("name", name, TOKEN_NAME_LENGTH)
        given = arguments.members("scopes", scopes, "scopes")
        patterns = [arguments.name("queues", item, TOPIC_LENGTH) for item in arguments.members("queues", queues, "patterns")]
        unknown = [item for item in given if item not in SCOPES]
        if unknown or not given:
            what = f"there is no scope {arguments.shown(unknown[0])}" if unknown else "no scopes"
            raise ArgumentError(f"{what}: give one or more of {', '.join(SCOPES)}")
        if not 1 <= len(patterns) <= MOST_PATTERNS:
            raise ArgumentError(f"queues has {len(patterns)} patterns: give 1 to {MOST_PATTERNS}")
        lasts = None if expires_in is None else arguments.seconds("expires_in", expires_in, zero=False)
        ends = arguments.moment("until", until)
        secret = PREFIX + secrets.token_urlsafe(_RANDOM)
        values = {
            "name": name,
            "sha256": _sha256(secret),
            "scopes": " ".join(item for item in SCOPES if item in given),
            "queues": json.dumps(patterns),
        }
        if not self._core.run(Run("tokens.create", upserts=True), stored.create, values, lasts, ends):
            raise ArgumentError(f"there is a token {name!r}, active or revoked: choose another name")
        return secret

    def find(self, secret: str) -> Token | None:
        """The token with this secret; None if there is none, or it has expired or was revoked."""
        sha256 = _sha256_of(secret)
        row = None if sha256 is None else self._core.read("tokens.find_token", stored.find_token, sha256)
        if row is None or sha256 is None or not secrets.compare_digest(row.sha256, sha256):
            return None
        return self._in_use(row)

    def list(self) -> list[Token]:
        """All tokens by name, also the expired and revoked ones."""
        return [_token(row) for row in self._core.read("tokens.all_tokens", stored.all_tokens)]

    def revoke(self, name: str) -> bool:
        """Revoke a token: it is refused from now on, and its sessions end. False if there is none, or it was revoked before."""
        arguments.name("name", name, TOKEN_NAME_LENGTH)
        try:
            return self._core.write("tokens.revoke", stored.revoke, name)
        finally:
            self.revocations += 1

    # --- sessions ---------------------------------------------------------------------------------------------------

    def log_in(self, secret: str, *, lasts: float = SESSION_LASTS) -> str | None:
        """Begin a session with the secret of a token and return the session's own secret, for a cookie; None if :meth:`find` is.

        :param lasts: seconds until the session ends, if the token does not end before.
        """
        span = arguments.seconds("lasts", lasts, zero=False)
        token = self.find(secret)
        if token is None:
            return None
        key, csrf = secrets.token_urlsafe(_RANDOM), secrets.token_urlsafe(_RANDOM)
        self._core.run(_FEW.named("tokens.log_in"), stored.log_in, _sha256(key), token.name, csrf, span)
        return key

    def session(self, key: str) -> LoginSession | None:
        """The session with this secret; None if there is none, it has ended, or its token has expired or was revoked."""
        sha256 = _sha256_of(key)
        row = None if sha256 is None else self._core.read("tokens.session", stored.session, sha256)
        if row is None or sha256 is None or not secrets.compare_digest(row.session_sha256, sha256):
            return None
        token = None if row.session_expires_at <= row.now else self._in_use(row)
        return None if token is None else LoginSession(token, row.csrf, from_micros(row.session_expires_at))

    def log_out(self, key: str) -> bool:
        """End a session; False if there is none."""
        sha256 = _sha256_of(key)
        try:
            return sha256 is not None and self._core.write("tokens.log_out", stored.log_out, sha256)
        finally:
            self.revocations += 1

    def _in_use(self, row: Any) -> Token | None:
        """The token of a row, which is used now; None if it is not active."""
        token = _token(row)
        if not token.active:
            return None
        interval = int(USED_EVERY * 1_000_000)
        last = max(row.used_at or 0, self._noted.get(token.name, 0))
        if last <= row.now - interval:
            self._noted[token.name] = row.now
            # The token is valid although the database takes no writes.
            with suppress(StorageError):
                self._core.run(ONCE.named("tokens.use"), stored.use, token.name, interval)
        return token


def _token(row: Any) -> Token:
    return Token(
        name=row.name,
        scopes=tuple(row.scopes.split()),
        queues=tuple(json.loads(row.queues)),
        created_at=from_micros(row.created_at),
        expires_at=_time(row.expires_at),
        used_at=_time(row.used_at),
        revoked_at=_time(row.revoked_at),
        active=row.revoked_at is None and (row.expires_at is None or row.expires_at > row.now),
    )


def _time(micros: int | None) -> datetime | None:
    return None if micros is None else from_micros(micros)


def _sha256(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _sha256_of(secret: object) -> str | None:
    """The hash of a secret that a client has sent; None if it cannot be a secret."""
    return _sha256(secret) if isinstance(secret, str) and secret.isascii() and 0 < len(secret) <= _LONGEST else None
