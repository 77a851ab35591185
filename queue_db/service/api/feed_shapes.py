"""The shapes of feeds: messages, claims, cursors, and the feed that a URL names."""

from __future__ import annotations

import json
from typing import Annotated, Any

from fastapi import Header, Query
from pydantic import BaseModel, Field

from queue_db.db import QueueDB
from queue_db.errors import NoSuchFeedError, PayloadError
from queue_db.feeds import Feed, Message, MessageClaim
from queue_db.feeds.claims import MOST_CLAIMED
from queue_db.feeds.tables import CLIENT_LENGTH
from queue_db.operations.actor import Actor
from queue_db.service.api.shapes import LONGEST_LEASE, LONGEST_SECONDS, Request, Seconds, Shown, ShownObject, View
from queue_db.service.http.times import Time
from queue_db.store.schema import FEED_LENGTH, KEY_LENGTH, KIND_LENGTH

#: Most messages of one request.
MOST = 1000

#: Longest wait of a request, seconds.
LONGEST_WAIT = 60.0

Lease = Annotated[
    float, Query(gt=0, le=LONGEST_LEASE, allow_inf_nan=False, description="Seconds until others can claim or open it.")
]
Grace = Annotated[
    float,
    Query(
        ge=0,
        le=LONGEST_SECONDS,
        allow_inf_nan=False,
        description="Seconds after the end of the claim before which no message expires.",
    ),
]
Wait = Annotated[
    float, Query(ge=0, le=LONGEST_WAIT, allow_inf_nan=False, description="Seconds to wait for the first message (long poll).")
]
MessageLimit = Annotated[int, Query(ge=1, le=MOST, description="Most messages of the response.")]
ClaimLimit = Annotated[int, Query(ge=1, le=MOST_CLAIMED, description="Most messages of the claim.")]
PositionText = Annotated[str, Field(min_length=1, max_length=60, description="A position that the feed has returned.")]
Ids = Annotated[list[PositionText] | None, Query(max_length=MOST, description="Ids of messages; repeat it for several.")]
ClientId = Annotated[
    str | None,
    Header(alias="Client-ID", min_length=1, max_length=CLIENT_LENGTH, description="Who publishes or reads, for `echo=false`."),
]


IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=255,
        description="Names this request: when it is repeated with the same key and token within a day, nothing is published again, "
        "and the response is the same.",
    ),
]


class NewMessage(Request):
    """A message to publish."""

    kind: Annotated[str, Field(min_length=1, max_length=KIND_LENGTH, description="What it says, such as `paid`.")] = "message"
    payload: Any = None
    key: Annotated[str | None, Field(min_length=1, max_length=KEY_LENGTH, description="What it is about, such as `order-7`.")] = (
        None
    )
    headers: dict[str, Any] | None = None
    delay: Seconds | None = Field(None, description="Seconds before which it cannot be claimed; only in a feed with claims.")
    expires_in: Seconds | None = Field(None, description="Seconds after which it is deleted; only in a feed with claims.")

    def options(self) -> dict[str, Any]:
        """Those of ``publish_many``."""
        given = {name: getattr(self, name) for name in ("key", "headers", "delay", "expires_in")}
        return {name: value for name, value in given.items() if value is not None}


class NewMessages(Request):
    """Messages to publish, all or none, in their order."""

    messages: Annotated[list[NewMessage], Field(min_length=1, max_length=MOST)]


class MessageView(View):
    """A message. It never changes."""

    id: str = Field(description="Names the message, and is the position after it.")
    kind: str
    payload: Shown = Field(description="Values that are nested more than 100 deep are shown as `…`.")
    key: str | None
    client: str | None
    headers: ShownObject
    published_at: Time


class ClaimedMessage(MessageView):
    """A message that is claimed."""

    attempts: int = Field(description="How often it was claimed.")


class MessagesPage(BaseModel):
    """Some messages of a feed, in their order."""

    messages: list[MessageView]
    after: str | None = Field(description="The next page begins after this position. Null: messages were asked for by their ids.")
    behind: int = Field(description="Messages after the page.")
    skipped: int = Field(description="Messages that were trimmed before they were read (`on_trimmed=skip`).")


class MessageClaimView(BaseModel):
    """Messages that nobody else can claim until the claim ends."""

    id: str = Field(description="Who has it can extend and release the claim, and delete its messages.")
    expires_at: Time
    messages: list[ClaimedMessage]


def feed_of(db: QueueDB, name: str) -> Feed:
    """The feed with this name, which is there.

    :raises NoSuchFeedError: there is none.
    """
    found = None if len(name) > FEED_LENGTH else db.feed(name)
    if found is None or found.existing() is None:
        raise NoSuchFeedError(f"there is no feed {name!r}")
    return found


def keyed(who: Actor, key: str | None) -> str | None:
    """The idempotency key of a request: those of other tokens are others."""
    return None if key is None else json.dumps([who.name, key], ensure_ascii=False)


def message_view(message: Message) -> MessageView:
    """A message for a response."""
    return MessageView.of(_fields(message))


def claim_view(claim: MessageClaim) -> MessageClaimView:
    """A claim for a response."""
    pairs = zip(claim.messages, claim.attempts, strict=True)
    messages = [ClaimedMessage.of({**_fields(message), "attempts": attempts}) for message, attempts in pairs]
    return MessageClaimView(id=claim.id, expires_at=claim.expires_at, messages=messages)


def _fields(message: Message) -> dict[str, Any]:
    """Whatever is stored, every reader gets an answer: a message that was popped or claimed for it must not be lost."""
    same = {name: getattr(message, name) for name in ("kind", "key", "client", "headers", "published_at")}
    try:
        return {**same, "id": message.position, "payload": message.payload}
    except PayloadError:
        return {**same, "id": message.position, "payload": message.payload_text}
