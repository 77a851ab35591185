"""Which verb settles a job: chosen by what its handler returned or raised. Many jobs are settled by one call of a verb."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from queue_db import arguments
from queue_db.codecs import described, plain
from queue_db.errors import UnknownKindError, text_of
from queue_db.leased_job import LeasedJob
from queue_db.model import DeathReason, RetainedResult, Verdict
from queue_db.outcomes import Cancel, Dead, Retry, Snooze
from queue_db.queue import Queue
from queue_db.worker.events import EventType
from queue_db.worker.handlers import Handling
from queue_db.worker.logs import about
from queue_db.worker.process_main import LostResult

log = logging.getLogger("queue_db.worker")


def is_last(job: LeasedJob) -> bool:
    """Whether the job is dead if this attempt fails: its death is logged then, in place of the failure."""
    return job.attempts >= job.max_attempts


class Unknown(NamedTuple):
    """The outcome of a job of a kind without a handler: it waits for a worker that has one."""

    error: UnknownKindError
    #: For this many seconds; then it is dead.
    grace: float


class LeaseLost(NamedTuple):
    """The outcome of a job in flight whose lease was lost: there is nothing to settle."""


Ticket = object
"""Stands for a result from before its job leaves the jobs in flight until it is reported."""


class Done(NamedTuple):
    """A job whose handler has ended."""

    job: LeasedJob
    handling: Handling | None
    #: What the handler returned or raised.
    outcome: object
    ticket: Ticket
    #: How long it ran, seconds; None: it was not called.
    seconds: float | None = None
    #: For how long the job is kept if it is completed, seconds; None or 0: not at all.
    keep: float | None = None
    #: Why it goes to the dead table, unless its handler decided that.
    reason: DeathReason | None = None
    #: What the handler returned, encoded, if it is kept.
    result: str | None = None


Verb = Callable[[Sequence[Done]], list[Verdict]]


def settle(done: Done) -> Verdict:
    """Settle one job at once."""
    ((verb, ones),) = plan([done])
    return verb(ones)[0]


def plan(batch: Sequence[Done]) -> list[tuple[Verb, Sequence[Done]]]:
    """The verbs that settle these jobs, each with its jobs. Raises nothing: an invalid outcome fails its job."""
    groups: dict[tuple[Queue, str, Any], list[Done]] = {}
    for one in batch:
        done, name, detail = _with_result(*name_of_verb(one))
        groups.setdefault((_queue_of(one.job), name, detail), []).append(done)
    return [(_verb(queue, name, detail), ones) for (queue, name, detail), ones in groups.items()]


def name_of_verb(one: Done) -> tuple[Done, str, Any]:
    """The result as it is reported, the name of the verb, and its argument: seconds of a snooze, the reason of a death."""
    outcome = one.outcome
    detail: Any = None
    match outcome:
        case None if not one.job.settled:
            name = "complete"  # nearly all
        case LeaseLost():
            name = "lost"
        case Unknown():
            name, detail = "defer", (f"parked: {outcome.error}", outcome.grace)
        case Snooze() | Retry() if (wrong := _wrong_seconds(outcome)) is not None:
            if not is_last(one.job):
                log.warning("%r failed: %s", one.job, wrong, extra=about(one.job, EventType.FAILED, one.seconds))
            one, name = one._replace(outcome=wrong), "fail"
        case Snooze():
            name, detail = "snooze", float(outcome.seconds)
        case BaseException() | Retry():
            name = "fail"
        case _ if one.job.settled:
            name = "settled"
        case Dead():
            name, detail = "bury", one.reason or DeathReason.REJECTED
        case _:
            name = "cancel" if isinstance(outcome, Cancel) else "complete"
    return one, name, detail


def _with_result(one: Done, name: str, detail: Any) -> tuple[Done, str, Any]:
    """The same, with the result encoded if it is kept; if that is impossible, the job is dead."""
    if name == "complete" and one.keep:
        try:
            one = one._replace(result=_encoded(one))
        except Exception as error:  # noqa: BLE001 - the codec is the application's
            # Not a failed attempt: the work is done, and another attempt would have the same result.
            text = f"the work is done, but its result cannot be kept: {described(error)}; return texts, numbers, lists and objects"
            return one._replace(outcome=Dead(text)), "bury", DeathReason.PAYLOAD
    return one, name, detail


def _encoded(one: Done) -> str:
    if isinstance(one.outcome, LostResult):
        raise TypeError(f"it cannot be sent from the process of the handler: {one.outcome.problem}")
    codec = _queue_of(one.job).db.codec
    try:
        text: str = codec.encode(one.outcome)
    except Exception:  # noqa: BLE001 - as payloads first; a result has no handler that expects its types
        text = codec.encode(plain(one.outcome))
    return text


def _wrong_seconds(outcome: Snooze | Retry) -> Exception | None:
    try:
        arguments.seconds(f"{type(outcome).__name__}.seconds", 0 if outcome.seconds is None else outcome.seconds)
    except Exception as error:  # noqa: BLE001 - whatever a handler returns fails its own job only
        return error.with_traceback(None)  # ours: no help to the author of the handler
    return None


def _verb(queue: Queue, name: str, detail: Any) -> Verb:
    return {
        "complete": lambda ones: queue.complete_many(_jobs(ones), retained=_retained(ones)),
        "settled": lambda ones: [Verdict.APPLIED for _ in ones],
        "lost": lambda ones: [Verdict.LOST for _ in ones],
        "snooze": lambda ones: queue.snooze_many(_jobs(ones), detail),
        "defer": lambda ones: queue.defer_unknown_many(_jobs(ones), detail[0], grace=detail[1]),
        "cancel": lambda ones: queue.cancel_many(_jobs(ones)),
        "bury": lambda ones: queue.bury_many(_jobs(ones), [reason_of(one.outcome) for one in ones], reason=detail),
        "fail": lambda ones: queue.fail_many(
            _jobs(ones), [reason_of(one.outcome) for one in ones], retry_in=[retry_in(one) for one in ones]
        ),
    }[name]


def _queue_of(job: LeasedJob) -> Queue:
    source: Queue = job.source  # type: ignore[assignment]
    return source


def _jobs(ones: Sequence[Done]) -> list[LeasedJob]:
    return [one.job for one in ones]


def _retained(ones: Sequence[Done]) -> list[RetainedResult | None] | None:
    """The results to keep; None: no job is kept."""
    if not any(one.keep for one in ones):
        return None
    return [RetainedResult(one.result, arguments.seconds("keep", one.keep)) if one.keep else None for one in ones]


def retry_in(one: Done) -> float | None:
    """Seconds until the next attempt; None: by the default backoff."""
    if isinstance(one.outcome, Retry) and one.outcome.seconds is not None:
        return one.outcome.seconds
    if one.handling is None or one.handling.backoff is None:
        return None
    try:
        seconds = one.handling.backoff(one.job.attempts)
        arguments.seconds("backoff", seconds)
    except Exception:
        message = "the backoff of %r failed for attempt %d: the default is used"
        log.exception(message, one.job, one.job.attempts, extra=about(one.job, EventType.FAILED, one.seconds))
        return None
    return seconds


def reason_of(outcome: object) -> BaseException | str:
    """Why a job is not completed: what its handler raised, or the reason that it gave."""
    reason: object = outcome.reason if isinstance(outcome, Retry | Dead) else outcome
    return reason if isinstance(reason, BaseException | str) else text_of(reason)
