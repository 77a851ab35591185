"""API tokens, for those who manage all queues. A secret is in no answer but the one that makes the token."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter
from pydantic import AfterValidator, BaseModel, Field

from queue_db.operations import tokens as operations
from queue_db.operations.tokens import NewToken
from queue_db.service.api import shapes
from queue_db.service.api.shapes import Seconds
from queue_db.service.http.paths import Name, visible
from queue_db.service.http.refusals import missing
from queue_db.service.http.requests import Db, Manager
from queue_db.service.http.times import Time
from queue_db.store.schema import TOPIC_LENGTH
from queue_db.tokens.tables import TOKEN_NAME_LENGTH
from queue_db.tokens.tokens import MOST_PATTERNS, SCOPES

router = APIRouter(tags=["tokens"])

_Pattern = Annotated[str, Field(min_length=1, max_length=TOPIC_LENGTH)]


class TokenView(shapes.View):
    """A token, without its secret."""

    name: str
    scopes: list[str]
    queues: list[str] = Field(description="Glob patterns of the queues, feeds and topics that the scopes are for.")
    active: bool = Field(description="Neither expired nor revoked.")
    created_at: Time
    expires_at: Time | None
    used_at: Time | None = Field(description="With up to a minute's delay.")
    revoked_at: Time | None


class TokenList(BaseModel):
    """The tokens by name, also the expired and revoked ones."""

    tokens: list[TokenView]


class TokenRequest(shapes.Request):
    """A token to make. It gets no scope that the token of the request does not have, and ends no later."""

    name: Annotated[
        str,
        Field(min_length=1, max_length=TOKEN_NAME_LENGTH, description="Who uses it; no name is used twice."),
        AfterValidator(visible),
    ]
    scopes: Annotated[list[str], Field(min_length=1, max_length=len(SCOPES), description=f"Of {', '.join(SCOPES)}.")]
    queues: list[_Pattern] = Field(
        ["*"], min_length=1, max_length=MOST_PATTERNS, description="Glob patterns of queues, feeds and topics."
    )
    expires_in: Annotated[Seconds, Field(gt=0)] | None = Field(
        None, description="Seconds. Null: it ends with the token of the request, or never."
    )


class TokenSecret(BaseModel):
    """A new token with its secret."""

    name: str
    secret: str = Field(description="It is not stored, and cannot be read again.")


@router.get("/tokens")
def list_tokens(db: Db, who: Manager) -> TokenList:
    """List the tokens."""
    who.check_all("manage")
    return TokenList(tokens=[TokenView.of(one) for one in db.tokens.list()])


@router.post("/tokens", status_code=201)
def create_token(token: TokenRequest, db: Db, who: Manager) -> TokenSecret:
    """Make a token. The response has its secret, this once.

    If the token of the request expires, the new one ends no later. 422: `expires_in` asks for a later end.
    """
    made = NewToken(token.name, tuple(token.scopes), tuple(token.queues), token.expires_in)
    return TokenSecret(name=token.name, secret=operations.create(db, who, made))


@router.delete("/tokens/{name}", status_code=204)
def revoke_token(name: Name, db: Db, who: Manager) -> None:
    """Revoke a token: it is refused from now on, and the sessions of people who logged in with it end.

    A token that manages all queues can revoke each other one, also one with more scopes.
    """
    if not operations.revoke(db, who, name):
        raise missing("token", f"no token {name!r} that is not revoked")
