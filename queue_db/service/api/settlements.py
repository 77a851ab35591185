"""Settlements: what became of leased jobs, many in one request or each by its own URL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from fastapi import APIRouter, Request, Response
from msgspec import Struct
from pydantic import BaseModel, Field, model_validator
from pydantic_core import PydanticCustomError

from queue_db.codecs import described
from queue_db.errors import PayloadError
from queue_db.leased_job import LeasedJob, own_token
from queue_db.model import StoredResult
from queue_db.queue import Queue
from queue_db.service.api import shapes
from queue_db.service.api.answers import WrittenLease
from queue_db.service.api.quick import QuickFailure, QuickSettlement
from queue_db.service.api.shapes import LONGEST_LEASE, Id, Lease, LeaseSeconds, Seconds
from queue_db.service.http.paths import Name
from queue_db.service.http.requests import Db, WorkerClient
from queue_db.service.http.times import Time
from queue_db.verbs.claim import MAX_CLAIM

if TYPE_CHECKING:
    from queue_db.service.api.group_settlement import Settling

router = APIRouter(tags=["settlements"])

SettledAs = Literal["applied", "lost", "unknown"]
_LONG = 100_000


class Failure(shapes.Request):
    """Why an attempt failed."""

    message: Annotated[str, Field(max_length=_LONG)]
    error_class: Annotated[str, Field(max_length=200, description="Class of the error; failures are grouped by it.")] = ""
    trace: Annotated[str | None, Field(max_length=_LONG, description="Traceback or stack, as text.")] = None


class Fail(shapes.Request):
    """The attempt failed: a retry after `retry_in` seconds or the backoff; after the last attempt the job is dead."""

    error: Failure
    retry_in: Annotated[Seconds | None, Field(description="Default: the backoff.")] = None


class Bury(shapes.Request):
    """The job goes to the dead table: a retry would not help."""

    error: Failure


class Complete(shapes.Request):
    """The work is done: the job leaves the queue."""

    result: Annotated[Any, Field(description="Retained for `result_ttl` seconds.")] = None
    result_ttl: Annotated[Seconds | None, Field(gt=0, description="Default: no result is retained.")] = None


class Snooze(shapes.Request):
    """The job is due again in `seconds`; not an attempt."""

    seconds: Seconds


class Extend(shapes.Request):
    """The lease ends `seconds` from now; its version changes."""

    seconds: LeaseSeconds


class Progress(shapes.Request):
    """How far the job is."""

    fraction: Annotated[float, Field(ge=0, le=1)]
    note: Annotated[str | None, Field(max_length=1000, description="A short text, cut at 200 characters.")] = None


class Settlement(shapes.Request):
    """What became of one job; `verb` says which of the other fields count."""

    lease: Lease
    verb: Literal["complete", "fail", "snooze", "release", "extend", "cancel", "bury"]
    result: Annotated[Any, Field(description="complete: retained for `result_ttl` seconds.")] = None
    result_ttl: Annotated[Seconds | None, Field(gt=0, description="complete; default: no result is retained.")] = None
    error: Annotated[Failure | None, Field(description="fail and bury: why.")] = None
    retry_in: Annotated[Seconds | None, Field(description="fail; default: the backoff.")] = None
    seconds: Annotated[Seconds | None, Field(description=f"snooze; extend: more than 0, at most {LONGEST_LEASE}.")] = None

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.verb in {"snooze", "extend"} and self.seconds is None:
            raise PydanticCustomError("seconds", "seconds is missing: {verb} needs it", {"verb": self.verb})
        if self.verb == "extend" and not 0 < (self.seconds or 0) <= LONGEST_LEASE:
            raise PydanticCustomError(
                "seconds", "seconds must be more than 0 and at most {most} to extend a lease", {"most": LONGEST_LEASE}
            )
        return self


class Settlements(shapes.Request):
    """What became of several jobs."""

    settlements: Annotated[list[Settlement], Field(min_length=1, max_length=MAX_CLAIM)]


class SettledJob(BaseModel):
    """What became of one settlement."""

    id: Id
    verdict: SettledAs = Field(
        description="lost: the lease was lost before; nothing has changed. unknown: the database failed after other jobs of this "
        "request were settled; settle this job again."
    )
    lease: Lease | None = Field(default=None, description="After `extend`: the lease as it is now.")
    lease_expires: Time | None = None


class Verdicts(BaseModel):
    """A verdict for each settlement, by position."""

    verdicts: list[SettledJob]


#: A settlement of a request.
Given = Settlement | QuickSettlement


class WrittenVerdict(Struct, gc=False):
    """A :class:`SettledJob`."""

    id: str
    verdict: SettledAs
    lease: WrittenLease | None = None
    lease_expires: str | None = None


class WrittenVerdicts(Struct, gc=False):
    """A :class:`Verdicts`."""

    verdicts: list[WrittenVerdict]


class RemoteError(Exception):
    """An error that a client has reported."""


def error_of(failure: Failure | QuickFailure | None) -> BaseException | str:
    """The reported error, as the verbs take it: with the name of its class and its trace."""
    if failure is None:
        return "the client gave no reason"
    name = "".join(character for character in failure.error_class if character.isprintable())
    if not name and failure.trace is None:
        return failure.message
    error: BaseException = type(name or RemoteError.__name__, (RemoteError,), {"__module__": "builtins"})(failure.message)
    if failure.trace is not None:
        error.add_note(failure.trace)
    return error


@router.post("/queues/{queue}/settlements", response_model=Verdicts)
async def settle_jobs(queue: Name, body: Settlements, db: Db, who: WorkerClient, request: Request) -> Response:
    """Settle leased jobs of one queue: a transaction for each verb, and a verdict for each job.

    A lost lease is no error: another worker has the job, or it is gone. If the database fails after some jobs are settled, the
    verdict of the others is `unknown`.
    """
    who.check("work", queue)
    settling: Settling = request.app.state.settling
    content = await settling.settle(db.queue(queue).name, body.settlements)
    return Response(content, media_type="application/json")


def lease_view(job: LeasedJob) -> Lease:
    """The lease of a job as it is now."""
    return Lease(id=str(job.id), version=str(job.version), token=own_token(job.token, job.id))


def retained(queue: Queue, result: Any, result_ttl: float | None) -> StoredResult | None:
    """The result to retain of a completed job."""
    if result_ttl is None:
        return None
    try:
        text = None if result is None else queue.core.codec.encode(result)
    except (TypeError, ValueError, RecursionError) as error:
        raise PayloadError(reason=described(error), subject="result of job") from error
    return StoredResult(text, round(result_ttl * 1_000_000))
