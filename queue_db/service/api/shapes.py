"""The shapes that requests and responses of several subjects share: names, ids, times, jobs, leases."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Annotated, Any, Literal, Self

from fastapi import Path, Query
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo, WithJsonSchema
from pydantic_core import PydanticCustomError

from queue_db.model import Job, PresentState
from queue_db.monitoring.model import Finished
from queue_db.service.http.times import Time
from queue_db.steps import Step
from queue_db.store.schema import KIND_LENGTH, QUEUE_LENGTH, WORKER_LENGTH

#: What stands in place of a value that is not shown.
MASK = "***"

# Deeper values of a payload are not shown: JSON of any depth can be stored, but not every reader can parse it.
DEEPEST = 100

_RFC3339 = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)", re.ASCII)


def _moment(value: object) -> object:
    if isinstance(value, str) and _RFC3339.fullmatch(value):
        try:
            return datetime.fromisoformat(value.upper())
        except ValueError as error:
            raise PydanticCustomError("time", "must be a time that exists: {why}", {"why": str(error)}) from None
    raise PydanticCustomError("time", "must be a time with a time zone (RFC 3339), such as 2026-11-23T08:00:00Z")


#: A time in a request.
Moment = Annotated[
    datetime,
    BeforeValidator(_moment),
    WithJsonSchema({"type": "string", "format": "date-time", "examples": ["2026-11-23T08:00:00Z"]}),
]

#: An id in a body: digits, since not every language has integers of 64 bits.
Id = Annotated[str, Field(pattern=r"^[0-9]{1,19}$", examples=["17"])]

#: An id in a path.
PathId = Annotated[str, Path(pattern=r"^[0-9]{1,19}$", description="The id, digits.")]

QueueName = Annotated[str, Field(min_length=1, max_length=QUEUE_LENGTH, description="Name of a queue.")]
KindName = Annotated[str, Field(min_length=1, max_length=KIND_LENGTH, description="Name that selects the handler.")]
WorkerName = Annotated[str, Field(min_length=1, max_length=WORKER_LENGTH, description="The name that claimed jobs show.")]

#: Most seconds of a delay or a lifetime: a hundred years.
LONGEST_SECONDS = 3_155_760_000
Seconds = Annotated[float, Field(ge=0, le=LONGEST_SECONDS, allow_inf_nan=False, description="Seconds.")]

#: Longest wait of a claim, seconds. Proxies often cut a request after a minute.
LONGEST_WAIT = 50.0

#: Longest lease over HTTP, seconds: 30 days. A client that is gone for good holds what it has claimed until then.
LONGEST_LEASE = 2_592_000
LeaseSeconds = Annotated[
    float, Field(gt=0, le=LONGEST_LEASE, allow_inf_nan=False, description="Seconds until the lease ends; settle or extend within.")
]

After = Annotated[
    str | None, Query(max_length=500, description="`after` of the previous page; without it the first page is returned.")
]
Limit = Annotated[int, Query(ge=1, le=1000, description="Most entries of the page.")]


class Request(BaseModel):
    """A body that a client sends: unknown fields are refused, and numbers are numbers."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Lease(Request):
    """Identifies one lease. Only who claimed the job knows the token."""

    id: Id
    version: Annotated[str, Field(pattern=r"^[0-9]{1,19}$", description="The fencing token; changes when the lease is extended.")]
    token: Annotated[str, Field(min_length=1, max_length=100, description="Secret of the claim.")]


class View(BaseModel):
    """A body that the service sends: of an object with attributes of these names."""

    model_config = ConfigDict(coerce_numbers_to_str=True)

    @classmethod
    def of(cls, one: object, masked: tuple[str, ...] = ()) -> Self:
        """The object, or the mapping, for a response.

        :param masked: keys whose values are not shown in fields of the type :data:`Shown`.
        """
        given = one if isinstance(one, Mapping) else {name: getattr(one, name) for name in cls.model_fields if hasattr(one, name)}
        texts = {name: clean(value) if isinstance(value, str) else value for name, value in given.items()}
        return cls.model_validate(texts, context=masked)


