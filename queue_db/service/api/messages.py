"""Messages of feeds, as Zaqar's: publish, read on from a position, get and delete by id, pop.

A feed that does not exist is created by its first message, without claims; ``PUT /feeds/{feed}`` makes one with claims.
"""

from __future__ import annotations

import time
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, Field
from starlette.concurrency import run_in_threadpool

from queue_db.feeds import Feed, Message
from queue_db.feeds.claims import MOST_CLAIMED
from queue_db.service.api import feed_shapes as shapes
from queue_db.service.api.feed_shapes import MessagesPage, MessageView, feed_of, message_view
from queue_db.service.http.paths import Name, NewName
from queue_db.service.http.refusals import invalid, missing
from queue_db.service.http.requests import Db, Enqueuer, Reader, Standing, WorkerClient
from queue_db.service.live.arrivals import arrivals_of

router = APIRouter(tags=["feeds"])

Claim = Annotated[str | None, Query(min_length=1, max_length=36, description="The claim that has the messages.")]


class PublishedMessages(BaseModel):
    """The ids of the messages that were published."""

    ids: list[str] = Field(
        description="In the order of the request. One with four parts is of a message that gets its number right after this: "
        "it names the message, and is no position."
    )


class DeletedMessages(BaseModel):
    """What was deleted."""

    deleted: int
    messages: list[MessageView] = Field(default=[], description="With `pop`: the messages.")


@router.post("/feeds/{feed}/messages", status_code=201)
def publish_messages(
    feed: NewName,
    messages: shapes.NewMessages,
    db: Db,
    who: Enqueuer,
    client_id: shapes.ClientId = None,
    idempotency_key: shapes.IdempotencyKey = None,
) -> PublishedMessages:
    """Publish messages, all or none, in their order.

    With an `Idempotency-Key` the request can be repeated safely when its response did not arrive.
    """
    who.check("enqueue", feed)
    listed = [(one.kind, one.payload, one.options()) for one in messages.messages]
    key = shapes.keyed(who, idempotency_key)
    return PublishedMessages(ids=db.feed(feed).publish_many(listed, client=client_id, idempotency_key=key))


@router.get("/feeds/{feed}/messages", response_model=MessagesPage)
async def read_messages(
    request: Request,
    feed: Name,
    db: Db,
    who: Reader,
    after: shapes.PositionText | None = None,
    limit: shapes.MessageLimit = 10,
    kinds: Annotated[list[str] | None, Query(max_length=100, description="Only messages of these kinds; repeat it.")] = None,
    *,
    echo: Annotated[bool, Query(description="False: without the messages that this `Client-ID` has published.")] = True,
    hidden: Annotated[bool, Query(description="False: without those that are claimed, delayed or expired now.")] = True,
    on_trimmed: Annotated[
        Literal["raise", "skip"], Query(description="What to do where messages were trimmed: 410, or skip.")
    ] = "raise",
    wait: shapes.Wait = 0.0,
    ids: shapes.Ids = None,
    client_id: shapes.ClientId = None,
) -> Response:
    """Read the messages after a position, or, with `ids`, those that are still there.

    A response without messages may have a new `after`: read on from there while `behind` is not 0.
    """
    who.check("read", feed)
    found = await run_in_threadpool(feed_of, db, feed)
    if ids is not None:
        listed = ids

        def named() -> Response:
            messages = [message_view(one) for one in found.get(listed)]
            return _answer(MessagesPage(messages=messages, after=None, behind=0, skipped=0))

        return await run_in_threadpool(named)

    def page() -> MessagesPage:
        one = found.read(after, limit, kinds=kinds, client=client_id, echo=echo, hidden=hidden, on_trimmed=on_trimmed)
        messages = [message_view(message) for message in one.messages]
        return MessagesPage(messages=messages, after=one.position, behind=one.behind, skipped=one.skipped)

    got = await run_in_threadpool(page)
    if got.messages or not wait:
        return await run_in_threadpool(_answer, got)
    until, skipped = time.monotonic() + wait, got.skipped
    with arrivals_of(request).waiter(feed) as waiter:
        while not got.messages and not await request.is_disconnected():
            # What the filter left out is not looked at again.
            after = waiter.position = got.after
            if not got.behind and not await waiter.wait(until - time.monotonic()):
                break
            got = await run_in_threadpool(page)
            skipped += got.skipped
            if time.monotonic() >= until:
                break
    await Standing(request, "read", feed).check()
    return await run_in_threadpool(_answer, got.model_copy(update={"skipped": skipped}))


@router.delete("/feeds/{feed}/messages")
def delete_messages(
    feed: Name,
    db: Db,
    who: WorkerClient,
    ids: shapes.Ids = None,
    claim: Claim = None,
    pop: Annotated[int | None, Query(ge=1, le=MOST_CLAIMED, description="Delete and return up to this many free messages.")] = None,
) -> DeletedMessages:
    """Delete messages for all readers, all or none: those with `ids`; all that are left of `claim`; or the first `pop` free ones.

    Without a claim messages that are gone are passed over, and those that are claimed are refused. A popped message is lost if its
    response does not arrive.
    """
    who.check("work", feed)
    found = feed_of(db, feed)
    if pop is not None and (ids is not None or claim is not None):
        raise invalid("give pop, or ids and claim")
    if pop is not None:
        popped = found.pop(pop)
        return DeletedMessages(deleted=len(popped), messages=[message_view(one) for one in popped])
    if ids is not None:
        return DeletedMessages(deleted=found.delete(ids, claim=claim))
    if claim is None:
        raise invalid("name the messages with ids, claim or pop; POST …/purge deletes all")
    return DeletedMessages(deleted=found.find_claim(claim).delete())


@router.get("/feeds/{feed}/messages/{message}")
def get_message(feed: Name, message: Name, db: Db, who: Reader) -> MessageView:
    """Get one message by its id."""
    who.check("read", feed)
    return message_view(_one(feed_of(db, feed), message))


@router.delete("/feeds/{feed}/messages/{message}", status_code=204)
def delete_message(feed: Name, message: Name, db: Db, who: WorkerClient, claim: Claim = None) -> None:
    """Delete one message; a claimed one needs its `claim`. Without a claim one that is gone counts as deleted."""
    who.check("work", feed)
    feed_of(db, feed).delete(message, claim=claim)


def _answer(page: MessagesPage) -> Response:
    """The page as JSON, in a thread: with many large messages this takes long."""
    return Response(page.model_dump_json(), media_type="application/json")


def _one(feed: Feed, message: str) -> Message:
    found = feed.get(message)
    if not found:
        raise missing("message", "it was deleted, trimmed or never existed")
    return found[0]
