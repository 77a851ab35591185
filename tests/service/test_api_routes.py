"""Routes, subscriptions and topics by REST."""

from __future__ import annotations

from collections.abc import Iterator

import httpx2
import pytest

from queue_db import QueueDB

pytestmark = pytest.mark.parametrize("kind", ["sqlite"], scope="session")


@pytest.fixture
def route(client: httpx2.Client, name: str) -> Iterator[str]:
    """The path of a route that enqueues."""
    path = f"/api/v1/routes/{name}"
    assert client.put(path, json={"action": "enqueue", "target": name, "kind": "mail"}).status_code == 201
    yield path
    client.delete(path)


def test_a_message_goes_where_its_topic_leads(client: httpx2.Client, route: str, db: QueueDB, name: str) -> None:
    added = client.post(f"{route}/subscriptions", json={"pattern": f"{name}.*"})
    assert added.json()["subscriptions"] == [{"pattern": f"{name}.*", "form": "glob"}]
    topic = f"/api/v1/topics/{name}.new"
    steps = client.post(f"{topic}/test", json={}).json()["steps"]
    assert [(step["route"], step["action"], step["target"], step["cut"]) for step in steps] == [(name, "enqueue", name, "")]
    assert client.post(f"{topic}/messages", json={"messages": [{"payload": 7}]}).json() == {"acted": 1}
    assert [(job.kind, job.payload) for job in db.queue(name).claim(10)] == [("mail", 7)]
    assert client.post(f"{route}/pause").json()["paused"]
    assert client.post(f"{topic}/messages", json={"messages": [{"payload": 8}]}).json() == {"acted": 0}
    assert not client.post(f"{route}/resume").json()["paused"]
    assert client.delete(f"{route}/subscriptions", params={"pattern": f"{name}.*"}).status_code == 204
    assert client.delete(f"{route}/subscriptions", params={"pattern": f"{name}.*"}).status_code == 404
    assert client.get(f"{route}/subscriptions").json() == []


def test_a_counter_counts_by_key(client: httpx2.Client, name: str) -> None:
    path, topic = f"/api/v1/routes/{name}", f"/api/v1/topics/{name}"
    made = client.put(path, json={"action": "count", "target": name, "by": "payload.site"}).json()
    assert (made["by"], made["messages"]) == ("payload.site", "0")
    client.post(f"{path}/subscriptions", json={"pattern": name, "form": "exact"})
    sites = [{"payload": {"site": site}} for site in ("north", "south", "north")]
    assert client.post(f"{topic}/messages", json={"messages": sites}).json() == {"acted": 3}
    counter = f"/api/v1/counters/{name}"
    keys = [{"key": "north", "messages": "2"}, {"key": "south", "messages": "1"}]
    assert client.get(f"{counter}/keys").json() == {"keys": keys}
    assert client.get(f"{counter}/keys", params={"limit": 1}).json() == {"keys": keys[:1]}
    (step,) = client.post(f"{topic}/test", json={"payload": {"site": "south"}}).json()["steps"]
    assert (step["counted"], step["cut"]) == ("south", "")
    assert "by payload.site" in client.get("/routes").text
    assert [client.delete(counter, params={"key": "north"}).status_code for _ in range(2)] == [204, 404]
    assert client.get(f"{counter}/keys").json() == {"keys": keys[1:]}
    assert [client.delete(counter).status_code for _ in range(2)] == [204, 404]
    assert client.put(path, json={"action": "feed", "target": name, "by": "topic"}).status_code == 422
    assert client.put(path, json={"action": "count", "target": name, "by": "payload."}).status_code == 422
    client.delete(path)


def test_a_route_is_pointed_back(client: httpx2.Client, route: str, name: str) -> None:
    before = client.get(route).json()
    changed = client.put(route, json={"action": "count", "target": name}).json()
    assert (changed["action"], changed["messages"]) == ("count", "0")
    back = client.post(f"{route}/assign", json={"definition": before["definition"]}).json()
    assert (back["action"], back["kind"], int(back["version"])) == ("enqueue", "mail", int(before["version"]) + 2)
    assert client.post(f"{route}/assign", json={"definition": "0" * 64}).status_code == 404
    assert name in [one["name"] for one in client.get("/api/v1/routes").json()["routes"]]


def test_what_is_wrong_is_refused(client: httpx2.Client, route: str, name: str) -> None:
    missing = f"/api/v1/routes/{name}-missing"
    for answer in (
        client.get(missing),
        client.delete(missing),
        client.post(f"{missing}/pause"),
        client.post(f"{missing}/subscriptions", json={"pattern": "a"}),
    ):
        assert answer.status_code == 404, answer.text
    for body in ({}, {"action": "feed"}, {"action": "feed", "target": "a", "kind": "b"}, {"action": "x", "target": "a"}):
        assert client.put(route, json=body).status_code == 422, body
    assert client.post(f"{route}/subscriptions", json={"pattern": "a", "form": "x"}).status_code == 422
