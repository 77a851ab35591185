"""Callbacks: who has the token of one sends its signal, once, and needs no other right. Only with ``Settings(callbacks=True)``."""

from __future__ import annotations

import json
from typing import Any

from fastapi import APIRouter, Request
from starlette.concurrency import run_in_threadpool

from queue_db.db import QueueDB
from queue_db.operations.actor import Actor, ForbiddenError
from queue_db.operations.entry import entry
from queue_db.service.http.pressure import Pressure
from queue_db.service.http.refusals import RefusedError, invalid, missing
from queue_db.service.http.requests import Db, of
from queue_db.service.live.incidents import REQUEST_ID, described
from queue_db.steps.records import job_of

router = APIRouter(tags=["callbacks"])

# Who stands in the action log.
_NAME = "callback"


@router.post("/api/v1/callbacks/{token}", status_code=204)
async def call_back(request: Request, db: Db, token: str) -> None:
    """Send the signal that a job waits for, with the JSON body as its payload; without a body null.

    404: the token was used, or it is none. 429: more callbacks in a second than this service takes from one address.
    """
    pressure: Pressure = request.app.state.callbacks
    pressure.request("" if request.client is None else request.client.host)  # a stranger slows no other one
    if of(request).read_only:
        raise ForbiddenError("this service is read-only")
    who = Actor(_NAME, frozenset(), (), source=described(request.scope), request=request.scope.get(REQUEST_ID))
    payload = _payload(request.headers.get("content-type", ""), await request.body())
    if await run_in_threadpool(_call_back, db, who, token, payload) is None:
        raise missing("callback", "it was used, its job has left, or it never existed")


def _call_back(db: QueueDB, who: Actor, token: str, payload: Any) -> int | None:
    """No operation of people, who would send the signal itself: it has this one side."""
    target = f"job {job_of(token)}"
    with entry(db, who, "call_back", target, of="call_back", number=lambda found: 0 if found is None else None):
        return db.steps.call_back(token, payload)


def _payload(content_type: str, body: bytes) -> Any:
    if not body:
        return None
    if content_type.partition(";")[0].strip().lower() != "application/json":
        raise RefusedError(415, "The body is not JSON", "send the header Content-Type: application/json", code="not_json")
    try:
        return json.loads(body, parse_constant=_refused)
    except (ValueError, RecursionError) as error:
        raise invalid(f"the body is not JSON: {error}") from None


def _refused(word: str) -> Any:
    raise ValueError(f"{word} is not allowed")
