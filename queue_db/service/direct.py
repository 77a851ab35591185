"""Claims and settlements, the requests of every worker, without FastAPI's search for parameters: it takes longer than all the rest.

The routes of FastAPI stand behind these, for the OpenAPI document. Both call the same functions, and answer alike.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from email.message import Message
from typing import Any, TypeVar

from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, TypeAdapter, ValidationError
from starlette.concurrency import run_in_threadpool

from queue_db.db import QueueDB
from queue_db.service.api.claims import ClaimRequest, claim_jobs
from queue_db.service.api.settlements import Settlements, settle_jobs
from queue_db.service.declared import Declared
from queue_db.service.identity import Identity
from queue_db.service.paths import Name
from queue_db.service.pressure import pace
from queue_db.service.requests import identity, of

_Body = TypeVar("_Body", bound=BaseModel)

_NAME: TypeAdapter[str] = TypeAdapter(Name)
_CLAIM = TypeAdapter(ClaimRequest)
_SETTLEMENTS = TypeAdapter(Settlements)


def install(app: FastAPI, exact: Declared) -> None:
    """Add the routes; before those of FastAPI.

    :param exact: what operations take.
    """

    async def claims(request: Request) -> Response:
        given = await _given(request, exact, claim_jobs, _CLAIM)
        return await claim_jobs(*given)

    async def settlements(request: Request) -> Response:
        given = await _given(request, exact, settle_jobs, _SETTLEMENTS)
        return await run_in_threadpool(settle_jobs, *given)

    for path, endpoint in (("claims", claims), ("settlements", settlements)):
        app.router.add_route(f"/api/v1/queues/{{queue}}/{path}", endpoint, methods=["POST"], include_in_schema=False)


async def _given(
    request: Request, exact: Declared, endpoint: Callable[..., Any], shape: TypeAdapter[_Body]
) -> tuple[str, _Body, QueueDB, Identity, Request]:
    """The parameters of an endpoint: queue, body, db, who and request."""
    content = await _content(request)
    who = await identity(request)
    pace(request, who)
    await exact.check(request, endpoint)
    who.check("work")
    wrong: list[dict[str, Any]] = []
    queue = _valid(wrong, ("path", "queue"), _NAME.validate_python, request.path_params["queue"])
    if content is None:
        wrong.append({"type": "missing", "loc": ("body",), "msg": "Field required", "input": None})
    body: Any = None if content is None else _valid(wrong, ("body",), shape.validate_python, content[0], from_attributes=True)
    if wrong:
        raise RequestValidationError(wrong)
    return queue, body, of(request).db, who, request


async def _content(request: Request) -> tuple[Any] | None:
    """What the body has, as JSON if the request says so; None: it is empty.

    :raises RequestValidationError: it is no JSON.
    :raises HTTPException: it cannot be read.
    """
    try:
        body = await request.body()
        if not body:
            return None
        return (json.loads(body) if _is_json(request.headers.get("content-type", "")) else body,)
    except json.JSONDecodeError as error:
        raise RequestValidationError([{"type": "json_invalid", "loc": ("body", error.pos), "msg": "JSON decode error"}]) from error
    except HTTPException:
        raise
    except Exception as error:
        raise HTTPException(400, "There was an error parsing the body") from error


def _is_json(content_type: str) -> bool:
    if content_type == "application/json":
        return True
    message = Message()
    message["content-type"] = content_type
    subtype = message.get_content_subtype()
    return (
        bool(content_type) and message.get_content_maintype() == "application" and (subtype == "json" or subtype.endswith("+json"))
    )


def _valid(wrong: list[dict[str, Any]], place: tuple[str, ...], validate: Callable[..., Any], given: object, **how: Any) -> Any:
    """A valid value; ``wrong`` gets what is wrong with it."""
    try:
        return validate(given, **how)
    except ValidationError as error:
        wrong.extend({**one, "loc": (*place, *one["loc"])} for one in error.errors(include_url=False))
        return None
