"""Errors as ``application/problem+json`` (RFC 9457): without URLs, SQL or traces of the server."""

from __future__ import annotations

import json
import traceback
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from types import EllipsisType
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import Scope

from queue_db import errors
from queue_db.database.masking import mask, secrets_in
from queue_db.operations.actor import ForbiddenError
from queue_db.service.auth.identity import UnauthorizedError
from queue_db.service.auth.login import problem_page, to_login
from queue_db.service.auth.session import CrossSiteError, LoginNeededError
from queue_db.service.http.requests import Service, of
from queue_db.service.live.incidents import IncidentType, described


class InvalidPart(BaseModel):
    """What is wrong at one place of a request."""

    where: str
    what: str


class Problem(BaseModel):
    """Why a request was not done (RFC 9457). Some have more, such as the ``state`` of a job."""

    model_config = ConfigDict(extra="allow")

    type: str
    code: str | None = Field(
        default=None, description="Names the sort of problem, as `type` does; where the status says all, none."
    )
    status: int
    title: str
    detail: str | None = None
    errors: list[InvalidPart] | None = Field(default=None, description="422: what is wrong, by place.")


@dataclass(frozen=True, slots=True)
class Kind:
    """How an error is answered. ``detail``: the error's own text is shown; ``more``: these attributes of it, too.

    ``code``: of an error that has none itself.
    """

    status: int
    title: str
    detail: bool = True
    more: tuple[str, ...] = ()
    headers: tuple[tuple[str, str], ...] = ()
    code: str = ""


#: Headers of a problem that its page has too.
_KEPT = frozenset({"retry-after", "www-authenticate", "allow"})

#: Title and code of the problem of a request whose parts are not as they must be.
INVALID = ("The request is not valid", "invalid_request")

# Methods that operations and pages have; HEAD goes with GET.
_METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")

# Frames of a bug's trace in the log, those nearest to it.
_FRAMES = 30

#: Of a problem that may be over soon.
AGAIN = {"Retry-After": "1"}
#: The tables do not fit.
MIGRATE = "The tables are missing or of another version: run queue-db migrate"

# Places in the detail of an invalid request.
_FEW = 3

#: By class; the nearest class of an error's own line counts.
KINDS: dict[type[Exception], Kind] = {
    errors.JobNotFoundError: Kind(404, "There is no such job"),
    errors.GraphNotFoundError: Kind(404, "There is no such graph"),
    errors.JobDeadError: Kind(404, "The job is dead"),
    errors.JobNotFinishedError: Kind(404, "The job is not completed yet", more=("state",)),
    errors.JobStateError: Kind(409, "The job's state does not allow this", more=("state",)),
    errors.UnknownKindError: Kind(422, "There is no handler for this kind"),
    errors.DuplicateJobError: Kind(409, "The unique key is taken"),
    errors.StagingError: Kind(409, "What was staged is not complete"),
    errors.LeaseLostError: Kind(412, "The lease is lost"),
    errors.PayloadError: Kind(422, "The payload cannot be stored"),
    errors.ArgumentError: Kind(422, "A value is not allowed"),
    errors.UnsupportedError: Kind(501, "The database cannot do this"),
    errors.SchemaOutOfDateError: Kind(503, MIGRATE, detail=False, headers=tuple(AGAIN.items())),
    errors.ConfigurationError: Kind(503, "The service is not set up for this; its log has the reason", detail=False),
    errors.EnqueueError: Kind(409, "The job was not enqueued"),
    errors.HandlerProcessError: Kind(409, "The process of a handler has ended"),
    errors.HandlerResultError: Kind(409, "A handler returned what cannot be the outcome of a job"),
    errors.TrimmedError: Kind(410, "Messages after this position were trimmed", more=("skipped", "first")),
    errors.IdempotencyKeyError: Kind(422, "The idempotency key was used for another request"),
    errors.PositionError: Kind(422, "This is not a position of the feed"),
    errors.CursorHeldError: Kind(409, "Another process holds the cursor"),
    errors.UnknownClaimError: Kind(404, "There is no such claim"),
    errors.ClaimExpiredError: Kind(410, "The claim has ended"),
    errors.MessageNotClaimedError: Kind(412, "The message is not under this claim"),
    errors.MessageClaimedError: Kind(409, "The message is claimed"),
    errors.ClaimError: Kind(409, "The claim does not allow this"),
    errors.NoSuchFeedError: Kind(404, "There is no such feed"),
    errors.NoSuchCursorError: Kind(404, "There is no such cursor"),
    errors.FeedError: Kind(409, "The feed cannot do this"),
    errors.RouteError: Kind(404, "There is no such route or definition"),
    errors.NoSuchStreamError: Kind(404, "There is no such stream"),
    errors.StreamFencedError: Kind(409, "Another reader has taken the stream over"),
    errors.CheckpointMismatchError: Kind(409, "The checkpoint is of another history"),
    errors.StreamError: Kind(409, "The stream cannot go on"),
    errors.TransientStorageError: Kind(503, "The database does not answer", detail=False, headers=tuple(AGAIN.items())),
    errors.PermanentStorageError: Kind(503, "The database refuses this; the service's log has the reason", detail=False),
    errors.StorageError: Kind(503, "The database refuses this; the service's log has the reason", detail=False),
    errors.QueueDBError: Kind(409, "This cannot be done now"),
    UnauthorizedError: Kind(
        401, "A valid token is needed", detail=False, headers=(("WWW-Authenticate", "Bearer"),), code="unauthorized"
    ),
    ForbiddenError: Kind(403, "The token does not allow this", code="forbidden"),
    CrossSiteError: Kind(403, "The form is too old, or of another site: load the page again", detail=False, code="cross_site"),
    LoginNeededError: Kind(401, "Log in first", detail=False, code="login_needed"),
}


