"""Routes of pages: what goes wrong is shown as a page, too."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException

from queue_db.errors import QueueDBError
from queue_db.operations.actor import ForbiddenError
from queue_db.service.auth.session import LoginNeededError
from queue_db.service.http import errors, refusals
from queue_db.service.http.refusals import RefusedError
from queue_db.service.http.requests import of, session_of
from queue_db.service.pages.render import page


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
    detail: str | None
    after = None
    if isinstance(error, RequestValidationError):
        status, title, detail = 422, "The address is not valid", "A part of it is missing or outside its range."
    elif isinstance(error, HTTPException):
        status, title, detail = error.status_code, str(error.detail), None
    elif isinstance(error, RefusedError):
        status, title, detail, after = error.status, error.title, error.detail, error.retry_after
        refusals.record(error, of(request), request.scope)
    else:
        kind = errors.KINDS[next(base for base in type(error).__mro__ if base in errors.KINDS)]
        status, title, detail = kind.status, kind.title, str(error) if kind.detail else None
        errors.record(error, status, of(request), request.scope)
    response = _page(request, status, title, detail)
    if status == 503 or after is not None:
        response.headers["Retry-After"] = str(after or 1)
    return response


def _page(request: Request, status: int, title: str, detail: str | None) -> Response:
    return page(
        request,
        "problem",
        status=status,
        title=title,
        detail=detail,
        posted=request.method == "POST",
    )


def _is_known(request: Request) -> bool:
    """Whether it is known who looks."""
    return getattr(request.state, "session", None) is not None


async def problem(request: Request, status: int, title: str, detail: str | None) -> Response | None:
    """An error of a request that is no page's, as a page with the menu; None: only people who have logged in get one."""
    if status == 404 and not _is_known(request):
        try:
            await session_of(request)
        except (LoginNeededError, QueueDBError):
            return None
    if not _is_known(request):
        return None
    return _page(request, status, "There is no such page" if title == "Not Found" else title, detail)


def page_router() -> APIRouter:
    """A router for pages."""
    return APIRouter(include_in_schema=False, route_class=_PageRoute)
