"""Traces and metrics with OpenTelemetry, after its conventions for messaging (in development; `messaging.py` has the version).

Call ``instrument(worker)`` in the worker, and ``instrument(db)`` in other processes. Each enqueue, claim, execution and settlement
of a queue is a span, and each publish, read, claim and acknowledgement of a feed. The headers of a job or message (``traceparent``)
carry the context in which it was sent, to which its execution is linked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from opentelemetry import metrics, propagate, trace
from opentelemetry.trace import SpanKind

from queue_db.db import QueueDB
from queue_db.errors import ArgumentError, ConfigurationError
from queue_db.instrumentation.messaging import Attributes, Operation, Place, Telemetry, id_of
from queue_db.instrumentation.opentelemetry_feeds import FeedWatch
from queue_db.instrumentation.watching import Watcher
from queue_db.leased_job import LeasedJob
from queue_db.model import Verdict
from queue_db.outcomes import Dead, Retry
from queue_db.queue import Queue
from queue_db.slices import type_hint
from queue_db.worker import Worker

if TYPE_CHECKING:
    from queue_db.aio import AsyncQueueDB
else:  # the drivers for asyncio are optional
    AsyncQueueDB = type_hint("queue_db.aio", "AsyncQueueDB")

_SENDS = {"enqueue": "enqueue", "enqueue_many": "enqueue", "enqueue_batch": "enqueue"}
_RECEIVES = {"claim": "claim", "claim_if_idle": "claim", "pop": "pop"}
_SETTLES = {
    "complete_many": "complete",
    "fail_many": "fail",
    "snooze_many": "snooze",
    "release_many": "release",
    "cancel_many": "cancel",
    "bury_many": "bury",
    "retry_unknown_kinds": "snooze",
}

#: The workers and databases that have been instrumented.
_instrumented: WeakSet[Worker | QueueDB] = WeakSet()


class _Context:
    """A ``header_provider`` that adds the current span to what the one before it gives."""

    def __init__(self, before: Callable[[], Mapping[str, Any]] | None) -> None:
        self._before = before

    def __call__(self) -> Mapping[str, Any]:
        carrier: dict[str, str] = {}
        propagate.inject(carrier)
        return carrier if self._before is None else {**self._before(), **carrier}


def trace_enqueues(db: QueueDB | AsyncQueueDB) -> None:
    """Only send the context: add the current span to the headers of each job that is enqueued through ``db``.

    A ``header_provider`` that was set before goes on.
    """
    if not isinstance(db.header_provider, _Context):
        db.header_provider = _Context(db.header_provider)


def instrument(
    of: Worker | QueueDB | AsyncQueueDB,
    provider: trace.TracerProvider | None = None,
    meter_provider: metrics.MeterProvider | None = None,
) -> None:
    """Make spans and metrics of what is done with the queues and feeds of a database, and, with a worker, of each execution.

    A second call for the same worker or database changes nothing. An AsyncQueueDB that is opened again is another database.

    A claim or read that finds nothing has no span. An enqueue or publish with ``using=`` is a ``create``: the commit is the
    caller's. The execution of a list of jobs is one span, linked to where each of them was enqueued. Payloads are in no span.

    :param of: a worker, whose database is instrumented too; a QueueDB; or an AsyncQueueDB that is open.
    :raises ConfigurationError: the AsyncQueueDB is not open.
    """
    db = of.db if isinstance(of, Worker) else _opened(of)
    trace_enqueues(db)
    telemetry = Telemetry(db, provider, meter_provider)
    if db not in _instrumented:
        db.watch(queues=_queues(telemetry), feeds=FeedWatch(telemetry).feed)
        _instrumented.add(db)
    if isinstance(of, Worker) and of not in _instrumented:
        _wrap(of, telemetry)
        _instrumented.add(of)


def _opened(of: QueueDB | AsyncQueueDB) -> QueueDB:
    """The database whose queues do the work."""
    if isinstance(of, QueueDB):
        return of
    from queue_db.aio.db import AsyncQueueDB

    if not isinstance(of, AsyncQueueDB):
        raise ArgumentError(f"instrument({of!r}): must be a Worker, a QueueDB or an AsyncQueueDB")
    opened, _ = of.opened_on
    if opened is None:
        raise ConfigurationError("this AsyncQueueDB is not open: call instrument() within async with, or after await db.open()")
    return opened


# --- queues -----------------------------------------------------------------------------------------------------------


def _queues(telemetry: Telemetry) -> Watcher:
    """Lets ``telemetry`` see the verbs of queues."""
    verbs = {verb: _sending(telemetry, verb, name) for verb, name in _SENDS.items()}
    verbs |= {verb: _receiving(telemetry, name) for verb, name in _RECEIVES.items()}
    verbs |= {verb: _settling(telemetry, name) for verb, name in _SETTLES.items()}
    return Watcher(**verbs, complete_and_claim=_completing_and_claiming(telemetry))


def _sending(telemetry: Telemetry, verb: str, name: str) -> Callable[..., Any]:
    def call(queue: Queue, enqueue: Callable[..., Any], *args: Any, **options: Any) -> Any:
        sort = "send" if options.get("using") is None else "create"
        one = verb == "enqueue"
        kind = options.get("kind", args[0] if args else None)
        about = {"queue_db.kind": kind} if one and isinstance(kind, str) else {}
        sent = 1 if one else 0
        operation = None
        try:
            with telemetry.operation(name, sort, Place(queue.name), SpanKind.PRODUCER, about) as operation:
                answer = enqueue(*args, **options)
                if one:
                    sent = int(answer is not None)
                    if answer is not None:
                        operation.note(messaging__message__id=str(answer))
                else:
                    sent = _number(answer[1] if verb == "enqueue_batch" else answer)
                    operation.note(messaging__batch__message_count=sent)
            return answer
        finally:
            if sort == "send":
                telemetry.sent(name, Place(queue.name), sent, None if operation is None else operation.error)

    return call


def _number(answer: int | Sequence[int | None]) -> int:
    """How many jobs an enqueue has added."""
    return answer if isinstance(answer, int) else sum(one is not None for one in answer)


def _receiving(telemetry: Telemetry, name: str) -> Callable[..., Any]:
    def call(queue: Queue, claim: Callable[..., Any], *args: Any, **options: Any) -> Any:
        return telemetry.receive(name, Place(queue.name), lambda: claim(*args, **options), lambda jobs: jobs)

    return call


def _settling(telemetry: Telemetry, name: str) -> Callable[..., Any]:
    def call(
        queue: Queue, settle: Callable[..., list[Verdict]], jobs: Sequence[LeasedJob], *args: Any, **options: Any
    ) -> list[Verdict]:
        return telemetry.settled(name, Place(queue.name), jobs, lambda: settle(jobs, *args, **options))

    return call


def _completing_and_claiming(telemetry: Telemetry) -> Callable[..., Any]:
    def call(
        queue: Queue,
        complete_and_claim: Callable[..., tuple[list[Verdict], list[LeasedJob]]],
        jobs: Sequence[LeasedJob],
        limit: int = 1,
        *args: Any,
        **options: Any,
    ) -> Any:
        if not jobs or not limit:  # it is one of the two verbs, which are watched
            return complete_and_claim(jobs, limit, *args, **options)
        won: list[LeasedJob] = []
        place = Place(queue.name)
        began = telemetry.receiving("claim", place)

        def settle() -> list[Verdict]:
            verdicts, claimed = complete_and_claim(jobs, limit, *args, **options)
            won.extend(claimed)
            return verdicts

        verdicts = telemetry.settled("complete", place, jobs, settle)
        telemetry.received("claim", place, won, began)
        return verdicts, won

    return call


# --- executions -------------------------------------------------------------------------------------------------------


def _wrap(worker: Worker, telemetry: Telemetry) -> None:
    def span(of: LeasedJob | list[LeasedJob]) -> Any:
        jobs = of if isinstance(of, list) else [of]
        about: Attributes = {"queue_db.kind": jobs[0].kind}
        if isinstance(of, list):
            about["messaging.batch.message_count"] = len(jobs)
        else:
            about |= {"messaging.message.id": _id(of), "queue_db.attempt": of.attempts}
        return telemetry.operation("process", "process", _place(jobs[0]), SpanKind.CONSUMER, about, telemetry.links(jobs))

    @worker.around
    def around(job: LeasedJob, call: Any) -> Any:
        with span(job) as operation:
            return _noted(operation, call(job))

    @worker.around
    async def around_coroutine(job: LeasedJob, call: Any) -> Any:
        with span(job) as operation:
            return _noted(operation, await call(job))


def _place(job: LeasedJob) -> Place:
    span = getattr(job.source, "span", None)  # of a shared cursor: the job is a message
    return Place(job.queue) if span is None else Place(span.cursor.feed.name, span.cursor.name)


def _id(job: LeasedJob) -> str:
    message_of = getattr(job.source, "message", None)
    return id_of(job if message_of is None else message_of(job))


def _noted(operation: Operation, outcome: Any) -> Any:
    if isinstance(outcome, Retry | Dead):
        operation.fail(type(outcome).__name__, outcome.reason)
    return outcome