#: Refusals that are incidents.
_REFUSED: dict[type[Exception], IncidentType] = {
    UnauthorizedError: IncidentType.UNAUTHORIZED,
    ForbiddenError: IncidentType.FORBIDDEN,
    CrossSiteError: IncidentType.CROSS_SITE,
}


def problem(
    status: int, title: str, detail: str | None = None, *, headers: Mapping[str, str] | None = None, code: str = "", **more: Any
) -> JSONResponse:
    """A problem as a response. ``code``: names its sort, for programs; without it the status does."""
    kind = {"type": f"urn:queue-db:problem:{code.replace('_', '-')}", "code": code} if code else {"type": "about:blank"}
    content = Problem.model_validate({**kind, "status": status, "title": title, **({"detail": detail} if detail else {}), **more})
    return JSONResponse(content.model_dump(exclude_unset=True), status, headers, media_type="application/problem+json")


def plain(status: int, detail: str | None, *, headers: Mapping[str, str] | None = None) -> JSONResponse:
    """A problem that its status says; ``detail``: how it is of this request."""
    return problem(status, HTTPStatus(status).phrase, detail, headers=headers)


def answer(error: Exception, service: Service | None = None, scope: Scope | None = None) -> Response:
    """The response to an error. ``service``: records it as an incident; ``scope``: of the request."""
    found = next((base for base in type(error).__mro__ if base in KINDS), None)
    if found is None:
        report(error, service, scope)
        return problem(500, "This is a bug in queue_db; the service's log has it", code="bug")
    kind = KINDS[found]
    if service is not None:
        record(error, kind.status, service, scope)
    more = {name: getattr(error, name) for name in kind.more}
    if isinstance(error, errors.StorageError):
        more["outcome_unknown"] = error.outcome_unknown
    return problem(
        kind.status,
        kind.title,
        _detail(error) if kind.detail else None,
        headers=dict(kind.headers),
        code=error.code if isinstance(error, errors.QueueDBError) else kind.code,
        **more,
    )


def _detail(error: Exception) -> str:
    return error.wire if isinstance(error, errors.QueueDBError) else str(error)


def report(error: Exception, service: Service | None, scope: Scope | None) -> None:
    """Record a bug with its trace, without passwords."""
    if service is not None:
        trace = mask("".join(traceback.format_exception(error, limit=-_FRAMES)), _secrets(service))
        service.incidents.record(IncidentType.BUG, described(scope or {}), trace=trace)


def record(error: Exception, status: int, service: Service, scope: Scope | None) -> None:
    """Record what was refused, or failed."""
    service.outage.note(error)
    found = next((type_ for cls, type_ in _REFUSED.items() if isinstance(error, cls)), None)
    if found is not None:
        service.incidents.record(found, described(scope or {}))
    elif status >= 500:
        why = mask(f"{type(error).__name__}: {error}", _secrets(service))
        service.incidents.record(IncidentType.REQUEST_FAILED, f"{described(scope or {})}: {why}")


def _secrets(service: Service) -> list[str]:
    return secrets_in(service.db.database.engine.url)


#: Makes a page of a problem; None: this person gets the plain one.
Page = Callable[[Request, "Told"], Awaitable[Response | None]]


@dataclass(frozen=True, slots=True)
class Told:
    """A problem in the words of a page. ``advice``: what a person can do."""

    status: int
    title: str
    detail: str | None
    advice: str


# Titles and details of pages, where those of the API are about requests.
# ``...``: the detail is the same.
_IN_PAGES: dict[str | int, tuple[str, str | EllipsisType | None]] = {
    403: ("This is not allowed", ...),
    404: ("There is no such page", None),
    413: ("The form is too large", ...),
    421: ("The service has another name", ...),
    405: ("There is no such page", "A form is sent to this address, and nothing is shown at it."),
    "cross_site": ("This form is too old", "The page was loaded before you logged in, or the form is of another site."),
    "invalid_request": ("The address is not valid", "A part of it is missing or outside its range."),
}

_BY_CODE = {
    "read_only": "Who runs the service knows why.",
    "cross_site": "Load the page again, and send the form from there.",
    "schema_out_of_date": "Who runs the service does this.",
    "permanent_storage": "Who runs the service can look there.",
    "storage": "Who runs the service can look there.",
    "configuration": "Who runs the service can look there.",
    "bug": "Who runs the service can look there.",
}

