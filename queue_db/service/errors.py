"""Errors as ``application/problem+json`` (RFC 9457): without URLs, SQL or traces of the server."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from queue_db import errors
from queue_db.service.identity import ForbiddenError
from queue_db.service.session import CrossSiteError

log = logging.getLogger("queue_db.service")


@dataclass(frozen=True, slots=True)
class Kind:
    """How an error is answered. ``detail``: the error's own text is shown."""

    status: int
    title: str
    detail: bool = True


#: By class; the nearest class of an error's own line counts.
KINDS: dict[type[Exception], Kind] = {
    errors.JobNotFoundError: Kind(404, "There is no such job"),
    errors.DuplicateJobError: Kind(409, "The unique key is taken"),
    errors.LeaseLostError: Kind(412, "The lease is lost"),
    errors.PayloadError: Kind(422, "The payload cannot be stored"),
    errors.ArgumentError: Kind(422, "An argument is outside its range"),
    errors.UnsupportedError: Kind(501, "The database cannot do this"),
    errors.TransientStorageError: Kind(503, "The database does not answer", detail=False),
    errors.StorageError: Kind(503, "The database refuses this", detail=False),
    errors.QueueDBError: Kind(409, "This cannot be done now"),
    ForbiddenError: Kind(403, "The token does not allow this"),
    CrossSiteError: Kind(403, "The form is too old, or of another site: load the page again", detail=False),
}


def problem(status: int, title: str, detail: str | None = None, **more: Any) -> JSONResponse:
    """A problem as a response."""
    content = {"type": "about:blank", "status": status, "title": title, **({"detail": detail} if detail else {}), **more}
    headers = {"Retry-After": "1"} if status == 503 else None
    return JSONResponse(content, status, headers, media_type="application/problem+json")


def answer(error: Exception) -> JSONResponse:
    """The response to an error."""
    kind = next((KINDS[base] for base in type(error).__mro__ if base in KINDS), None)
    if kind is None:
        log.error("a request failed", exc_info=error)
        return problem(500, "This is a bug in queue_db; the service's log has it")
    return problem(kind.status, kind.title, str(error) if kind.detail else None)


def install(app: FastAPI) -> None:
    """Let the application answer errors so."""

    async def on_error(_request: Request, error: Exception) -> JSONResponse:
        return answer(error)

    async def on_http(_request: Request, error: Exception) -> JSONResponse:
        if not isinstance(error, HTTPException):
            return answer(error)
        return problem(error.status_code, str(error.detail))

    async def on_invalid(_request: Request, error: Exception) -> JSONResponse:
        if not isinstance(error, RequestValidationError):
            return answer(error)
        places = [{"where": ".".join(map(str, one["loc"])), "what": one["msg"]} for one in error.errors()]
        return problem(422, "The request is not valid", errors=places)

    for kind in KINDS:
        app.add_exception_handler(kind, on_error)
    app.add_exception_handler(Exception, on_error)
    app.add_exception_handler(HTTPException, on_http)
    app.add_exception_handler(RequestValidationError, on_invalid)
