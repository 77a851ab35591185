"""Spans of feeds, from the publish of a message to the commit of the position."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.semconv._incubating.attributes import error_attributes, messaging_attributes, server_attributes
from opentelemetry.trace import SpanKind
from sqlalchemy import text

from queue_db import LeasedJob, QueueDB, Verdict
from queue_db.backoff import constant
from queue_db.feeds import Feed
from queue_db.testing import drain
from queue_db.worker import Worker
from tests.aio.harness import OpenAsync
from tests.monitoring.exported import Seen, about, names_of

SQLITE = pytest.mark.parametrize("kind", ["sqlite"], scope="session")


@pytest.fixture
def feed(db: QueueDB, name: str) -> Feed:
    """A feed whose object is older than the instrumentation."""
    return db.feed(name)


def linked(span: ReadableSpan) -> list[int]:
    return [link.context.span_id for link in span.links]


def in_order(seen: Seen, *names: str) -> list[ReadableSpan]:
    """All spans, which must have these names, in the order of their ends."""
    assert [span.name for span in seen.spans] == list(names)
    return seen.spans


def test_a_message_is_published_read_and_acknowledged(db: QueueDB, feed: Feed, seen: Seen) -> None:
    seen.watch(db)
    with seen.tracers.get_tracer("shop").start_as_current_span("order") as order:
        feed.publish("paid", {"secret": "p4yload"})
    with feed.cursor("mailers") as cursor:
        (message,) = cursor.read()
        assert cursor.read() == []
        assert cursor.ack(message)
    send, _, receive, settle = in_order(seen, f"publish {feed.name}", "order", f"read {feed.name}", f"ack {feed.name}")
    assert send.parent is not None
    assert send.parent.span_id == order.get_span_context().span_id
    assert message.headers["traceparent"].split("-")[2] == f"{send.context.span_id:016x}"
    assert linked(receive) == linked(settle) == [send.context.span_id]
    for span, sort, kind, cursor_name in [
        (send, "send", SpanKind.PRODUCER, None),
        (receive, "receive", SpanKind.CLIENT, "mailers"),
        (settle, "settle", SpanKind.CLIENT, "mailers"),
    ]:
        found = about(span)
        assert (found["messaging.operation.type"], span.kind) == (sort, kind)
        assert (found["messaging.destination.name"], found.get("messaging.consumer.group.name")) == (feed.name, cursor_name)
        assert found["queue_db.kind"] == "paid"
        assert "p4yload" not in span.to_json()
    assert about(receive)["messaging.message.id"] == about(settle)["messaging.message.id"] == message.position
    assert seen.counted("messaging.client.sent.messages", "publish") == 1
    assert seen.counted("messaging.client.consumed.messages", "read", messaging__consumer__group__name="mailers") == 1
    assert seen.counted("messaging.client.operation.duration", "read") == 2


def test_a_worker_processes_messages_and_settles_their_span(db: QueueDB, feed: Feed, seen: Seen) -> None:
    mailers = f"{feed.name}.mailers"
    worker = Worker(db, mailers, feeds={f"{feed.name}:{mailers}": 1}, schedules=False)
    seen.watch(worker)

    @worker.handles(None, backoff=constant(0))
    def handle(job: LeasedJob) -> None:
        if job.kind == "bad" and job.queue != mailers:
            raise LookupError("no such user")

    feed.publish_many([("good", 1), ("bad", 2)])
    worker.run(until_empty=True)
    of_feed = [span for span in seen.spans if about(span)["messaging.destination.name"] == feed.name]
    send, receive, good, bad, settle = of_feed
    assert [span.name.split()[0] for span in of_feed] == ["publish", "claim", "process", "process", "fail"]
    assert [about(span).get("messaging.consumer.group.name") for span in of_feed] == [None, *[mailers] * 4]
    assert {about(span)["messaging.batch.message_count"] for span in (send, receive, settle)} == {2}
    assert {identity for span in (receive, settle) for identity in linked(span)} == {send.context.span_id}
    assert linked(good) == linked(bad) == [send.context.span_id]
    first, second = feed.read().messages
    assert [about(span)["messaging.message.id"] for span in (good, bad)] == [first.position, second.position]
    assert (about(good).get("error.type"), about(bad)["error.type"]) == (None, "LookupError")
    # The job that the message has become, in the queue of the cursor.
    drain(worker)
    repeated = seen.named(f"process {mailers}")
    assert linked(repeated) == [send.context.span_id]
    assert "messaging.consumer.group.name" not in about(repeated)


def test_a_position_that_was_lost_is_an_error(db: QueueDB, feed: Feed, seen: Seen) -> None:
    seen.watch(db)
    feed.publish("paid")
    cursor = feed.cursor("mailers")
    (message,) = cursor.read()
    feed.cursor("mailers", take_over=True)
    assert cursor.ack(message.position) is Verdict.LOST
    found = about(seen.named(f"ack {feed.name}"))
    assert (found["error.type"], found["messaging.message.id"]) == ("LeaseLostError", message.position)


def test_a_publish_in_a_callers_transaction_is_created(db: QueueDB, feed: Feed, name: str, seen: Seen) -> None:
    seen.watch(db)
    feed.row()
    with db.queue(name).transaction() as connection:
        feed.publish("paid", using=connection)
    assert about(seen.named(f"publish {feed.name}"))["messaging.operation.type"] == "create"
    assert "messaging.client.sent.messages" not in seen.metrics()


def test_messages_that_are_forwarded_end_in_jobs_that_link_to_the_publish(db: QueueDB, feed: Feed, name: str, seen: Seen) -> None:
    seen.watch(db)
    feed.publish_many([("a", 1), ("b", 2)])
    assert feed.forward("to-jobs", name) == 2
    send, receive, settle = in_order(seen, f"publish {feed.name}", f"read {feed.name}", f"ack {feed.name}")
    assert linked(receive) == linked(settle) == [send.context.span_id] * 2
    assert {job.headers["traceparent"].split("-")[2] for job in db.queue(name).claim(2)} == {f"{send.context.span_id:016x}"}


def test_claimed_messages_are_received_and_deleted(db: QueueDB, name: str, seen: Seen) -> None:
    db.feeds.set(name, claims=True)
    seen.watch(db)
    feed = db.feed(name)
    feed.publish_many([("a", number) for number in range(5)])
    claim = feed.claim(3)
    assert claim is not None
    assert (claim.delete(claim.messages[0]), claim.delete()) == (1, 2)
    popped = feed.pop(1)
    assert len(popped) == 1
    assert feed.find_claim(feed.claim(1).id).release() == 1  # type: ignore[union-attr]
    assert feed.claim(5) is not None
    names = [span.name.partition(" ")[0] for span in seen.spans]
    assert names == ["publish", "claim", "delete", "delete", "pop", "claim", "release", "claim"]
    send, *others = seen.spans
    assert {identity for span in others for identity in linked(span)} == {send.context.span_id}


@pytest.mark.parametrize("stored", ["[1]", "17", "no JSON"])
def test_headers_of_another_program_take_no_message_away(fresh_url: str, seen: Seen, stored: str) -> None:
    with QueueDB(fresh_url) as db:
        db.migrate()
        db.feeds.set("f", claims=True)
        feed = db.feed("f")
        feed.publish("k")
        feed.rank()
        with db.database.engine.begin() as connection:
            connection.execute(text(f"UPDATE {db.store.tables.jobs}_messages SET headers = :stored"), {"stored": stored})
        seen.watch(db)
        (message,) = feed.pop()
        assert message.headers == {}


def test_every_name_for_feeds_is_one_of_the_conventions(db: QueueDB, feed: Feed, seen: Seen) -> None:
    seen.watch(db)
    feed.publish("a")
    shared = feed.shared("all")
    span = shared.claim()
    assert span is not None
    assert span.complete()
    known = names_of(messaging_attributes) | names_of(error_attributes) | names_of(server_attributes)
    assert [one.name.partition(" ")[0] for one in seen.spans] == ["publish", "claim", "complete"]
    for one in seen.spans:
        assert about(one).keys() - {"queue_db.kind"} <= known
    for metric in seen.metrics().values():
        assert all(dict(point.attributes).keys() <= known for point in metric.data.data_points)


async def test_feeds_of_asyncio_have_the_same_spans(open_async: OpenAsync, name: str, seen: Seen) -> None:
    adb = await open_async()
    seen.watch(adb)
    feed = adb.feed(name)
    await feed.publish("paid")
    async with await feed.cursor("mailers") as cursor:
        (message,) = await cursor.read()
        assert await cursor.ack(message)
    send, receive, settle = in_order(seen, f"publish {name}", f"read {name}", f"ack {name}")
    assert linked(receive) == linked(settle) == [send.context.span_id]


@SQLITE
def test_a_feed_is_watched_once(open_db: Callable[..., QueueDB], name: str, seen: Seen) -> None:
    db: Any = open_db()
    before = db.feed(name)
    first = Seen()
    for one in (first, seen, seen):
        one.watch(db)
    before.publish("a")
    db.feed(f"{name}.2").publish("a")
    assert (len(first.spans), len(seen.spans)) == (2, 0)
    assert type(before) is not Feed
    assert type(open_db().feed(name)) is Feed


@SQLITE
def test_what_is_watched_is_freed_with_its_last_reference(db: QueueDB, name: str, seen: Seen) -> None:
    """Without the garbage collector, which looks seldom: a span has messages of any size."""
    db.feeds.set(f"{name}.claims", claims=True)
    for of in (db.feed(name), db.feed(f"{name}.claims")):
        of.publish_many([("k", number) for number in range(10)])
    seen.watch(db)
    gc.disable()
    try:
        shared = db.feed(name).shared("all")
        span, claim, cursor = shared.claim(2), db.feed(f"{name}.claims").claim(2), db.feed(name).cursor("one")
        assert span is not None
        assert claim is not None
        assert span.complete(span.messages[0])
        gone: list[weakref.ref[object]] = [weakref.ref(one) for one in (shared, span, claim, cursor)]
        del shared, span, claim, cursor
        assert [one() for one in gone] == [None] * 4
        assert db.feed(name).shared("all").claim(2) is not None  # nothing else holds the cursor
    finally:
        gc.enable()


@SQLITE
def test_what_a_generator_gives_is_counted(db: QueueDB, name: str, seen: Seen) -> None:
    db.feeds.set(name, claims=True)
    seen.watch(db)
    feed = db.feed(name)
    ids = feed.publish_many(("k", number) for number in range(3))
    assert feed.publish_many([]) == feed.publish_many(iter(())) == []
    assert feed.delete(one for one in ids) == 3
    assert feed.delete(ids) == 0
    names = [(span.name.split()[0], about(span)["messaging.batch.message_count"]) for span in seen.spans]
    assert names == [("publish", 3), ("delete", 3), ("delete", 0)]


@SQLITE
def test_a_span_whose_rest_is_released_is_no_completion(db: QueueDB, feed: Feed, seen: Seen) -> None:
    seen.watch(db)
    feed.publish_many([("k", number) for number in range(3)])
    span = feed.shared("all").claim()
    assert span is not None
    assert span.complete(span.messages[1])
    assert span.settle([span.messages[0].seq], release=True)
    completed, released = seen.spans[-2:]
    assert (completed.name.split()[0], about(completed)["messaging.message.id"]) == ("complete", span.messages[1].position)
    assert released.name.split()[0] == "release"


def test_a_message_has_one_id_or_none_before_it_has_a_number(db: QueueDB, feed: Feed, seen: Seen) -> None:
    seen.watch(db)
    published = feed.publish("k")
    (message,) = feed.read().messages
    ids = [about(span).get("messaging.message.id") for span in seen.spans]
    assert ids == [published if published == message.position else None, message.position]
