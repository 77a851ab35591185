"""Claims on messages of a feed that was made with claims, as Zaqar's; ``lease`` is Zaqar's ``ttl``."""

from __future__ import annotations

import asyncio
import threading
import time
from functools import partial

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel
from starlette.concurrency import run_in_threadpool

from queue_db.errors import QueueDBError
from queue_db.feeds import Feed, MessageClaim
from queue_db.service.api.feed_shapes import ClaimLimit, Grace, Lease, MessageClaimView, Wait, claim_view, feed_of
from queue_db.service.http.handover import Handover, watch
from queue_db.service.http.paths import Name
from queue_db.service.http.requests import Db, Manager, Standing, WorkerClient, of
from queue_db.service.http.times import Time
from queue_db.service.live.arrivals import arrivals_of
from queue_db.service.live.incidents import Incidents, IncidentType

router = APIRouter(tags=["feeds"])


class MessageClaimSummary(BaseModel):
    """A claim that has not ended."""

    id: str
    messages: int
    expires_at: Time


class MessageClaimList(BaseModel):
    """The claims of a feed; those that end first come first."""

    claims: list[MessageClaimSummary]


@router.post(
    "/feeds/{feed}/claims",
    status_code=201,
    response_model=MessageClaimView,
    responses={204: {"description": "No message is free."}},
)
async def claim_messages(
    request: Request,
    feed: Name,
    db: Db,
    who: WorkerClient,
    limit: ClaimLimit = 10,
    lease: Lease = 300.0,
    grace: Grace = 60.0,
    wait: Wait = 0.0,
) -> Response:
    """Claim the first messages that are free: nobody else can until the claim ends. 204: none is free.

    Delete what is done with `DELETE /feeds/{feed}/messages?claim=…`. If the client goes away before it has the answer, the claim
    is released at once.
    """
    who.check("work", feed)
    found = await run_in_threadpool(feed_of, db, feed)
    making = _Making(found, limit, lease, grace, of(request).incidents)
    disconnected = watch(request.receive)
    try:
        content = await run_in_threadpool(making.claim)
        if content is None and wait:
            until = time.monotonic() + wait
            with arrivals_of(request).waiter(feed) as waiter:
                while content is None and await waiter.wait(until - time.monotonic()) and not disconnected.done():
                    content = await run_in_threadpool(making.claim)
            arrivals_of(request).pass_on(feed)
        await Standing(request, "work", feed).check()
    except BaseException:
        disconnected.cancel()
        making.abandon()
        raise
    if content is None:
        disconnected.cancel()
        return Response(status_code=204)
    return Handover(content, disconnected, partial(Response, status_code=204), making.abandon, status_code=201)


class _Making:
    """A claim for a client that may go away meanwhile."""

    def __init__(self, feed: Feed, limit: int, lease: float, grace: float, incidents: Incidents) -> None:
        self._incidents = incidents
        self._feed = feed
        self._limit = limit
        self._lease = lease
        self._grace = grace
        self._lock = threading.Lock()
        self._abandoned = False
        self._made: MessageClaim | None = None

    def claim(self) -> bytes | None:
        """Claim, in a thread; the answer. None: no message is free, or the client has gone."""
        made = self._feed.claim(self._limit, lease=self._lease, grace=self._grace)
        with self._lock:
            self._made, abandoned = made, self._abandoned
        if made is not None and abandoned:
            self._release(made)
            return None
        return None if made is None else claim_view(made).model_dump_json().encode()

    def abandon(self) -> None:
        """The client has gone: release what was claimed, or is claimed from now on."""
        with self._lock:
            self._abandoned = True
            made = self._made
        if made is not None:
            asyncio.get_running_loop().run_in_executor(None, self._release, made)

    def _release(self, made: MessageClaim) -> None:
        what = f"{len(made.messages)} messages of feed {self._feed.name}"
        try:
            made.release()
        except QueueDBError as error:
            self._incidents.record(IncidentType.CLAIM_NOT_RETURNED, f"{what}: {error}")
        else:
            self._incidents.record(IncidentType.CLAIM_RETURNED, what)


@router.get("/feeds/{feed}/claims")
def list_message_claims(feed: Name, db: Db, who: Manager) -> MessageClaimList:
    """List the claims that have not ended. Their ids allow what their holders may do."""
    who.check("manage", feed)
    infos = feed_of(db, feed).claims()
    return MessageClaimList(
        claims=[MessageClaimSummary(id=one.id, messages=one.messages, expires_at=one.expires_at) for one in infos]
    )


@router.get("/feeds/{feed}/claims/{claim}")
def get_message_claim(feed: Name, claim: Name, db: Db, who: WorkerClient) -> MessageClaimView:
    """Get a claim with the messages that are left of it."""
    who.check("work", feed)
    return claim_view(feed_of(db, feed).find_claim(claim))


@router.patch("/feeds/{feed}/claims/{claim}")
def extend_message_claim(
    feed: Name, claim: Name, db: Db, who: WorkerClient, lease: Lease = 300.0, grace: Grace = 60.0
) -> MessageClaimView:
    """Let a claim end `lease` seconds from now."""
    who.check("work", feed)
    found = feed_of(db, feed).find_claim(claim)
    found.extend(lease, grace=grace)
    return claim_view(found)


@router.delete("/feeds/{feed}/claims/{claim}", status_code=204)
def release_message_claim(feed: Name, claim: Name, db: Db, who: WorkerClient) -> Response:
    """End a claim: others can claim the messages that are left at once, and this claim does not count."""
    who.check("work", feed)
    feed_of(db, feed).find_claim(claim).release()
    return Response(status_code=204)
