"""Operations on API tokens. They are for those who manage all queues: a token is not of one."""

from __future__ import annotations

from dataclasses import dataclass

from queue_db.db import QueueDB
from queue_db.errors import ArgumentError
from queue_db.model import to_micros
from queue_db.operations.actor import Actor, ForbiddenError
from queue_db.operations.entry import entry
from queue_db.tokens.tokens import SCOPES

# Patterns in the detail of an entry.
_SHOWN = 20


@dataclass(frozen=True, slots=True)
class NewToken:
    """A token to make, as :meth:`db.tokens.create <queue_db.tokens.tokens.Tokens.create>` has it."""

    name: str
    scopes: tuple[str, ...]
    queues: tuple[str, ...] = ("*",)
    expires_in: float | None = None


def create(db: QueueDB, actor: Actor, token: NewToken) -> str:
    """Make a token and return its secret, which cannot be read again.

    It has no scope that its maker does not have, and ends no later than the token of its maker.

    :raises ArgumentError: ``expires_in`` is given and would end later.
    """
    actor.check_all("manage")
    for scope in token.scopes:
        if scope in SCOPES:
            actor.check_all(scope)
    lasts = _lasts(db, actor, token.expires_in)
    detail = {"scopes": list(token.scopes), "queues": list(token.queues[:_SHOWN]), "expires_in": lasts}
    with entry(db, actor, "create", f"token {token.name}", detail=detail, of="tokens.create"):
        # Its end is also compared where it is made, which may be a moment later.
        return db.tokens.create(token.name, token.scopes, queues=token.queues, expires_in=lasts, until=actor.expires_at)


def revoke(db: QueueDB, actor: Actor, name: str) -> bool:
    """Revoke a token: it is refused from now on, and its sessions end; False: there is none, or it was revoked before.

    Whoever manages all queues can revoke each token, also one with more scopes than their own.
    """
    actor.check_all("manage")
    with entry(db, actor, "revoke", f"token {name}", of="tokens.revoke"):
        return db.tokens.revoke(name)


def _lasts(db: QueueDB, actor: Actor, wanted: float | None) -> float | None:
    """The seconds that a new token lasts."""
    if actor.expires_at is None:
        return wanted
    left = (to_micros(actor.expires_at) - db.core.now()) // 1_000_000
    if left <= 0:
        raise ForbiddenError("this token ends now, and what it makes would end with it")
    if wanted is not None and wanted > left:
        said = f"must be at most {left}: the token of the request ends in {left} s, and none that it makes ends later"
        raise ArgumentError(f"expires_in {said}")
    return float(left) if wanted is None else wanted
