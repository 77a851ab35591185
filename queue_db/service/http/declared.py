"""A request has what its operation declares: no other query parameters, and its body as JSON."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, get_args, get_origin

from fastapi import APIRouter, Request
from fastapi.dependencies.utils import get_flat_params
from fastapi.exceptions import RequestValidationError
from fastapi.params import ParamTypes
from fastapi.routing import APIRoute

from queue_db.service.http.refusals import RefusedError

_OURS = "application/json"


class Declared:
    """What the operations of these routers take. A dependency of all of them.

    :param checked: operations whose bodies are looked at for duplicate keys elsewhere.
    """

    def __init__(self, routers: Iterable[APIRouter], checked: Iterable[Callable[..., Any]] = ()) -> None:
        routes = [route for router in routers for route in router.routes if isinstance(route, APIRoute)]
        self._queries = {route.endpoint: _queries(route) for route in routes}
        self._checked = frozenset(checked)
        self._with_body = frozenset(route.endpoint for route in routes if route.body_field is not None)

    async def __call__(self, request: Request) -> None:
        """Look at a request, before its values are looked at."""
        await self.check(request, request.scope["endpoint"])

    async def check(self, request: Request, endpoint: Callable[..., Any]) -> None:
        """Look at a request to this operation.

        :raises RefusedError: 415, the body is not JSON.
        :raises RequestValidationError: the operation has no such query parameter, one is given twice, or an object of the body has
            a key twice.
        """
        if request.scope["query_string"]:
            known = self._queries[endpoint]
            given = Counter(name for name, _ in request.query_params.multi_items())
            what = f"is unknown; this operation has {', '.join(known) or 'no query parameters'}"
            wrong = [(name, what) for name in sorted(given.keys() - known.keys())]
            wrong += [(name, "is given more than once") for name in sorted(given) if given[name] > 1 and known.get(name) is False]
            if wrong:
                raise RequestValidationError([{"loc": ("query", name), "msg": what} for name, what in wrong])
        body = await request.body() if endpoint in self._with_body else b""
        if body and not _is_json(request.headers.get("content-type", "")):
            raise RefusedError(
                415,
                "The body is not JSON",
                f"send the header Content-Type: application/json; this request has {_given(request)}",
                code="not_json",
            )
        if body and endpoint not in self._checked:
            parsed(body)


def parsed(body: bytes) -> Any:
    """What JSON says; 422 if an object has a key twice, since readers differ in which of the values they take."""
    return json.loads(body, object_pairs_hook=_object)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        twice = next(name for name, number in Counter(name for name, _ in pairs).items() if number > 1)
        raise RequestValidationError([{"loc": ("body", twice), "msg": "is a key of an object more than once"}])
    return found


def _queries(route: APIRoute) -> dict[str, bool]:
    """The query parameters, and whether one can be repeated."""
    params = [one for one in get_flat_params(route.dependant) if getattr(one.field_info, "in_", None) is ParamTypes.query]
    return {one.alias: _is_list(one.field_info.annotation) for one in sorted(params, key=lambda one: one.alias)}


def _is_list(annotation: Any) -> bool:
    return get_origin(annotation) is list or any(get_origin(one) is list for one in get_args(annotation))


def _is_json(content_type: str) -> bool:
    kind = content_type.partition(";")[0].strip().lower()
    return kind == _OURS or (kind.startswith("application/") and kind.endswith("+json"))


def _given(request: Request) -> str:
    given = request.headers.get("content-type")
    return "none" if given is None else ascii(given[:100])
