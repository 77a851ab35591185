"""Routes of pages: what goes wrong is shown as a page, too."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute

from queue_db.errors import QueueDBError
from queue_db.service import errors
from queue_db.service.identity import ForbiddenError
from queue_db.service.pages.render import page


class _PageRoute(APIRoute):
    """A route whose errors are answered in HTML, for somebody who is logged in."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handled(request: Request) -> Response:
            try:
                return await handle(request)
            except (RequestValidationError, QueueDBError, ForbiddenError) as error:
                if getattr(request.state, "session", None) is None:
                    raise  # nobody is logged in, or the database is away
                return _problem(request, error)

        return handled


def _problem(request: Request, error: Exception) -> Response:
    """A page that says what went wrong."""
    detail: str | None
    if isinstance(error, RequestValidationError):
        status, title, detail = 422, "The address is not valid", "A part of it is missing or outside its range."
    else:
        kind = errors.KINDS[next(base for base in type(error).__mro__ if base in errors.KINDS)]
        status, title, detail = kind.status, kind.title, str(error) if kind.detail else None
    if status >= 500:
        errors.log.warning("a page failed: %s", type(error).__name__)
    response = page(request, "problem.html.jinja", request.state.session.who, status=status, title=title, detail=detail)
    if status == 503:
        response.headers["Retry-After"] = "1"
    return response


def page_router() -> APIRouter:
    """A router for pages."""
    return APIRouter(include_in_schema=False, route_class=_PageRoute)
