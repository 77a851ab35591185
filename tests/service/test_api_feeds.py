"""Feeds by REST: publish and read, cursors, claims, purge, long poll. The acceptance list of Zaqar's queues, in HTTP's words."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from typing import Any

import httpx2
import pytest

from queue_db import QueueDB
from queue_db.service import Settings
from queue_db.testing import SettableClock
from tests.patience import PATIENCE
from tests.service.conftest import serving

pytestmark = pytest.mark.parametrize("kind", ["sqlite"], scope="session")

Publish = Callable[..., list[str]]


@pytest.fixture
def feed(client: httpx2.Client, name: str) -> Iterator[str]:
    """The path of a feed with claims."""
    path = f"/api/v1/feeds/{name}"
    assert client.put(path, json={"claims": True}).status_code == 201
    yield path
    client.delete(path)


@pytest.fixture
def publish(client: httpx2.Client, feed: str) -> Publish:
    """Publish numbers; their ids."""

    def run(count: int, *, client_id: str | None = None, **options: Any) -> list[str]:
        messages = [{"kind": "n", "payload": number, **options} for number in range(count)]
        headers = {"Client-ID": client_id} if client_id else {}
        answer = client.post(f"{feed}/messages", json={"messages": messages}, headers=headers)
        assert answer.status_code == 201, answer.text
        return answer.json()["ids"]

    return run


def numbers(answer: httpx2.Response) -> list[Any]:
    """The payloads of the messages in a response."""
    assert answer.is_success, answer.text
    return [message["payload"] for message in answer.json()["messages"]]


def claimed(client: httpx2.Client, feed: str, **parameters: Any) -> Any:
    """A claim."""
    answer = client.post(f"{feed}/claims", params={"grace": 0, **parameters})
    assert answer.status_code == 201, answer.text
    return answer.json()


# --- messages -----------------------------------------------------------------------------------------------------------


def test_pages_follow_each_other(client: httpx2.Client, feed: str, publish: Publish) -> None:
    publish(25)
    seen: list[Any] = []
    after: dict[str, Any] = {}
    while True:
        answer = client.get(f"{feed}/messages", params={"limit": 10, **after})
        page = answer.json()
        seen += numbers(answer)
        after = {"after": page["after"]}
        if not page["behind"]:
            break
    assert seen == list(range(25))
    assert numbers(client.get(f"{feed}/messages", params=after)) == []


def test_echo_leaves_out_the_readers_own(client: httpx2.Client, feed: str, publish: Publish) -> None:
    publish(2, client_id="mine")
    publish(1, client_id="other")
    headers = {"Client-ID": "mine"}
    assert numbers(client.get(f"{feed}/messages", params={"echo": False}, headers=headers)) == [0]
    assert numbers(client.get(f"{feed}/messages", headers=headers)) == [0, 1, 0]
    assert client.get(f"{feed}/messages", params={"echo": False}).status_code == 422


def test_messages_by_their_ids(client: httpx2.Client, feed: str, publish: Publish) -> None:
    first, second, third = publish(3)
    assert client.get(f"{feed}/messages/{second}").json()["payload"] == 1
    assert numbers(client.get(f"{feed}/messages", params={"ids": [third, first]})) == [0, 2]
    assert client.delete(f"{feed}/messages/{second}").status_code == 204
    assert client.get(f"{feed}/messages/{second}").status_code == 404
    assert client.delete(f"{feed}/messages", params={"ids": [first, second, third]}).json()["deleted"] == 2
    assert numbers(client.get(f"{feed}/messages")) == []


def test_a_publish_with_a_key_is_repeated_safely(db: QueueDB, client: httpx2.Client, name: str) -> None:
    db.feeds.set(name, ordering="ranked")
    path, body = f"/api/v1/feeds/{name}/messages", {"messages": [{"payload": 1}, {"payload": 2}]}
    first = client.post(path, json=body, headers={"Idempotency-Key": "x"})
    again = client.post(path, json=body, headers={"Idempotency-Key": "x"})
    assert first.status_code == again.status_code == 201, first.text
    assert first.json() == again.json()
    assert numbers(client.get(path)) == [1, 2]
    for one, payload in zip(first.json()["ids"], (1, 2), strict=True):
        found = client.get(f"{path}/{one}").json()
        assert found["payload"] == payload
        assert client.get(f"{path}/{found['id']}").json() == found
    other = client.post(path, json={"messages": [{"payload": 3}]}, headers={"Idempotency-Key": "x"})
    assert other.status_code == 422, other.text
    assert "new key" in other.json()["detail"]
    topic = {"Idempotency-Key": "x"}
    db.routes.set(name, feed=name)
    db.routes.subscribe(name, name, "exact")
    for _ in range(2):
        assert client.post(f"/api/v1/topics/{name}/messages", json=body, headers=topic).json() == {"acted": 2}
    assert numbers(client.get(path)) == [1, 2, 1, 2]
    db.routes.remove(name)


def test_the_keys_of_tokens_are_their_own(db: QueueDB, serve: Callable[..., httpx2.Client], name: str) -> None:
    path, body = f"/api/v1/feeds/{name}/messages", {"messages": [{"payload": 1}]}
    client = serve(Settings())
    for owner in ("a", "b"):
        token = db.tokens.create(f"{name}-{owner}", ["enqueue"])
        headers = {"Idempotency-Key": "x", "Authorization": f"Bearer {token}"}
        for _ in range(2):
            assert client.post(path, json=body, headers=headers).status_code == 201
    assert [message.payload for message in db.feed(name).read().messages] == [1, 1]


@pytest.mark.parametrize("bad", ["x", "1.2", "a.b.c", "%00", "0.0.99999999999999999999", "ä"])
def test_bad_ids_are_refused(client: httpx2.Client, feed: str, publish: Publish, bad: str) -> None:
    (good,) = publish(1)
    for answer in (
        client.get(f"{feed}/messages/{bad}"),
        client.get(f"{feed}/messages?ids={bad}"),
        client.get(f"{feed}/messages?after={bad}"),
        client.delete(f"{feed}/messages/{bad}"),
        client.delete(f"{feed}/messages?ids={good}&ids={bad}"),
    ):
        assert answer.status_code == 422, answer.text
        assert answer.headers["content-type"] == "application/problem+json"
    assert client.get(f"{feed}/messages/{good}").status_code == 200


def test_a_feed_that_is_not_there_is_not_made_by_a_look(client: httpx2.Client, db: QueueDB, name: str) -> None:
    path = f"/api/v1/feeds/{name}/nowhere".replace("/nowhere", "-nowhere")
    for answer in (
        client.get(path),
        client.get(f"{path}/messages"),
        client.get(f"{path}/stats"),
        client.post(f"{path}/claims"),
        client.put(f"{path}/cursors/c"),
        client.post(f"{path}/purge"),
        client.delete(path),
    ):
        assert answer.status_code == 404, answer.url
    assert f"{name}-nowhere" not in [one.name for one in db.feeds.list()]


def test_pop_takes_the_first_that_are_free(client: httpx2.Client, feed: str, publish: Publish) -> None:
    publish(4)
    claimed(client, feed, limit=1)
    popped = client.delete(f"{feed}/messages", params={"pop": 2})
    assert numbers(popped) == [1, 2]
    assert popped.json()["deleted"] == 2
    assert numbers(client.delete(f"{feed}/messages", params={"pop": 5})) == [3]
    assert numbers(client.delete(f"{feed}/messages", params={"pop": 5})) == []
    assert client.delete(f"{feed}/messages", params={"pop": 1, "claim": "x"}).status_code == 422
    assert client.delete(f"{feed}/messages").status_code == 422


def nested(depth: int) -> Any:
    """A list in a list in a list."""
    value: Any = "inside"
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize("depth", [99, 300, 900])
def test_a_message_that_is_nested_deeply_is_read_by_all(
    client: httpx2.Client, feed: str, db: QueueDB, name: str, depth: int
) -> None:
    db.feed(name).publish("n", nested(depth), headers={"deep": nested(depth)})
    db.feed(name).publish("n", [10**400])

    def check(answer: httpx2.Response) -> Any:
        assert answer.is_success, answer.text
        first, second = answer.json()["messages"]
        assert (first["payload"] == nested(depth)) == (depth == 99)
        assert second["payload"] == [10**400]
        return answer.json()

    first, _ = check(client.get(f"{feed}/messages"))["messages"]
    assert client.get(f"{feed}/messages/{first['id']}").json() == first
    assert client.get(f"{feed}/stats").json()["oldest"] == first
    with client.stream("GET", f"{feed}/events", params={"after": client.get(feed).json()["start"]}) as stream:
        coming = stream.iter_lines()
        assert json.loads(next(coming).removeprefix("data: ")) == first
        assert next(coming) == f"id: {first['id']}"
    claim = check(client.post(f"{feed}/claims"))
    check(client.get(f"{feed}/claims/{claim['id']}"))
    client.delete(f"{feed}/claims/{claim['id']}")
    assert check(client.delete(f"{feed}/messages", params={"pop": 5}))["deleted"] == 2


def test_counts_and_purge(client: httpx2.Client, feed: str, publish: Publish) -> None:
    publish(3)
    publish(1, delay=1000)
    claimed(client, feed, limit=2)
    stats = client.get(f"{feed}/stats").json()
    assert {name: stats[name] for name in ("total", "free", "claimed", "delayed")} == {
        "total": 4,
        "free": 1,
        "claimed": 2,
        "delayed": 1,
    }
    assert stats["oldest"]["payload"] == 0
    assert numbers(client.get(f"{feed}/messages", params={"hidden": False})) == [2]
    assert client.post(f"{feed}/purge").json() == {"purged": 4}
    assert client.get(f"{feed}/stats").json()["total"] == 0


def test_impossible_values_are_refused(client: httpx2.Client, feed: str) -> None:
    bodies: list[Any] = [
        {},
        {"messages": []},
        {"messages": [{"kind": 1}]},
        {"messages": [{"more": 1}]},
        {"messages": [{"kind": ""}]},
        [],
    ]
    for body in bodies:
        assert client.post(f"{feed}/messages", json=body).status_code == 422, body
    for parameters in ({"limit": 0}, {"limit": 100_000}, {"wait": -1}, {"wait": "inf"}, {"on_trimmed": "x"}):
        assert client.get(f"{feed}/messages", params=parameters).status_code == 422, parameters
    for parameters in ({"lease": 0}, {"lease": 2_592_001}, {"lease": "nan"}, {"grace": -1}, {"limit": 0}):
        assert client.post(f"{feed}/claims", params=parameters).status_code == 422, parameters


# --- claims -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def timed(url: str, clock: SettableClock) -> Iterator[httpx2.Client]:
    """A client of a service whose time the test sets."""
    with (
        QueueDB(url, clock=clock) as db,
        serving(db, Settings(closed=False)) as base,
        httpx2.Client(base_url=base, timeout=PATIENCE) as one,
    ):
        yield one


def test_the_life_of_a_claim(client: httpx2.Client, feed: str, publish: Publish) -> None:
    publish(3)
    claim = claimed(client, feed, limit=2, lease=100)
    assert [message["payload"] for message in claim["messages"]] == [0, 1]
    assert [message["attempts"] for message in claim["messages"]] == [1, 1]
    path = f"{feed}/claims/{claim['id']}"
    assert numbers(client.get(path)) == [0, 1]
    assert [one["messages"] for one in client.get(f"{feed}/claims").json()["claims"]] == [2]
    first, second = (message["id"] for message in claim["messages"])
    assert client.delete(f"{feed}/messages/{first}").status_code == 409
    assert client.delete(f"{feed}/messages/{first}", params={"claim": claim["id"]}).status_code == 204
    assert numbers(client.get(path)) == [1]
    other = claimed(client, feed)
    assert client.delete(f"{feed}/messages/{second}", params={"claim": other["id"]}).status_code == 412
    assert client.post(f"{feed}/claims").status_code == 204
    assert client.delete(path).status_code == 204
    assert client.get(path).status_code == 404
    again = claimed(client, feed)
    assert numbers(client.get(f"{feed}/claims/{again['id']}")) == [1]
    assert client.delete(f"{feed}/messages", params={"claim": again["id"]}).json() == {"deleted": 1, "messages": []}
    assert client.delete(f"{feed}/messages", params={"claim": again["id"]}).status_code == 404


def test_an_extended_claim_goes_on_and_another_ends(
    timed: httpx2.Client, feed: str, publish: Publish, clock: SettableClock
) -> None:
    publish(2)
    extended, other = claimed(timed, feed, limit=1, lease=10), claimed(timed, feed, limit=1, lease=10)
    clock.advance(8)
    answer = timed.patch(f"{feed}/claims/{extended['id']}", params={"lease": 10})
    assert answer.json()["expires_at"] > extended["expires_at"]
    clock.advance(8)
    assert timed.get(f"{feed}/claims/{extended['id']}").status_code == 200
    ended = f"{feed}/claims/{other['id']}"
    assert timed.get(ended).status_code == timed.patch(ended).status_code == 410
    message = other["messages"][0]["id"]
    assert timed.delete(f"{feed}/messages/{message}", params={"claim": other["id"]}).status_code == 410
    assert timed.get(f"{feed}/messages/{message}").status_code == 200
    assert [one["payload"] for one in claimed(timed, feed)["messages"]] == [1]


def test_a_message_that_was_claimed_too_often_is_a_dead_job(
    timed: httpx2.Client, feed: str, publish: Publish, db: QueueDB, name: str, clock: SettableClock
) -> None:
    assert timed.put(feed, json={"max_attempts": 2}).json()["max_attempts"] == 2
    publish(1)
    for attempt in (1, 2):
        assert claimed(timed, feed, lease=10)["messages"][0]["attempts"] == attempt
        clock.advance(11)
    assert timed.post(f"{feed}/claims").status_code == 204
    assert [job.payload for job in db.dead.list(name)] == [0]


def test_a_delayed_message_waits_and_an_expired_one_is_gone(
    timed: httpx2.Client, feed: str, publish: Publish, clock: SettableClock
) -> None:
    body = {"messages": [{"payload": "late", "delay": 10}, {"payload": "short", "expires_in": 5}]}
    timed.post(f"{feed}/messages", json=body)
    assert timed.get(f"{feed}/stats").json()["delayed"] == 1
    clock.advance(6)
    assert timed.post(f"{feed}/claims").status_code == 204
    clock.advance(6)
    assert [one["payload"] for one in claimed(timed, feed)["messages"]] == ["late"]


# --- cursors ------------------------------------------------------------------------------------------------------------


def test_a_cursor_is_acknowledged_by_its_holder_only(client: httpx2.Client, feed: str, publish: Publish) -> None:
    ids = publish(3)
    path = f"{feed}/cursors/reader"
    opened = client.put(path)
    hold = {"If-Match": opened.headers["etag"]}
    assert opened.json()["position"] == client.get(feed).json()["start"]
    assert client.put(path).status_code == 409
    acked = client.post(f"{path}/ack", json={"upto": ids[0]}, headers=hold)
    assert acked.json()["position"] == ids[0]
    assert client.get(path).json()["behind"] == 2
    assert client.post(f"{path}/ack", json={"upto": ids[1]}).status_code == 428
    assert client.post(f"{path}/ack", json={"upto": ids[1]}, headers={"If-Match": "mine"}).status_code == 412
    taken = client.put(path, params={"take_over": True})
    assert client.post(f"{path}/ack", json={"upto": ids[2]}, headers=hold).status_code == 412
    assert client.get(path).json()["position"] == ids[0]
    assert client.post(f"{path}/close", headers={"If-Match": taken.headers["etag"]}).status_code == 204
    again = client.put(path)
    assert again.json()["position"] == ids[0]
    assert numbers(client.get(f"{feed}/messages", params={"after": again.json()["position"]})) == [1, 2]
    assert client.post(f"{path}/seek", json={"position": "end"}).json()["behind"] == 0
    assert client.post(f"{path}/ack", json={"upto": ids[2]}, headers={"If-Match": again.headers["etag"]}).status_code == 412
    assert [one["name"] for one in client.get(f"{feed}/cursors").json()["cursors"]] == ["reader"]
    assert client.delete(path).status_code == 204
    assert client.delete(path).status_code == client.get(path).status_code == 404


# --- long poll ----------------------------------------------------------------------------------------------------------


def later(call: Callable[[], httpx2.Response]) -> Callable[[], httpx2.Response]:
    """Begin a call in another thread; the function that is returned waits for its response."""
    found: list[httpx2.Response] = []
    thread = threading.Thread(target=lambda: found.append(call()))
    thread.start()

    def result() -> httpx2.Response:
        thread.join(PATIENCE)
        return found[0]

    return result


def test_a_long_poll_gets_the_message_that_is_published_meanwhile(client: httpx2.Client, feed: str, publish: Publish) -> None:
    publish(1)
    end = client.get(feed).json()["end"]
    polls = [later(lambda: client.get(f"{feed}/messages", params={"after": end, "wait": 60})) for _ in range(3)]
    publish(1)
    assert [numbers(poll()) for poll in polls] == [[0]] * 3


def test_a_long_poll_for_a_claim_gets_one(client: httpx2.Client, feed: str, publish: Publish) -> None:
    polls = [later(lambda: client.post(f"{feed}/claims", params={"wait": 60, "limit": 1})) for _ in range(2)]
    publish(2)
    assert sorted(numbers(poll())[0] for poll in polls) == [0, 1]


def test_a_long_poll_ends_without_a_message(client: httpx2.Client, feed: str) -> None:
    assert numbers(client.get(f"{feed}/messages", params={"wait": 0.05})) == []
    assert client.post(f"{feed}/claims", params={"wait": 0.05}).status_code == 204
