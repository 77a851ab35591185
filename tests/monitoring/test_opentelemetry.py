"""Spans and metrics of a queue, as the messaging conventions of OpenTelemetry name them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest
from opentelemetry import propagate
from opentelemetry.context import Context
from opentelemetry.semconv import schemas
from opentelemetry.semconv._incubating.attributes import error_attributes, messaging_attributes, server_attributes
from opentelemetry.semconv._incubating.metrics import messaging_metrics
from opentelemetry.trace import SpanKind, StatusCode

from queue_db import ArgumentError, ConfigurationError, Dead, DuplicateJobError, LeasedJob, Queue, QueueDB, Retry
from queue_db.aio import AsyncQueueDB
from queue_db.instrumentation.messaging import CONVENTIONS, SCHEMA
from queue_db.instrumentation.opentelemetry import instrument, trace_enqueues
from queue_db.worker import Worker
from tests.aio.harness import OpenAsync
from tests.monitoring.exported import Seen, about, names_of
from tests.sql.test_calls import calls_of

SQLITE = pytest.mark.parametrize("kind", ["sqlite"], scope="session")


def test_an_enqueue_a_claim_an_execution_and_a_settlement_are_spans(db: QueueDB, queue: Queue, seen: Seen) -> None:
    seen.watch(db)
    with seen.tracers.get_tracer("shop").start_as_current_span("order") as order:
        job_id = queue.enqueue("welcome", {"secret": "p4yload"})
    (job,) = queue.claim()
    assert job.complete()
    send, receive, settle = (seen.named(f"{verb} {queue.name}") for verb in ("enqueue", "claim", "complete"))
    for span, sort, kind in [
        (send, "send", SpanKind.PRODUCER),
        (receive, "receive", SpanKind.CLIENT),
        (settle, "settle", SpanKind.CLIENT),
    ]:
        found = about(span)
        assert (found["messaging.system"], found["messaging.destination.name"]) == ("queue_db", queue.name)
        assert (found["messaging.operation.type"], span.kind) == (sort, kind)
        assert f"{found['messaging.operation.name']} {queue.name}" == span.name
        assert found["messaging.message.id"] == str(job_id)
        assert "p4yload" not in span.to_json()
    assert send.parent is not None
    assert send.parent.span_id == order.get_span_context().span_id
    for span in (receive, settle):
        assert [link.context.span_id for link in span.links] == [send.context.span_id]
    assert job.headers["traceparent"].split("-")[2] == f"{send.context.span_id:016x}"


def test_a_worker_links_an_execution_to_the_enqueue(db: QueueDB, queue: Queue, seen: Seen) -> None:
    worker = Worker(db, queue.name, concurrency=1, schedules=False)
    seen.watch(worker)

    @worker.handles(None)
    def handle(job: LeasedJob) -> object:
        if job.kind == "raise":
            raise LookupError("no such user")
        if job.kind == "more":
            queue.enqueue("done")
        return {"retry": Retry("later", 1000), "dead": Dead("never")}.get(job.kind)

    for kind in ("more", "raise", "retry", "dead"):
        queue.enqueue(kind)
    worker.run(until_empty=True)
    runs = {about(span)["queue_db.kind"]: span for span in seen.spans if span.name == f"process {queue.name}"}
    sent = {about(span)["queue_db.kind"]: span for span in seen.spans if span.name == f"enqueue {queue.name}"}
    assert runs.keys() == sent.keys() == {"more", "raise", "retry", "dead", "done"}
    for kind, span in runs.items():
        assert span.kind is SpanKind.CONSUMER
        assert about(span)["messaging.operation.type"] == "process"
        assert [link.context.span_id for link in span.links] == [sent[kind].context.span_id]
    assert sent["done"].parent is not None
    assert sent["done"].parent.span_id == runs["more"].context.span_id
    errors = {kind: about(span).get("error.type") for kind, span in runs.items()}
    assert errors == {"more": None, "done": None, "raise": "LookupError", "retry": "Retry", "dead": "Dead"}
    assert {kind for kind, span in runs.items() if span.status.status_code is StatusCode.ERROR} == {"raise", "retry", "dead"}
    assert seen.counted("messaging.process.duration", "process") == 5
    assert seen.counted("messaging.process.duration", "process", error__type="LookupError") == 1
    assert seen.counted("messaging.client.consumed.messages", "claim") == 5


def test_many_jobs_are_one_span_with_their_number(db: QueueDB, queue: Queue, seen: Seen) -> None:
    seen.watch(db)
    queue.enqueue_many([("a", None), ("a", None), ("a", None, {"unique_key": "k"})])
    assert queue.enqueue_many([("a", None), ("a", None, {"unique_key": "k"})], on_duplicate="skip")[1] is None
    assert queue.enqueue_many([("a", None)], ids=False) == 1
    queue.enqueue_batch([("a", None)], ("then", None))
    assert [about(span)["messaging.batch.message_count"] for span in seen.spans] == [3, 1, 1, 1]
    assert seen.counted("messaging.client.sent.messages", "enqueue") == 6
    jobs = queue.claim(limit=4)
    verdicts, more = queue.complete_and_claim(jobs, limit=2)
    assert len(more) == 2
    completed = seen.named(f"complete {queue.name}")
    assert about(completed)["messaging.batch.message_count"] == len(verdicts) == 4
    # The jobs of one call have one context.
    assert len({link.context.span_id for link in completed.links}) <= 3
    assert seen.counted("messaging.client.consumed.messages", "claim") == 6
    assert [len(verb) for verb in (queue.pop(limit=9), queue.pop())] == [0, 0]
    assert seen.counted("messaging.client.operation.duration", "pop") == 2


def test_a_claim_that_wins_nothing_is_measured_and_has_no_span(db: QueueDB, queue: Queue, seen: Seen) -> None:
    seen.watch(db)
    assert queue.claim() == []
    assert seen.spans == []
    assert seen.counted("messaging.client.operation.duration", "claim") == 1
    assert "messaging.client.consumed.messages" not in seen.metrics()


def test_what_fails_has_the_type_of_its_error(db: QueueDB, queue: Queue, seen: Seen) -> None:
    seen.watch(db)
    queue.enqueue("a", unique_key="k")
    with pytest.raises(DuplicateJobError):
        queue.enqueue("a", unique_key="k")
    (job,) = queue.claim()
    assert db.cancel(job.id)
    assert not job.complete()
    with pytest.raises(ArgumentError):
        queue.claim(lease=-1)
    failed = {
        span.name.split()[0]: about(span).get("error.type") for span in seen.spans if span.status.status_code is StatusCode.ERROR
    }
    assert failed == {"enqueue": "DuplicateJobError", "complete": "LeaseLostError", "claim": "ArgumentError"}
    assert seen.counted("messaging.client.sent.messages", "enqueue", error__type="DuplicateJobError") == 1
    assert seen.counted("messaging.client.operation.duration", "complete", error__type="LeaseLostError") == 1


def test_an_enqueue_in_a_callers_transaction_is_created_and_not_counted_as_sent(db: QueueDB, queue: Queue, seen: Seen) -> None:
    seen.watch(db)
    with queue.transaction() as connection:
        queue.enqueue("a", using=connection)
    (span,) = seen.spans
    assert about(span)["messaging.operation.type"] == "create"
    assert "messaging.client.sent.messages" not in seen.metrics()


async def test_asyncio_has_the_same_spans(open_async: OpenAsync, name: str, seen: Seen) -> None:
    db = await open_async()
    seen.watch(db)
    queue = db.queue(name)

    async def order(number: int) -> int:
        with seen.tracers.get_tracer("shop").start_as_current_span(f"order {number}"):
            await asyncio.sleep(0)
            return await queue.enqueue("a", number)

    ids = await asyncio.gather(*map(order, range(4)))
    orders = {int(span.name.split()[1]): span for span in seen.spans if span.name.startswith("order")}
    sent = {about(span)["messaging.message.id"]: span for span in seen.spans if span.name == f"enqueue {name}"}
    for number, job_id in enumerate(ids):
        parent = sent[str(job_id)].parent
        assert parent is not None
        assert parent.span_id == orders[number].context.span_id
    (job,) = await queue.claim()
    assert await job.complete()
    assert [link.context.span_id for link in seen.named(f"complete {name}").links] == [sent[str(job.id)].context.span_id]


async def test_an_async_database_must_be_open(async_url: str) -> None:
    with pytest.raises(ConfigurationError, match="not open"):
        instrument(AsyncQueueDB(async_url))
    with pytest.raises(ArgumentError, match="must be a Worker"):
        instrument("db")  # type: ignore[arg-type]


@SQLITE
def test_every_name_is_one_of_the_conventions(db: QueueDB, queue: Queue, seen: Seen) -> None:
    known = names_of(messaging_attributes) | names_of(error_attributes) | names_of(server_attributes)
    worker = Worker(db, queue.name, schedules=False)
    seen.watch(worker)
    worker.handles("a")(lambda job: None)
    queue.enqueue("a")
    queue.enqueue_many([("a", 1), ("a", 2)])
    worker.run(until_empty=True)
    for span in seen.spans:
        ours = {name for name in about(span) if name.startswith("queue_db.")}
        assert about(span).keys() - ours <= known, span.name
        assert ours <= {"queue_db.kind", "queue_db.attempt"}
        assert span.instrumentation_scope is not None
        assert span.instrumentation_scope.schema_url == f"https://opentelemetry.io/schemas/{CONVENTIONS}"
        sorts = {one.value for one in messaging_attributes.MessagingOperationTypeValues}
        assert about(span)["messaging.operation.type"] in sorts - {"deliver", "publish"}  # these two are deprecated
    assert SCHEMA in {one.value for one in schemas.Schemas}
    metrics = seen.metrics()
    assert metrics.keys() == {
        messaging_metrics.MESSAGING_CLIENT_OPERATION_DURATION,
        messaging_metrics.MESSAGING_CLIENT_SENT_MESSAGES,
        messaging_metrics.MESSAGING_CLIENT_CONSUMED_MESSAGES,
        messaging_metrics.MESSAGING_PROCESS_DURATION,
    }
    for name, metric in metrics.items():
        like = Seen()
        made = getattr(messaging_metrics, f"create_{name.replace('.', '_')}")(like.meters.get_meter("conventions"))
        made.record(1) if hasattr(made, "record") else made.add(1)
        theirs = like._reader.get_metrics_data().resource_metrics[0].scope_metrics[0].metrics[0]  # type: ignore[union-attr]
        assert (metric.unit, metric.description, type(metric.data)) == (theirs.unit, theirs.description, type(theirs.data))
        for point in metric.data.data_points:
            assert dict(point.attributes).keys() <= known
            if hasattr(point, "explicit_bounds"):
                assert point.explicit_bounds == (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)


def test_a_server_is_named(db: QueueDB, queue: Queue, seen: Seen) -> None:
    seen.watch(db)
    queue.enqueue("a")
    url = db.database.engine.url
    found = about(seen.named(f"enqueue {queue.name}"))
    assert (found.get("server.address"), found.get("server.port")) == (url.host or None, url.port if url.host else None)


@SQLITE
def test_a_queue_that_is_not_instrumented_calls_nothing_of_it(open_db: Callable[..., QueueDB], name: str, seen: Seen) -> None:
    plain, watched = open_db(), open_db()
    seen.watch(watched)
    for db, calls in ((plain, False), (watched, True)):
        queue = db.queue(name)
        for verb in (lambda queue=queue: queue.enqueue("a"), queue.claim):
            files: list[str] = []
            calls_of(verb, files)
            assert any(file.endswith("opentelemetry.py") for file in files) is calls
    assert type(plain.queue(name)) is Queue


@SQLITE
def test_a_database_is_watched_once_and_its_queues_stay_the_same(open_db: Callable[..., QueueDB], name: str, seen: Seen) -> None:
    db = open_db()
    before = db.queue(name)
    db.header_provider = lambda: {"tenant": "t-7"}
    first = Seen()
    for one in (first, seen, seen):
        one.watch(db)
    trace_enqueues(db)
    assert db.queue(name) is before
    before.enqueue("a")
    assert (len(first.spans), len(seen.spans)) == (1, 0)
    (job,) = before.claim()
    assert job.headers.keys() == {"tenant", "traceparent"}


@SQLITE
def test_a_propagator_that_raises_takes_no_job_away(
    db: QueueDB, queue: Queue, seen: Seen, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.enqueue_many([("a", 1), ("a", 2), ("a", 3)])
    seen.watch(db)

    def broken(carrier: object) -> Context:
        raise LookupError("no such format")

    monkeypatch.setattr(propagate, "extract", broken)
    assert [job.payload for job in queue.pop(2)] == [1, 2]
    (job,) = queue.claim()
    assert job.complete()
    assert [span.links for span in seen.spans] == [()] * 3
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == [
        "OpenTelemetry's propagator cannot read the headers of a job or message: there is no link to where it was sent"
    ]


@SQLITE
def test_an_execution_is_one_span_however_often_its_worker_is_instrumented(db: QueueDB, queue: Queue, seen: Seen) -> None:
    worker = Worker(db, queue.name, schedules=False)
    for of in (db, worker, worker):
        seen.watch(of)
    worker.handles("a")(lambda job: None)
    queue.enqueue("a")
    worker.run(until_empty=True)
    assert [span.name.split()[0] for span in seen.spans] == ["enqueue", "claim", "process", "complete"]


@SQLITE
@pytest.mark.parametrize("first", [True, False])
def test_two_that_watch_a_queue_both_see_its_verbs(open_db: Callable[..., QueueDB], name: str, seen: Seen, first: bool) -> None:
    db, calls = open_db(), list[str]()

    def watch(queue: Queue) -> None:
        before = queue.enqueue

        def enqueue(kind: str, *args: Any, **options: Any) -> Any:
            calls.append(kind)
            return before(kind, *args, **options)

        queue.enqueue = enqueue  # type: ignore[method-assign, assignment]

    if not first:
        seen.watch(db)
    db.watch(queues=watch)
    if first:
        seen.watch(db)
    assert db.queue(name).enqueue("k")
    assert (calls, len(seen.spans)) == (["k"], 1)


@SQLITE
def test_the_context_alone_can_be_sent(open_db: Callable[..., QueueDB], name: str, seen: Seen) -> None:
    db = open_db()
    trace_enqueues(db)
    with seen.tracers.get_tracer("shop").start_as_current_span("order") as order:
        db.queue(name).enqueue("a")
    (job,) = db.queue(name).claim()
    assert job.headers["traceparent"].split("-")[2] == f"{order.get_span_context().span_id:016x}"
    assert [span.name for span in seen.spans] == ["order"]
