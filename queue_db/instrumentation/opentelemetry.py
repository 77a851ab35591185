"""Traces with OpenTelemetry: a span for each execution, linked to the span in which the job was enqueued.

Call ``instrument(worker)`` in the worker, and ``trace_enqueues(db)`` in other processes that enqueue. The header
``traceparent`` of the job carries the context.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opentelemetry import propagate, trace
from opentelemetry.trace import Link, SpanKind, Status, StatusCode

from queue_db.db import QueueDB
from queue_db.leased_job import LeasedJob
from queue_db.outcomes import Dead, Retry
from queue_db.worker import Worker

_NAME = "queue_db"


def trace_enqueues(db: QueueDB) -> None:
    """Add the current span to the headers of each job that is enqueued through ``db``."""

    def headers() -> Mapping[str, Any]:
        carrier: dict[str, str] = {}
        propagate.inject(carrier)
        return carrier

    db.header_provider = headers


def instrument(worker: Worker, provider: trace.TracerProvider | None = None) -> None:
    """Create a span for each execution, and send its context with the jobs that its handler enqueues by ``worker.db``.

    The execution of a list of jobs is one span, linked to where each of them was enqueued.
    """
    tracer = trace.get_tracer(_NAME, tracer_provider=provider)
    trace_enqueues(worker.db)

    def span(of: LeasedJob | list[LeasedJob]) -> Any:
        jobs = of if isinstance(of, list) else [of]
        first = jobs[0]
        attributes: dict[str, str | int] = {
            "messaging.system": _NAME,
            "messaging.operation.type": "process",
            "messaging.destination.name": first.queue,
            "queue_db.kind": first.kind,
        }
        if isinstance(of, list):
            attributes["messaging.batch.message_count"] = len(jobs)
        else:
            attributes |= {"messaging.message.id": str(first.id), "queue_db.attempt": first.attempts}
        links = [Link(context) for context in map(_enqueued, jobs) if context.is_valid]
        return tracer.start_as_current_span(f"process {first.kind}", kind=SpanKind.CONSUMER, attributes=attributes, links=links)

    @worker.around
    def around(job: LeasedJob, call: Any) -> Any:
        with span(job) as current:
            return _noted(current, call(job))

    @worker.around
    async def around_coroutine(job: LeasedJob, call: Any) -> Any:
        with span(job) as current:
            return _noted(current, await call(job))


def _enqueued(job: LeasedJob) -> trace.SpanContext:
    """The context in which the job was enqueued."""
    return trace.get_current_span(propagate.extract({key: str(value) for key, value in job.headers.items()})).get_span_context()


def _noted(span: trace.Span, outcome: Any) -> Any:
    if isinstance(outcome, Retry | Dead):
        span.set_status(Status(StatusCode.ERROR, outcome.reason))
    return outcome