_BY_STATUS = {
    403: "Log out, and log in with a token that allows it.",
    404: "The address may be mistyped, or what it showed may have left.",
    429: "Try again later.",
    503: "Load the page again in a moment.",
}


def told(request: Request, content: Mapping[str, Any]) -> Told:
    """The problem of a response in the words of a page."""
    status, code = content["status"], content.get("code", "")
    title, detail = content["title"], content.get("detail")
    own = _IN_PAGES.get(code) or (_IN_PAGES.get(status) if title == HTTPStatus(status).phrase else None)
    if own is not None:
        title, detail = own[0], detail if own[1] is ... else own[1]
    advice = _BY_CODE.get(code) or (_BY_STATUS.get(status, "") if status != 403 or code else "")
    if request.method == "POST":
        if status == 422:
            advice = "Go back, correct it, and send the form again."
        # What fails on the way may have committed a part: a purge deletes in portions.
        changed = (
            "It is not known whether anything was changed: look before you send the form again."
            if content.get("outcome_unknown") or status >= 500
            else "Nothing was changed."
        )
        advice = f"{changed} {'' if status == 404 else advice}".rstrip()
    return Told(status, title, None if detail is None else _sentence(detail), advice)


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}{'' if text.endswith(('.', '!', '?')) else '.'}"


async def _for(request: Request, response: Response, page: Page) -> Response:
    """The problem as a page, where a browser wants to show one."""
    if not _is_for_person(request) or not isinstance(response, JSONResponse):
        return response
    made = await page(request, told(request, json.loads(bytes(response.body))))
    if made is None:
        return for_anybody(request, response)
    made.headers.update(_kept(response))
    return made


def for_anybody(request: Request, response: JSONResponse) -> Response:
    """The problem as a page that shows nothing of the database, where a browser wants to show one."""
    if not _is_for_person(request):
        return response
    one = told(request, json.loads(bytes(response.body)))
    return problem_page(request, one.status, one.title, one.detail, one.advice, _kept(response))


def _is_for_person(request: Request) -> bool:
    return "text/html" in request.headers.get("accept", "") and "/api/" not in request.scope["path"]


def _kept(response: Response) -> dict[str, str]:
    return {name: value for name, value in response.headers.items() if name in _KEPT}


def install(app: FastAPI, page: Page) -> None:
    """Let the application answer errors so, and show those of people with ``page``."""

    async def on_error(request: Request, error: Exception) -> Response:
        return await _for(request, answer(error, of(request), request.scope), page)

    async def on_login(request: Request, error: Exception) -> Response:
        return to_login(request)

    async def on_http(request: Request, error: Exception) -> Response:
        if not isinstance(error, HTTPException):
            return await on_error(request, error)
        headers = dict(error.headers or {})
        if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
            headers["Allow"] = ", ".join(_methods(request))
            if request.method == "OPTIONS":
                return Response(status_code=204, headers=headers)
        own = error.detail != HTTPStatus(error.status_code).phrase
        detail = str(error.detail) if own else _no_operation(request, error.status_code, headers)
        return await _for(request, plain(error.status_code, detail, headers=headers), page)

    async def on_invalid(request: Request, error: Exception) -> Response:
        if not isinstance(error, RequestValidationError):
            return await on_error(request, error)
        places = [{"where": ".".join(map(str, one["loc"])), "what": one["msg"]} for one in error.errors()]
        return await _for(request, problem(422, INVALID[0], _list(places), code=INVALID[1], errors=places), page)

    for kind in KINDS:
        app.add_exception_handler(kind, on_error)
    app.add_exception_handler(LoginNeededError, on_login)
    app.add_exception_handler(HTTPException, on_http)
    app.add_exception_handler(RequestValidationError, on_invalid)


def _methods(request: Request) -> list[str]:
    """The methods of this path: each of its routes has some."""
    routes = request.app.router.routes
    found = [one for one in _METHODS if any(route.matches({**request.scope, "method": one})[0] is Match.FULL for route in routes)]
    return [*found, *(["HEAD"] if "GET" in found else []), "OPTIONS"]


def _no_operation(request: Request, status: int, headers: Mapping[str, str]) -> str | None:
    """The detail of the answer to a path or method that is not there."""
    if status == HTTPStatus.METHOD_NOT_ALLOWED:
        return f"{request.method} is no method of this path; it has {headers['Allow']}"
    if status == HTTPStatus.NOT_FOUND:
        return f"there is no such path; {request.scope.get('root_path', '')}/api/v1/openapi.json describes those that there are"
    return None


def _list(places: list[dict[str, str]]) -> str:
    """The first places of what is wrong, for people; programs read ``errors``."""
    more = f"; and {len(places) - _FEW} more" if len(places) > _FEW else ""
    return "; ".join(f"{one['where']}: {one['what']}" for one in places[:_FEW]) + more
