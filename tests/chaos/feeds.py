"""Clients of feeds and topics: they publish, read along, and do what messages say once."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from sqlalchemy import Connection

from queue_db import QueueDB
from queue_db.feeds import Cursor, Message, Span
from tests.chaos import ledger
from tests.chaos.client import Client, RolledBack
from tests.chaos.jobs import AGAIN, WORK

#: A topic, and the feed that one of its routes leads to; the other one leads to the queue.
TOPIC, ROUTED = "events", "routed"
#: Feed → its ordering; None: that of new feeds.
FEEDS = {"counter": "counter", "usual": None, ROUTED: None}
CURSOR, SHARED = "books", "mailers"
#: Claims of a span before its messages become jobs.
SPAN_ATTEMPTS = 10_000


def prepare(db: QueueDB) -> None:
    """Create feeds, routes and the shared cursors."""
    for feed, ordering in FEEDS.items():
        db.feeds.set(feed, ordering=ordering)
        db.feed(feed).shared(SHARED, queue=WORK, max_attempts=SPAN_ATTEMPTS)
        with db.feed(feed).cursor(CURSOR):
            pass
    db.routes.set("to a feed", feed=ROUTED)
    db.routes.set("to the queue", enqueue=WORK)
    for route in ("to a feed", "to the queue"):
        db.routes.subscribe(TOPIC, route, form="exact")


# --- publishers -----------------------------------------------------------------------------------------------------


def publish(client: Client) -> None:
    """To feeds and to the topic: one message, several, or within a transaction; some are given up."""
    targets = [*(feed for feed in FEEDS if feed != ROUTED), TOPIC]
    while client.working:
        number = client.log.number + 1
        rng = client.rng(client.name, number)
        target, few = rng.choice(targets), rng.choice([1, 1, 1, 3, 10])
        marks = [f"{client.name}-{number}.{at}" for at in range(few)]
        within = rng.choice(["", "", "the library's", "the application's"])
        gives_up = bool(within) and rng.random() < 0.2
        client.do(
            "publish",
            _publishing(client, target, marks, within, gives_up=gives_up),
            interrupts=within != "the application's",
            target=target,
            marks=marks,
            **({"within": within} if within else {}),
        )
        client.pause()


def _publishing(client: Client, target: str, marks: Sequence[str], within: str, *, gives_up: bool) -> Callable[[], Any]:
    to = client.db.topic(target) if target == TOPIC else client.db.feed(target)
    messages = [("inside", mark) for mark in marks]

    def call() -> Any:
        if not within:
            return to.publish_many(messages)
        with _transaction(client, own=within == "the library's") as connection:
            ledger.write(connection, "published", marks[0], client.name)
            answer = to.publish_many(messages, using=connection)
            if gives_up:
                raise RolledBack
        return answer

    return call


def _transaction(client: Client, *, own: bool) -> AbstractContextManager[Connection]:
    return client.db.queue(WORK).transaction() if own else ledger.transaction(client.engine)


# --- readers --------------------------------------------------------------------------------------------------------


def read(client: Client) -> None:
    """Read all feeds along, each from where the last page ended."""
    after: dict[str, tuple[str | None, int]] = dict.fromkeys(FEEDS, (None, 0))
    while not client.stopping.is_set():
        for feed, (position, seq) in after.items():
            page = client.do(
                "read",
                lambda: client.db.feed(feed).read(position, limit=20),  # noqa: B023 - it is called at once
                lambda page: [[message.seq, message.payload] for message in page.messages],
                feed=feed,
                after=seq,
            )
            if page and page.messages:
                after[feed] = page.position, page.messages[-1].seq
            client.pause()


# --- cursors --------------------------------------------------------------------------------------------------------


def acknowledge(client: Client) -> None:
    """Hold the cursor of a feed for some time, and acknowledge each message with its effect."""
    while not client.stopping.is_set():
        rng = client.rng(client.name, client.log.number)
        feed, force = rng.choice(list(FEEDS)), rng.random() < 0.1
        cursor = client.do(
            "open cursor",
            lambda: client.db.feed(feed).cursor(CURSOR, lease=client.order.lease, take_over=force),  # noqa: B023
            lambda cursor: cursor.generation,
            feed=feed,
        )
        if cursor is not None:
            for _ in range(rng.choice([1, 3, 5])):
                messages = client.do("cursor read", lambda: cursor.read(5), _shown, feed=feed)  # noqa: B023
                if not messages or not all(_acknowledged(client, cursor, message, rng) for message in messages):
                    break
            client.do("close cursor", cursor.close, feed=feed)
        client.pause()


def _shown(messages: Sequence[Message]) -> list[list[Any]]:
    return [[message.seq, message.payload] for message in messages]


def _acknowledged(client: Client, cursor: Cursor, message: Message, rng: random.Random) -> bool:
    own = rng.random() < 0.5

    def call() -> bool:
        with _transaction(client, own=own) as connection:
            ledger.write(connection, f"cursor {message.feed}", message.payload, client.name)
            cursor.ack(message, using=connection).require()
        return True

    # Whoever goes on after a failure would acknowledge this one with the next.
    return bool(client.do("acknowledge", call, interrupts=own, feed=message.feed, mark=message.payload))


# --- spans ----------------------------------------------------------------------------------------------------------


def share(client: Client) -> None:
    """Claim spans, and complete each message with its effect; some become jobs, some are left for others."""
    while not client.stopping.is_set():
        rng = client.rng(client.name, client.log.number)
        feed = rng.choice(list(FEEDS))
        span = client.do(
            "claim span",
            lambda: client.db.feed(feed).shared(SHARED, queue=WORK, max_attempts=SPAN_ATTEMPTS).claim(5, lease=client.order.lease),  # noqa: B023
            lambda span: None if span is None else [span.id, span.version, _shown(span.messages)],
            feed=feed,
        )
        for message in span.messages if span is not None else ():
            fate = rng.choices(["complete", "fail", "release", "late"], [20, 2, 1, 0.1])[0]
            if fate == "release":
                client.do("release span", lambda: bool(span.release()), feed=feed)  # noqa: B023
                break
            if fate == "late":
                client.stopping.wait(client.order.lease * 1.2)
            _done(client, span, message, rng, fails=fate == "fail")
        client.pause()


def _done(client: Client, span: Span, message: Message, rng: random.Random, *, fails: bool) -> None:
    own = rng.random() < 0.5

    def call() -> bool:
        if fails:
            return bool(span.fail(message, "it becomes a job", AGAIN))
        with _transaction(client, own=own) as connection:
            ledger.write(connection, f"span {message.feed}", message.payload, client.name)
            span.complete(message, using=connection).require()
        return True

    verb = "fail message" if fails else "complete message"
    client.do(verb, call, interrupts=own or fails, feed=message.feed, mark=message.payload)
