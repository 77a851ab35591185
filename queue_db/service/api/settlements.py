"""Settlements: what became of leased jobs, many in one request or each by its own URL."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal, Self

from fastapi import APIRouter, Request, Response
from msgspec import Struct
from pydantic import BaseModel, Field, model_validator
from pydantic_core import PydanticCustomError

from queue_db.codecs import described
from queue_db.database.masking import mask, secrets_in
from queue_db.errors import PayloadError, StorageError
from queue_db.leased_job import LeasedJob
from queue_db.model import MOST_VERSION, StoredResult, Verdict
from queue_db.queue import Queue
from queue_db.service.api import shapes
from queue_db.service.api.answers import WrittenLease, encode
from queue_db.service.api.quick import QuickFailure, QuickSettlement
from queue_db.service.api.shapes import LONGEST_LEASE, Id, Lease, LeaseSeconds, Seconds
from queue_db.service.http.paths import Name
from queue_db.service.http.requests import Db, WorkerClient, of
from queue_db.service.http.times import Time, rfc3339
from queue_db.service.live.leases import Leases
from queue_db.verbs.claim import MAX_CLAIM

log = logging.getLogger("queue_db.service")

router = APIRouter(tags=["settlements"])

Results = Sequence[StoredResult | None]
SettledAs = Literal["applied", "lost", "unknown"]
_LONG = 100_000

# Verbs that need of a job only what is remembered of a lease.
_WITHOUT_PAYLOAD = frozenset({"complete", "snooze", "release", "extend"})


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
def settle_jobs(queue: Name, body: Settlements, db: Db, who: WorkerClient, request: Request) -> Response:
    """Settle leased jobs of one queue: a transaction for each verb, and a verdict for each job.

    A lost lease is no error: another worker has the job, or it is gone. If the database fails after some jobs are settled, the
    verdict of the others is `unknown`.
    """
    who.check("work", queue)
    source = db.queue(queue)
    given: Sequence[Given] = body.settlements
    # All that can be wrong in a request is found before the first job is settled.
    results = [retained(source, one.result, one.result_ttl) if one.verb == "complete" else None for one in given]
    handed = of(request).leases
    leases = _leases(handed, source, given)
    verdicts: list[SettledAs] = ["lost" if lease is None else "unknown" for lease in leases]
    by_verb: dict[tuple[str, float | None], list[int]] = {}
    for position, (one, lease) in enumerate(zip(given, leases, strict=True)):
        if lease is not None:
            by_verb.setdefault((one.verb, one.seconds if one.verb in {"snooze", "extend"} else None), []).append(position)
    for (verb, seconds), positions in by_verb.items():
        jobs = [job for at in positions if (job := leases[at]) is not None]
        try:
            found = _VERBS[verb](source, jobs, [given[at] for at in positions], [results[at] for at in positions], seconds or 0.0)
        except StorageError as error:
            if "applied" not in verdicts:
                raise
            log.warning("only some jobs were settled: %s", mask(str(error), secrets_in(db.database.engine.url)))
            break
        for at, verdict in zip(positions, found, strict=True):
            verdicts[at] = verdict.value
    handed.remember(
        (lease, lease.snapshot_row())
        for one, lease, verdict in zip(given, leases, verdicts, strict=True)
        if lease is not None and one.verb == "extend" and verdict == "applied"
    )
    settled = [_settled(*each) for each in zip(given, leases, verdicts, strict=True)]
    return Response(encode(WrittenVerdicts(settled)), media_type="application/json")


def _leases(handed: Leases, source: Queue, given: Sequence[Given]) -> list[LeasedJob | None]:
    """The leased jobs: those that were handed out here from memory, if their verdict needs no payload, the others read."""
    wanted = [(int(one.lease.id), _version(one.lease.version), one.lease.token) for one in given]
    known = handed.take(source, wanted)
    found = [
        job if one.verb in _WITHOUT_PAYLOAD and one.result_ttl is None else None for one, job in zip(given, known, strict=True)
    ]
    read = iter(source.leases_from_tokens([lease for lease, job in zip(wanted, found, strict=True) if job is None]))
    return [next(read) if job is None else job for job in found]


def _settled(one: Given, lease: LeasedJob | None, verdict: SettledAs) -> WrittenVerdict:
    if one.verb == "extend" and verdict == "applied" and lease is not None:
        now = WrittenLease(str(lease.id), str(lease.version), lease.token)
        return WrittenVerdict(one.lease.id, verdict, now, rfc3339(lease.lease_expires))
    return WrittenVerdict(one.lease.id, verdict)


def lease_view(job: LeasedJob) -> Lease:
    """The lease of a job as it is now."""
    return Lease(id=str(job.id), version=str(job.version), token=job.token)


def _version(text: str) -> int:
    return min(int(text), MOST_VERSION)


def retained(queue: Queue, result: Any, result_ttl: float | None) -> StoredResult | None:
    """The result to retain of a completed job."""
    if result_ttl is None:
        return None
    try:
        text = None if result is None else queue.core.codec.encode(result)
    except (TypeError, ValueError, RecursionError) as error:
        raise PayloadError(reason=described(error), subject="result of job") from error
    return StoredResult(text, round(result_ttl * 1_000_000))


def _complete(queue: Queue, jobs: Sequence[LeasedJob], _: Sequence[Given], results: Results, __: float) -> list[Verdict]:
    return queue.complete_many(jobs, results=results) if any(results) else queue.complete_many(jobs)


def _fail(queue: Queue, jobs: Sequence[LeasedJob], given: Sequence[Given], _: Results, __: float) -> list[Verdict]:
    return queue.fail_many(jobs, [error_of(one.error) for one in given], retry_in=[one.retry_in for one in given])


def _bury(queue: Queue, jobs: Sequence[LeasedJob], given: Sequence[Given], _: Results, __: float) -> list[Verdict]:
    return queue.bury_many(jobs, [error_of(one.error) for one in given])


_VERBS: dict[str, Callable[[Queue, list[LeasedJob], list[Given], Results, float], list[Verdict]]] = {
    "complete": _complete,
    "fail": _fail,
    "bury": _bury,
    "snooze": lambda queue, jobs, _, __, seconds: queue.snooze_many(jobs, seconds),
    "extend": lambda queue, jobs, _, __, seconds: queue.extend_many(jobs, seconds),
    "release": lambda queue, jobs, _, __, ___: queue.release_many(jobs),
    "cancel": lambda queue, jobs, _, __, ___: queue.cancel_many(jobs),
}
