"""What the service itself refuses, with its status: preconditions, and too many requests or jobs."""

from __future__ import annotations

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse

from queue_db.service.errors import problem


class RefusedError(Exception):
    """A request is refused.

    :param retry_after: seconds after which it may be sent again.
    """

    def __init__(self, status: int, title: str, detail: str | None = None, *, retry_after: int | None = None) -> None:
        super().__init__(title)
        self.status = status
        self.title = title
        self.detail = detail
        self.retry_after = retry_after


def stale(detail: str) -> RefusedError:
    """412: the job is not as the request supposes."""
    return RefusedError(412, "The job has changed, or the lease is lost", detail)


def install(app: FastAPI) -> None:
    """Let the application answer refusals."""

    async def on_refused(_request: Request, error: Exception) -> JSONResponse:
        if not isinstance(error, RefusedError):
            raise error
        response = problem(error.status, error.title, error.detail)
        if error.retry_after is not None:
            response.headers["Retry-After"] = str(error.retry_after)
        return response

    app.add_exception_handler(RefusedError, on_refused)
