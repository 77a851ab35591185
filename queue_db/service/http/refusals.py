"""What the service itself refuses, with its status: preconditions, and too many requests or jobs."""

from __future__ import annotations

from dataclasses import dataclass, field

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from starlette.types import Scope

from queue_db.service.http.errors import INVALID, problem
from queue_db.service.http.requests import Service, of
from queue_db.service.live.incidents import IncidentType, described


@dataclass(eq=False)
class RefusedError(Exception):
    """A request is refused."""

    status: int
    #: The same for all refusals of this ``code``.
    title: str
    detail: str
    #: Names the sort of problem, for programs.
    code: str = field(kw_only=True)
    #: Seconds after which it may be sent again.
    retry_after: int | None = field(default=None, kw_only=True)
    #: Recorded, with the request.
    incident: IncidentType | None = field(default=None, kw_only=True)


def invalid(detail: str) -> RefusedError:
    """422: parts of the request do not go together."""
    return RefusedError(422, INVALID[0], detail, code=INVALID[1])


def missing(what: str, detail: str) -> RefusedError:
    """404: there is no such feed, route or other thing."""
    return RefusedError(404, f"There is no such {what}", detail, code=f"no_such_{what}")


def unconditional(detail: str) -> RefusedError:
    """428: a change needs to say what it is a change of."""
    return RefusedError(428, "If-Match is missing or names no version", detail, code="precondition_required")


def stale(detail: str) -> RefusedError:
    """412: the job is not as the request supposes."""
    return RefusedError(412, "The job has changed, or the lease is lost", detail, code="stale")


def record(error: RefusedError, service: Service, scope: Scope) -> None:
    """Record a refusal that is an incident."""
    if error.incident is not None:
        service.incidents.record(error.incident, f"{described(scope)}: {error.detail}")


def answer(error: RefusedError, service: Service, scope: Scope) -> JSONResponse:
    """The response to a refused request, which is recorded if it is an incident."""
    record(error, service, scope)
    response = problem(error.status, error.title, error.detail, code=error.code)
    if error.retry_after is not None:
        response.headers["Retry-After"] = str(error.retry_after)
    return response


def install(app: FastAPI) -> None:
    """Let the application answer refusals."""

    async def on_refused(request: Request, error: Exception) -> JSONResponse:
        if not isinstance(error, RefusedError):
            raise error
        return answer(error, of(request), request.scope)

    app.add_exception_handler(RefusedError, on_refused)
