"""Claims and settlements, the requests of every worker, without FastAPI's search for parameters: it takes longer than all the rest.

The routes of FastAPI stand behind these, for the OpenAPI document. Both call the same functions, and answer alike.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from email.message import Message
from typing import Any, TypeVar

from fastapi import FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, TypeAdapter, ValidationError
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from queue_db.db import QueueDB
from queue_db.operations.actor import Actor
from queue_db.service.api import quick
from queue_db.service.api.claims import ClaimRequest, claim_jobs
from queue_db.service.api.settlements import Settlements, settle_jobs
from queue_db.service.http.declared import Declared, parsed
from queue_db.service.http.paths import Name, decoded
from queue_db.service.http.requests import identity, of

_Body = TypeVar("_Body", bound=BaseModel)

_NAME: TypeAdapter[str] = TypeAdapter(Name)
_CLAIM = TypeAdapter(ClaimRequest)
_SETTLEMENTS = TypeAdapter(Settlements)

#: Operations whose bodies are parsed here.
CHECKED = (claim_jobs, settle_jobs)

_PATH = re.compile(r"/api/v1/queues/(?P<queue>[^/]+)/(?P<operation>claims|settlements)")

_JSON = b"application/json"

_UNREADABLE = "There was an error parsing the body"


class Direct:
    """A part of the application that answers claims and settlements itself, with the handlers of errors that the application has.

    :param app: what answers all other requests.
    :param owner: the application.
    :param exact: what operations take.
    """

    def __init__(self, app: ASGIApp, owner: FastAPI, exact: Declared) -> None:
        self._app = app
        self._owner = owner
        self._exact = exact

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        found = _PATH.fullmatch(_path(scope)) if scope["type"] == "http" and scope["method"] == "POST" else None
        if found is None:
            await self._app(scope, receive, send)
            return
        inner = {"path_params": {"queue": found["queue"]}, "router": self._owner.router}
        request = Request({**scope, **inner, "app_root_path": scope.get("root_path", "")}, receive)
        try:
            response = await self._answer(request, found["operation"])
        except Exception as error:
            handlers = self._owner.exception_handlers
            handler = next((handlers[base] for base in type(error).__mro__ if base in handlers), None)
            if handler is None:
                raise
            answer = handler(request, error)
            response = answer if isinstance(answer, Response) else await answer
        await response(request.scope, receive, send)

    async def _answer(self, request: Request, operation: str) -> Response:
        if operation == "claims":
            return await claim_jobs(*await self._given(request, claim_jobs, _CLAIM, quick.claim))
        return await settle_jobs(*await self._given(request, settle_jobs, _SETTLEMENTS, quick.settlements))

    async def _given(
        self,
        request: Request,
        endpoint: Callable[..., Any],
        shape: TypeAdapter[_Body],
        read: Callable[[bytes], Any],
    ) -> tuple[str, Any, QueueDB, Actor, Request]:
        """The parameters of an endpoint: queue, body, db, who and request.

        :param read: a quicker way than ``shape``: it returns the valid body, or None where ``shape`` is to look.
        """
        content = await _content(request)
        plain = _is_plain(request.scope)
        quick = read(content) if content and plain else None
        parsed = _parsed(request, content) if quick is None else None
        who = await identity(request)
        if not plain:
            await self._exact.check(request, endpoint)
        who.check("work")
        wrong: list[dict[str, Any]] = []
        queue = _valid(wrong, ("path", "queue"), _NAME.validate_python, request.path_params["queue"])
        if not content:
            wrong.append({"type": "missing", "loc": ("body",), "msg": "Field required", "input": None})
        elif quick is None:
            quick = _valid(wrong, ("body",), shape.validate_python, parsed, from_attributes=True)
        if wrong:
            raise RequestValidationError(wrong)
        return queue, quick, of(request).db, who, request


def _path(scope: Scope) -> str:
    """The path of the operation, as :class:`~queue_db.service.http.paths.Paths` makes it; empty: not a plain one."""
    raw, root = scope.get("raw_path"), scope.get("root_path", "")
    if not raw or (root and not scope["path"].startswith(root)):
        return ""
    path = decoded(raw)
    return path.removeprefix(root)


async def _content(request: Request) -> bytes:
    """The body.

    :raises HTTPException: it cannot be read.
    """
    try:
        return await request.body()
    except HTTPException:
        raise
    except Exception as error:
        raise HTTPException(400, _UNREADABLE) from error


def _is_plain(scope: Scope) -> bool:
    """Whether a request has no query, and says in the usual way that its body is JSON."""
    return not scope["query_string"] and [value for name, value in scope["headers"] if name == b"content-type"] == [_JSON]


def _parsed(request: Request, content: bytes) -> Any:
    """The body, as JSON if the request says so.

    :raises RequestValidationError: it is no JSON.
    :raises HTTPException: it cannot be parsed.
    """
    if not content or not _is_json(request.headers.get("content-type", "")):
        return content
    try:
        return parsed(content)
    except json.JSONDecodeError as error:
        raise RequestValidationError([{"type": "json_invalid", "loc": ("body", error.pos), "msg": "JSON decode error"}]) from error
    except RequestValidationError:
        raise
    except Exception as error:
        raise HTTPException(400, _UNREADABLE) from error


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
