"""Streams of events: messages of a feed and live numbers; idle, slow and ended ones."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx2
import pytest

from queue_db import QueueDB
from queue_db.service.events import EventStream, event

on_sqlite = pytest.mark.parametrize("kind", ["sqlite"], scope="session")


def events(stream: httpx2.Response) -> Iterator[dict[str, Any]]:
    """The events of a stream: id, event, data."""
    found: dict[str, Any] = {}
    for line in stream.iter_lines():
        if line.startswith(":"):
            continue
        if not line:
            yield found
            found = {}
            continue
        name, _, value = line.partition(": ")
        found[name] = json.loads(value) if name == "data" else value


@on_sqlite
def test_messages_come_as_they_are_published(client: httpx2.Client, db: QueueDB, name: str) -> None:
    db.feed(name).publish("n", 0)
    start = db.feed(name).start()
    path = f"/api/v1/feeds/{name}/events"
    with client.stream("GET", path, params={"after": start}) as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        coming = events(stream)
        first = next(coming)
        assert first["data"]["payload"] == 0
        db.feed(name).publish("n", 1)
        second = next(coming)
        assert (second["data"]["payload"], second["id"]) == (1, second["data"]["id"])
    with client.stream("GET", path, headers={"Last-Event-ID": first["id"]}) as again:
        assert next(events(again))["data"]["payload"] == 1
    assert client.get(path, params={"after": "other.0.1"}).status_code == 422
    assert client.get(f"/api/v1/feeds/{name}-nowhere/events").status_code == 404
    db.feeds.delete(name)


@on_sqlite
def test_numbers_come_when_they_have_changed(client: httpx2.Client, db: QueueDB, name: str) -> None:
    db.queue(name).enqueue("mail")
    with client.stream("GET", "/api/v1/events") as stream:
        first = next(events(stream))
        assert first["event"] == "queues"
        assert isinstance(first["data"], list)


def test_a_slow_client_is_cut_and_an_idle_one_gets_a_comment() -> None:
    sent: list[dict[str, Any]] = []
    stuck = asyncio.Event()

    async def two() -> AsyncIterator[str | None]:
        yield None
        yield event({"n": 1}, name="queues", event_id="7")

    async def send(message: Any) -> None:
        sent.append(message)
        if b"data" in message.get("body", b""):
            await stuck.wait()

    async def receive() -> Any:
        await asyncio.Event().wait()

    asyncio.run(EventStream(two(), slowest=0.01)({"type": "http"}, receive, send))
    assert [message.get("body") for message in sent[1:]] == [b": idle\n\n", b'id: 7\nevent: queues\ndata: {"n": 1}\n\n']
