"""Routes of pages: what goes wrong is shown as a page, too."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException

from queue_db.errors import ArgumentError, QueueDBError
from queue_db.operations.actor import ForbiddenError
from queue_db.service.auth.session import LoginNeededError
from queue_db.service.http import errors, refusals
from queue_db.service.http.refusals import RefusedError
from queue_db.service.http.requests import of, session_of
from queue_db.service.pages.render import page

# What the forms call the values that have another name.
_LABELS = {
    "job_id": "job",
    "concurrency": "jobs at the same time",
    "rate": "jobs begun",
    "per": "in seconds",
    "per_group": "jobs of one group",
    "keep_for": "keep for, seconds",
    "keep_rows": "keep messages",
    "keep_unread": "unread, at most",
    "max_attempts": "claims of a message",
    "delay": "delay, seconds",
    "expires_in": "lifetime, seconds",
    "every": "every, seconds",
    "cron": "cron line",
    "zone": "time zone",
    "catch_up": "if missed",
    "where": "only where",
    "by": "count by",
}


class _PageRoute(APIRoute):
    """A route whose errors are answered in HTML, for people who are logged in."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handled(request: Request) -> Response:
            try:
                return await handle(request)
            except (RequestValidationError, HTTPException, QueueDBError, ForbiddenError, RefusedError) as error:
                if not _is_known(request):
                    raise  # before the login, or the database is away
                return _problem(request, error)

        return handled


def _problem(request: Request, error: Exception) -> Response:
    """A page that says what went wrong."""
    after = None
    if isinstance(error, RequestValidationError):
        content: dict[str, Any] = {"status": 422, "title": errors.INVALID[0], "code": errors.INVALID[1]}
    elif isinstance(error, HTTPException):
        content = {"status": error.status_code, "title": str(error.detail)}
    elif isinstance(error, RefusedError):
        content = {"status": error.status, "title": error.title, "detail": error.detail}
        after = error.retry_after
        refusals.record(error, of(request), request.scope)
    else:
        content = json.loads(bytes(errors.answer(error, of(request), request.scope).body))
        content |= _of_person(request, error)
    response = _page(request, errors.told(request, content))
    if response.status_code == 503 or after is not None:
        response.headers["Retry-After"] = str(after or 1)
    return response


def _of_person(request: Request, error: Exception) -> dict[str, str]:
    """What of a problem is said otherwise to somebody who looks at pages."""
    if isinstance(error, ForbiddenError) and of(request).read_only:
        return {
            "title": "This service only shows",
            "detail": "it was started so, or its database takes no changes now",
            "code": "read_only",
        }
    if isinstance(error, ArgumentError):
        if request.method != "POST":
            return {"code": errors.INVALID[1]}
        if error.argument is not None:
            return {"detail": error.labelled(f"“{_LABELS.get(error.argument, error.argument)}”")}
    return {}


def _page(request: Request, told: errors.Told) -> Response:
    return page(
        request,
        "problem.html.jinja",
        request.state.session.who,
        status=told.status,
        title=told.title,
        detail=told.detail,
        advice=told.advice,
    )


def _is_known(request: Request) -> bool:
    """Whether it is known who looks."""
    return getattr(request.state, "session", None) is not None


async def problem(request: Request, told: errors.Told) -> Response | None:
    """An error of a request that is no page's, as a page with the menu; None: only people who have logged in get one."""
    if told.status == 404 and not _is_known(request):
        try:
            await session_of(request)
        except (LoginNeededError, QueueDBError):
            return None
    return _page(request, told) if _is_known(request) else None


def page_router() -> APIRouter:
    """A router for pages."""
    return APIRouter(include_in_schema=False, route_class=_PageRoute)
