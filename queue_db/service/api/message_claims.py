"""Claims on messages of a feed that was made with claims, as Zaqar's; ``lease`` is Zaqar's ``ttl``."""

from __future__ import annotations

import time
from datetime import datetime

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel
from starlette.concurrency import run_in_threadpool

from queue_db.service.arrivals import arrivals_of
from queue_db.service.feed_shapes import ClaimLimit, ClaimView, Grace, Lease, Wait, claim_view, feed_of
from queue_db.service.paths import Name
from queue_db.service.requests import Db, Manager, WorkerClient

router = APIRouter(tags=["feeds"])


class ClaimInfoView(BaseModel):
    """A claim that has not ended."""

    id: str
    messages: int
    expires_at: datetime


class ClaimInfos(BaseModel):
    """The claims of a feed; those that end first come first."""

    claims: list[ClaimInfoView]


@router.post(
    "/feeds/{feed}/claims",
    status_code=201,
    response_model=ClaimView,
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
) -> Response | ClaimView:
    """Claim the first messages that are free: nobody else can until the claim ends. 204: none is free.

    Delete what is done with `DELETE /feeds/{feed}/messages?claim=…`.
    """
    who.check("work", feed)
    found = await run_in_threadpool(feed_of, db, feed)

    def claim() -> ClaimView | None:
        one = found.claim(limit, lease=lease, grace=grace)
        return None if one is None else claim_view(one)

    claimed = await run_in_threadpool(claim)
    if claimed is None and wait:
        until = time.monotonic() + wait
        with arrivals_of(request).waiter(feed) as waiter:
            while await waiter.wait(until - time.monotonic()):
                if await request.is_disconnected():
                    break
                claimed = await run_in_threadpool(claim)
                if claimed is not None:
                    break
        arrivals_of(request).pass_on(feed)
    return Response(status_code=204) if claimed is None else claimed


@router.get("/feeds/{feed}/claims")
def list_claims(feed: Name, db: Db, who: Manager) -> ClaimInfos:
    """List the claims that have not ended. Their ids allow what their holders may do."""
    who.check("manage", feed)
    infos = feed_of(db, feed).claims()
    return ClaimInfos(claims=[ClaimInfoView(id=one.id, messages=one.messages, expires_at=one.expires_at) for one in infos])


@router.get("/feeds/{feed}/claims/{claim}")
def get_claim(feed: Name, claim: Name, db: Db, who: WorkerClient) -> ClaimView:
    """Get a claim with the messages that are left of it."""
    who.check("work", feed)
    return claim_view(feed_of(db, feed).find_claim(claim))


@router.patch("/feeds/{feed}/claims/{claim}")
def extend_claim(feed: Name, claim: Name, db: Db, who: WorkerClient, lease: Lease = 300.0, grace: Grace = 60.0) -> ClaimView:
    """Let a claim end `lease` seconds from now."""
    who.check("work", feed)
    found = feed_of(db, feed).find_claim(claim)
    found.extend(lease, grace=grace)
    return claim_view(found)


@router.delete("/feeds/{feed}/claims/{claim}", status_code=204)
def release_claim(feed: Name, claim: Name, db: Db, who: WorkerClient) -> Response:
    """End a claim: others can claim the messages that are left at once, and this claim does not count."""
    who.check("work", feed)
    feed_of(db, feed).find_claim(claim).release()
    return Response(status_code=204)
