"""A request has what its operation declares: no other query parameters, and its body as JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from fastapi import APIRouter, Request
from fastapi.dependencies.utils import get_flat_params
from fastapi.exceptions import RequestValidationError
from fastapi.params import ParamTypes
from fastapi.routing import APIRoute

from queue_db.service.refusals import RefusedError

_OURS = "application/json"


class Declared:
    """What the operations of these routers take. A dependency of all of them."""

    def __init__(self, routers: Iterable[APIRouter]) -> None:
        routes = [route for router in routers for route in router.routes if isinstance(route, APIRoute)]
        self._queries: dict[Callable[..., Any], tuple[str, ...]] = {route.endpoint: _queries(route) for route in routes}
        self._with_body = frozenset(route.endpoint for route in routes if route.body_field is not None)

    async def __call__(self, request: Request) -> None:
        """Look at a request, before its values are looked at: :meth:`check`."""
        await self.check(request, request.scope["endpoint"])

    async def check(self, request: Request, endpoint: Callable[..., Any]) -> None:
        """Look at a request to this operation.

        :raises RefusedError: 415, the body is not JSON.
        :raises RequestValidationError: the operation has no such query parameter.
        """
        if request.scope["query_string"]:
            known = self._queries[endpoint]
            unknown = sorted(request.query_params.keys() - known)
            if unknown:
                what = f"is unknown; this operation has {', '.join(known) or 'no query parameters'}"
                raise RequestValidationError([{"loc": ("query", name), "msg": what} for name in unknown])
        if endpoint in self._with_body and not _is_json(request.headers.get("content-type", "")) and await request.body():
            raise RefusedError(
                415,
                "The body is not JSON",
                f"send the header Content-Type: application/json; this request has {_given(request)}",
                name="not-json",
            )


def _queries(route: APIRoute) -> tuple[str, ...]:
    params = get_flat_params(route.dependant)
    return tuple(sorted({one.alias for one in params if getattr(one.field_info, "in_", None) is ParamTypes.query}))


def _is_json(content_type: str) -> bool:
    kind = content_type.partition(";")[0].strip().lower()
    return kind == _OURS or (kind.startswith("application/") and kind.endswith("+json"))


def _given(request: Request) -> str:
    given = request.headers.get("content-type")
    return "none" if given is None else ascii(given[:100])
