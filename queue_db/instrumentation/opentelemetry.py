"""Traces and metrics with OpenTelemetry, after its conventions for messaging (in development; :data:`CONVENTIONS` is the version).

Call ``instrument(worker)`` in the worker, and ``instrument(db)`` in other processes. Each enqueue, claim, execution and settlement
of a queue is a span. The headers of a job (``traceparent``) carry the context of its enqueue, to which its execution is linked.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any

from opentelemetry import metrics, propagate, trace
from opentelemetry.trace import Link, SpanKind, Status, StatusCode

from queue_db.db import QueueDB
from queue_db.errors import ArgumentError, ConfigurationError, LeaseLostError
from queue_db.leased_job import LeasedJob
from queue_db.model import Job, Verdict
from queue_db.outcomes import Dead, Retry, Suspended
from queue_db.queue import Queue
from queue_db.slices import type_hint
from queue_db.worker import Worker

if TYPE_CHECKING:
    from queue_db.aio import AsyncQueueDB
else:  # the drivers for asyncio are optional
    AsyncQueueDB = type_hint("queue_db.aio", "AsyncQueueDB")

#: The version of the conventions whose names are used. The names may change with it: traces and metrics say it in their schema URL.
CONVENTIONS = "1.44.0"

_NAME = "queue_db"
_SCHEMA = f"https://opentelemetry.io/schemas/{CONVENTIONS}"

# Upper bounds of durations that the conventions want, seconds.
_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)

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

_Attributes = dict[str, str | int]


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
    """Make spans and metrics of what is done with the queues of a database, and, with a worker, of each execution.

    A claim that wins nothing has no span. An enqueue with ``using=`` is a ``create``: the commit is the caller's. The execution of
    a list of jobs is one span, linked to where each of them was enqueued. Payloads are in no span.

    :param of: a worker, whose database is instrumented too; a QueueDB; or an AsyncQueueDB that is open.
    :raises ConfigurationError: the AsyncQueueDB is not open.
    """
    db = of.db if isinstance(of, Worker) else _opened(of)
    trace_enqueues(db)
    telemetry = _Telemetry(db, provider, meter_provider)
    db.queues_as(_watched(telemetry))
    if isinstance(of, Worker):
        _wrap(of, telemetry)


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


class _Operation:
    """A span under way, and what its metrics get at its end."""

    def __init__(self, span: trace.Span) -> None:
        self._span = span
        self.error: str | None = None

    def note(self, **found: str | int) -> None:
        """Add attributes: ``messaging__message__id=…``."""
        for name, value in found.items():
            self._span.set_attribute(name.replace("__", "."), value)

    def fail(self, kind: str, why: str, error: BaseException | None = None) -> None:
        """The operation has failed with this ``error.type``."""
        self.error = kind
        self._span.set_attribute("error.type", kind)
        self._span.set_status(Status(StatusCode.ERROR, why))
        if error is not None:
            self._span.record_exception(error)


class _Telemetry:
    """The tracer and the instruments for one database."""

    def __init__(self, db: QueueDB, provider: trace.TracerProvider | None, meter_provider: metrics.MeterProvider | None) -> None:
        url = db.database.engine.url
        self._usual: _Attributes = {"messaging.system": _NAME}
        if url.host:
            self._usual["server.address"] = url.host
        if url.host and url.port:
            self._usual["server.port"] = url.port
        self._db = db
        self._tracer = trace.get_tracer(_NAME, tracer_provider=provider, schema_url=_SCHEMA)
        meter = metrics.get_meter(_NAME, meter_provider=meter_provider, schema_url=_SCHEMA)
        self._calls = meter.create_histogram(
            "messaging.client.operation.duration",
            unit="s",
            description="Duration of messaging operation initiated by a producer or consumer client.",
            explicit_bucket_boundaries_advisory=_BUCKETS,
        )
        self._runs = meter.create_histogram(
            "messaging.process.duration",
            unit="s",
            description="Duration of processing operation.",
            explicit_bucket_boundaries_advisory=_BUCKETS,
        )
        self._sent = meter.create_counter(
            "messaging.client.sent.messages",
            unit="{message}",
            description="Number of messages producer attempted to send to the broker.",
        )
        self._consumed = meter.create_counter(
            "messaging.client.consumed.messages",
            unit="{message}",
            description="Number of messages that were delivered to the application.",
        )

    def _attributes(self, name: str, sort: str, queue: str) -> _Attributes:
        return {
            **self._usual,
            "messaging.operation.name": name,
            "messaging.operation.type": sort,
            "messaging.destination.name": queue,
        }

    @contextmanager
    def operation(
        self, name: str, sort: str, queue: str, kind: SpanKind, more: Mapping[str, str | int], links: Sequence[Link] = ()
    ) -> Iterator[_Operation]:
        """A span that is the current one in the block, and its duration."""
        usual = self._attributes(name, sort, queue)
        began = time.perf_counter()
        with self._tracer.start_as_current_span(
            f"{name} {queue}",
            kind=kind,
            attributes={**usual, "messaging.client.id": self._db.worker, **more},
            links=links,
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            operation = _Operation(span)
            try:
                yield operation
            except Suspended:  # the run has ended as it should
                raise
            except BaseException as error:
                operation.fail(type(error).__qualname__, f"{type(error).__name__}: {error}", error)
                raise
            finally:
                durations = self._runs if sort == "process" else self._calls
                durations.record(time.perf_counter() - began, _failed(usual, operation.error))

    def sent(self, name: str, queue: str, number: int, error: str | None) -> None:
        """Count messages that were sent, or that could not be."""
        if number:
            self._sent.add(number, _failed(self._attributes(name, "send", queue), error))

    def receiving(self, name: str, queue: str) -> tuple[trace.Span, float]:
        """The span of a claim that begins, and when, for :meth:`received`."""
        usual = self._attributes(name, "receive", queue)
        attributes = {**usual, "messaging.client.id": self._db.worker}
        span = self._tracer.start_span(f"{name} {queue}", kind=SpanKind.CLIENT, attributes=attributes)
        return span, time.perf_counter()

    def received(
        self,
        name: str,
        queue: str,
        jobs: Sequence[Job | LeasedJob],
        began: tuple[trace.Span, float],
        error: BaseException | None = None,
    ) -> None:
        """End the span of a claim, unless it won nothing: idle workers claim often. A span without an end is dropped."""
        span, at = began
        usual = self._attributes(name, "receive", queue)
        kind = None if error is None else type(error).__qualname__
        self._calls.record(time.perf_counter() - at, _failed(usual, kind))
        if jobs:
            self._consumed.add(len(jobs), usual)
        elif error is None:
            return
        span.set_attributes(_of_messages(jobs))
        for link in _links(jobs):
            span.add_link(link.context)
        if error is not None:
            _Operation(span).fail(type(error).__qualname__, f"{type(error).__name__}: {error}", error)
        span.end()

    def settled(self, name: str, queue: str, given: Any, settle: Callable[[], list[Verdict]]) -> list[Verdict]:
        """Settle jobs in a span."""
        jobs: Sequence[LeasedJob] = given if isinstance(given, list | tuple) else ()
        if isinstance(given, list | tuple) and not given:
            return settle()
        with self.operation(name, "settle", queue, SpanKind.CLIENT, _of_messages(jobs), _links(jobs)) as operation:
            verdicts = settle()
            if lost := verdicts.count(Verdict.LOST):
                operation.fail(LeaseLostError.__qualname__, f"{lost} of {len(verdicts)} leases were lost")
            return verdicts


def _failed(attributes: _Attributes, error: str | None) -> _Attributes:
    return attributes if error is None else {**attributes, "error.type": error}


def _of_messages(jobs: Sequence[Any]) -> _Attributes:
    """What a span says of its jobs: the id of a single one, the number of several."""
    if len(jobs) == 1 and isinstance(jobs[0], Job | LeasedJob):
        return {"messaging.message.id": str(jobs[0].id), "queue_db.kind": jobs[0].kind}
    return {"messaging.batch.message_count": len(jobs)} if jobs else {}


def _links(jobs: Iterable[Any]) -> list[Link]:
    """Links to where the jobs were enqueued."""
    contexts = [_enqueued(job.headers) for job in jobs if isinstance(job, Job | LeasedJob)]
    return [Link(context) for context in contexts if context.is_valid]


def _enqueued(headers: Mapping[str, Any]) -> trace.SpanContext:
    """The context in which a job was enqueued."""
    return trace.get_current_span(propagate.extract({key: str(value) for key, value in headers.items()})).get_span_context()


# --- queues -----------------------------------------------------------------------------------------------------------


def _watched(telemetry: _Telemetry) -> type[Queue]:
    """A class of queues that tell their verbs to ``telemetry``."""
    verbs = {verb: _sending(telemetry, verb, name) for verb, name in _SENDS.items()}
    verbs |= {verb: _receiving(telemetry, verb, name) for verb, name in _RECEIVES.items()}
    verbs |= {verb: _settling(telemetry, verb, name) for verb, name in _SETTLES.items()}
    verbs["complete_and_claim"] = _completing_and_claiming(telemetry)
    return type("WatchedQueue", (Queue,), verbs)


def _sending(telemetry: _Telemetry, verb: str, name: str) -> Callable[..., Any]:
    enqueue = getattr(Queue, verb)

    @wraps(enqueue)
    def call(queue: Queue, *args: Any, **options: Any) -> Any:
        sort = "send" if options.get("using") is None else "create"
        one = verb == "enqueue"
        kind = options.get("kind", args[0] if args else None)
        about = {"queue_db.kind": kind} if one and isinstance(kind, str) else {}
        sent = 1 if one else 0
        operation = None
        try:
            with telemetry.operation(name, sort, queue.name, SpanKind.PRODUCER, about) as operation:
                answer = enqueue(queue, *args, **options)
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
                telemetry.sent(name, queue.name, sent, None if operation is None else operation.error)

    return call


def _number(answer: int | Sequence[int | None]) -> int:
    """How many jobs an enqueue has added."""
    return answer if isinstance(answer, int) else sum(one is not None for one in answer)


def _receiving(telemetry: _Telemetry, verb: str, name: str) -> Callable[..., Any]:
    claim = getattr(Queue, verb)

    @wraps(claim)
    def call(queue: Queue, *args: Any, **options: Any) -> Any:
        began = telemetry.receiving(name, queue.name)
        try:
            jobs = claim(queue, *args, **options)
        except BaseException as error:
            telemetry.received(name, queue.name, (), began, error)
            raise
        telemetry.received(name, queue.name, jobs, began)
        return jobs

    return call


def _settling(telemetry: _Telemetry, verb: str, name: str) -> Callable[..., Any]:
    settle = getattr(Queue, verb)

    @wraps(settle)
    def call(queue: Queue, jobs: Sequence[LeasedJob], *args: Any, **options: Any) -> list[Verdict]:
        return telemetry.settled(name, queue.name, jobs, lambda: settle(queue, jobs, *args, **options))

    return call


def _completing_and_claiming(telemetry: _Telemetry) -> Callable[..., Any]:
    complete_and_claim = Queue.complete_and_claim

    @wraps(complete_and_claim)
    def call(queue: Queue, jobs: Sequence[LeasedJob], limit: int = 1, *args: Any, **options: Any) -> Any:
        if not jobs or not limit:  # it is one of the two verbs, which are watched
            return complete_and_claim(queue, jobs, limit, *args, **options)
        won: list[LeasedJob] = []
        began = telemetry.receiving("claim", queue.name)

        def settle() -> list[Verdict]:
            verdicts, claimed = complete_and_claim(queue, jobs, limit, *args, **options)
            won.extend(claimed)
            return verdicts

        verdicts = telemetry.settled("complete", queue.name, jobs, settle)
        telemetry.received("claim", queue.name, won, began)
        return verdicts, won

    return call


# --- executions -------------------------------------------------------------------------------------------------------


def _wrap(worker: Worker, telemetry: _Telemetry) -> None:
    def span(of: LeasedJob | list[LeasedJob]) -> Any:
        jobs = of if isinstance(of, list) else [of]
        about: _Attributes = {"queue_db.kind": jobs[0].kind}
        if isinstance(of, list):
            about["messaging.batch.message_count"] = len(jobs)
        else:
            about |= {"messaging.message.id": str(of.id), "queue_db.attempt": of.attempts}
        return telemetry.operation("process", "process", jobs[0].queue, SpanKind.CONSUMER, about, _links(jobs))

    @worker.around
    def around(job: LeasedJob, call: Any) -> Any:
        with span(job) as operation:
            return _noted(operation, call(job))

    @worker.around
    async def around_coroutine(job: LeasedJob, call: Any) -> Any:
        with span(job) as operation:
            return _noted(operation, await call(job))


def _noted(operation: _Operation, outcome: Any) -> Any:
    if isinstance(outcome, Retry | Dead):
        operation.fail(type(outcome).__name__, outcome.reason)
    return outcome
