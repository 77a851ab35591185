"""Operations on API tokens. They are for those who manage all queues: a token is not of one."""

from __future__ import annotations

from dataclasses import dataclass

from queue_db.db import QueueDB
from queue_db.operations.actor import Actor
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
    """Make a token, with no scope that its maker does not have, and return its secret, which cannot be read again."""
    actor.check_all("manage")
    for scope in token.scopes:
        if scope in SCOPES:
            actor.check_all(scope)
    detail = {"scopes": list(token.scopes), "queues": list(token.queues[:_SHOWN]), "expires_in": token.expires_in}
    with entry(db, actor, "create", f"token {token.name}", detail=detail, of="tokens.create"):
        return db.tokens.create(token.name, token.scopes, queues=token.queues, expires_in=token.expires_in)


def revoke(db: QueueDB, actor: Actor, name: str) -> bool:
    """Revoke a token: it is refused from now on, and its sessions end; False: there is none, or it was revoked before."""
    actor.check_all("manage")
    with entry(db, actor, "revoke", f"token {name}", of="tokens.revoke"):
        return db.tokens.revoke(name)
