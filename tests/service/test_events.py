"""Streams of events: messages of a feed and live numbers; idle, slow and ended ones."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncGenerator, Callable, Iterator
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import httpx2
import pytest
from fastapi.sse import format_sse_event

from queue_db import QueueDB
from queue_db.monitoring.metrics import QueueMetrics
from queue_db.service import Settings
from queue_db.service.live.events import EventStream, Live
from tests.patience import HOURS

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


@on_sqlite
def test_a_token_gets_events_of_its_own_queues_and_feeds_only(
    serve: Callable[[Settings], httpx2.Client], db: QueueDB, name: str
) -> None:
    mine, other = f"{name}-mine", f"{name}-other"
    for one in (mine, other):
        db.queue(one).enqueue("mail")
        db.feed(one).publish("n", one)
    row = db.metrics._sampling._latest()
    db.metrics._sampling.take(None if row is None else row.version)  # now, and not ten seconds after another test's
    client = serve(Settings())
    everything = {"Authorization": f"Bearer {db.tokens.create(f'{name}-all', ['read'])}"}
    headers = {"Authorization": f"Bearer {db.tokens.create(name, ['read'], queues=[f'{name}-m*'])}"}

    def queues(headers: dict[str, str], wanted: str) -> list[str]:
        """Of the first event that has this queue."""
        with client.stream("GET", "/api/v1/events", headers=headers) as stream:
            return next(listed for one in events(stream) if wanted in (listed := [one["queue"] for one in one["data"]]))

    assert {mine, other} <= set(queues(everything, other))
    assert queues(headers, mine) == [mine]
    start = db.feed(mine).start()
    with client.stream("GET", f"/api/v1/feeds/{mine}/events", headers=headers, params={"after": start}) as stream:
        assert next(events(stream))["data"]["payload"] == mine
    for who, status in ((headers, 403), ({}, 401)):
        assert client.get(f"/api/v1/feeds/{other}/events", headers=who).status_code == status
    work = {"Authorization": f"Bearer {db.tokens.create(f'{name}-work', ['work'], queues=['*'])}"}
    for path in ("events", f"feeds/{mine}/events"):
        assert client.get(f"/api/v1/{path}", headers=work).status_code == 403
    for one in (mine, other):
        db.feeds.delete(one)


def test_the_texts_of_queues_are_made_in_a_thread_and_once_for_all_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    """With thousands of queues nothing else would run on the event loop meanwhile."""
    monkeypatch.setattr("queue_db.service.live.events._EVERY", HOURS)
    made: list[threading.Thread] = []

    class Numbers(QueueMetrics):
        @property
        def __dataclass_fields__(self) -> Any:
            made.append(threading.current_thread())
            return QueueMetrics.__dataclass_fields__

    def numbers(queue: str) -> QueueMetrics:
        return Numbers(queue, datetime(2026, 11, 23, tzinfo=UTC), 1, 0, 0, 0, 0, 0, None, 0, 0, 0, 0, 0, 60.0)

    found = [numbers("a"), numbers("b")]
    ending = threading.Event()
    service: Any = SimpleNamespace(ending=ending, db=SimpleNamespace(metrics=SimpleNamespace(latest=lambda: found)))

    async def follow() -> list[bytes | None]:
        live = Live(service)
        clients = [live.follow(lambda queue, own=own: queue in own) for own in ("a", "ab", "")]
        first = await asyncio.gather(*(anext(one) for one in clients))
        ending.set()
        for one in clients:
            await one.aclose()  # type: ignore[attr-defined]
        return first

    texts = [json.loads((text or b"").split(b"data: ")[1]) for text in asyncio.run(follow())]
    assert [[one["queue"] for one in text] for text in texts] == [["a"], ["a", "b"], []]
    assert texts[0][0]["at"] == "2026-11-23T00:00:00.000000Z"
    assert len(made) == len(found)
    assert threading.current_thread() not in made


def test_numbers_of_which_only_the_duration_has_grown_are_not_sent_again() -> None:
    """The counts are those of the last minute or little more, and this grows with each read."""
    read = {"a": (1, 60.0), "b": (1, 60.0)}

    def latest() -> list[QueueMetrics]:
        at = datetime(2026, 11, 23, tzinfo=UTC)
        return [QueueMetrics(name, at, jobs, 0, 0, 0, 0, 0, None, 0, 0, 0, 0, 0, seconds) for name, (jobs, seconds) in read.items()]

    live = Live(SimpleNamespace(ending=threading.Event(), db=SimpleNamespace(metrics=SimpleNamespace(latest=latest))))  # type: ignore[arg-type]
    live._known = first = live._texts()
    read = {"a": (1, 62.0), "b": (2, 62.0)}
    live._known = second = live._texts()
    assert second["a"] == first["a"]
    assert json.loads(second["b"]) == json.loads(first["b"]) | {"available": 2, "duration": 62.0}
    read = {"a": (1, 64.0), "b": (2, 64.0)}
    assert live._texts() == second


def test_a_slow_client_is_cut_and_an_idle_one_gets_a_comment() -> None:
    sent: list[dict[str, Any]] = []
    stuck = asyncio.Event()

    async def two() -> AsyncGenerator[bytes | None, None]:
        yield None
        yield format_sse_event(data_str='{"n": 1}', event="queues", id="7")

    async def allowed() -> None:
        pass

    async def send(message: Any) -> None:
        sent.append(message)
        if b"data" in message.get("body", b""):
            await stuck.wait()

    async def receive() -> Any:
        await asyncio.Event().wait()

    asyncio.run(EventStream(two(), allowed, slowest=0.01)({"type": "http"}, receive, send))
    assert [message.get("body") for message in sent[1:]] == [b": ping\n\n", b'event: queues\ndata: {"n": 1}\nid: 7\n\n']