def _shown_field(value: Any, info: ValidationInfo) -> Any:
    return shown(value, info.context or ())


#: A stored value in a response, see :func:`shown`.
Shown = Annotated[Any, BeforeValidator(_shown_field)]
ShownObject = Annotated[dict[str, Any], BeforeValidator(_shown_field)]


class JobView(View):
    """A job as it is at the time of the call."""

    id: Id
    queue: str
    kind: str
    payload: Shown = Field(description="Values of masked keys are shown as `***`.")
    headers: ShownObject
    priority: int = Field(description="Lower number first.")
    state: PresentState
    available_at: Time = Field(
        description="When it is due; while it runs the end of its lease; for a dead job when it died. Far away if blocked."
    )
    version: str = Field(description='Grows with every change. The ETag of the job is `"id:version"`.')
    attempts: int
    max_attempts: int
    unique_key: str | None
    worker: str | None = Field(description="Who claimed it last.")
    created_at: Time
    last_error: str | None
    group: str | None
    progress: float | None = Field(description="0 to 1.")
    progress_note: str | None


class StepView(View):
    """What a job has done, or waits for. Its value is not shown."""

    what: Literal["step", "sleep", "signal", "state"]
    name: str = Field(description="Empty for the state, and for a sleep without a name.")
    done: bool = Field(description="False: a loop that goes on, a sleep that lasts, a signal that the job waits for.")
    changed_at: Time = Field(description="When it was finished, or begun.")
    ends_at: Time | None = Field(description="The end of a sleep or of a wait.")


class JobDetail(JobView):
    """A job with its steps."""

    steps: list[StepView]


class JobPage(BaseModel):
    """Some jobs, and where to go on."""

    jobs: list[JobView]
    after: str | None = Field(description="For the next page; null: no more. A page may be short although more follow.")


class FinishedView(View):
    """A completed job with its retained result, until it expires."""

    id: Id
    queue: str
    kind: str
    state: Literal["completed"] = "completed"
    payload: Shown
    result: Shown
    attempts: int
    worker: str | None
    created_at: Time
    finished_at: Time
    expires_at: Time


class JobCount(BaseModel):
    """How many jobs a change has affected."""

    count: int


def shown(value: Any, masked: Collection[str] = ()) -> Any:
    """A stored value as every reader of JSON accepts it, without the values of masked keys; case, ``-`` and ``_`` do not matter."""
    return _shown(value, plain_keys(tuple(masked)), 0)


@lru_cache(maxsize=16)
def plain_keys(masked: tuple[str, ...]) -> frozenset[str]:
    """The masked keys as :func:`plain` makes them."""
    return frozenset(plain(key) for key in masked)


def plain(key: str) -> str:
    """A key in the form in which it is compared."""
    return key.replace("-", "").replace("_", "").casefold()


def _shown(value: Any, wanted: frozenset[str], depth: int) -> Any:
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping | list | tuple):
        return "…" if depth > DEEPEST else _shown_inside(value, wanted, depth + 1)
    return clean(str(value))  # a text; or a codec of the application's has returned something else


def _shown_inside(value: Mapping[Any, Any] | list[Any] | tuple[Any, ...], wanted: frozenset[str], depth: int) -> Any:
    if isinstance(value, Mapping):
        return {
            clean(str(key)): MASK if wanted and plain(str(key)) in wanted else _shown(one, wanted, depth)
            for key, one in value.items()
        }
    return [_shown(one, wanted, depth) for one in value]


def clean(text: str) -> str:
    """The text without lone surrogates, which UTF-8 cannot encode."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def job_view(job: Job, masked: tuple[str, ...] = ()) -> JobView:
    """A job for a response."""
    return JobView.of(job, masked)


def job_detail(job: Job, steps: Sequence[Step], masked: tuple[str, ...] = ()) -> JobDetail:
    """A job with its steps for a response."""
    given = {name: getattr(job, name) for name in JobView.model_fields}
    return JobDetail.of({**given, "steps": [StepView.of(one) for one in steps]}, masked)


def finished_view(job: Finished, masked: tuple[str, ...] = ()) -> FinishedView:
    """A completed job for a response."""
    return FinishedView.of(job, masked)
