"""Claims by REST: what they give, how they wait, and what becomes of jobs whose client has gone."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Callable, Iterator, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest
from fastapi import Response

from queue_db import Queue, QueueDB, State
from queue_db.feeds import Feed, MessageClaim
from queue_db.leased_job import LeasedJob
from queue_db.service.api import message_claims
from queue_db.service.http.handover import Handover, watch
from queue_db.service.live.claims import Claims
from tests.patience import PATIENCE

here = pytest.mark.parametrize("kind", ["sqlite"], scope="session")


@pytest.fixture
def claims(name: str) -> str:
    return f"/api/v1/queues/{name}/claims"


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(20) as pool:
        yield pool


def until(condition: Callable[[], bool]) -> None:
    """Wait for what must happen."""
    for _ in range(int(PATIENCE / 0.01)):
        if condition():
            return
        threading.Event().wait(0.01)
    pytest.fail("it has not happened")


def waits(client: httpx2.Client, queue: str) -> int:
    """How many clients wait for jobs of the queue."""
    found: Claims = client.app.state.claims  # type: ignore[attr-defined]
    return found.waiting(queue)


@here
def test_a_claim_leases_jobs(db: QueueDB, name: str, client: httpx2.Client, claims: str) -> None:
    queue = db.queue(name)
    queue.enqueue("mail", {"to": "ada", "password": "p"}, headers={"trace": "1"}, group="g", unique_key="k")
    (job,) = client.post(claims, json={"lease": 30}).json()["jobs"]
    assert (job["kind"], job["payload"], job["headers"]) == ("mail", {"to": "ada", "password": "p"}, {"trace": "1"})
    assert (job["queue"], job["attempts"], job["group"], job["unique_key"]) == (name, 1, "g", "k")
    assert (job["lease"]["id"], job["lease"]["version"]) == (job["id"], str(db.get(int(job["id"])).version))
    assert job["lease"]["token"]
    assert db.get(int(job["id"])).state is State.RUNNING
    assert client.post(claims, json={}).json() == {"jobs": []}


@here
def test_a_lease_of_30_days_is_the_longest(client: httpx2.Client, claims: str) -> None:
    assert client.post(claims, json={"lease": 2_592_000}).status_code == 200
    assert "2592000" in client.post(claims, json={"lease": 2_592_000.5}).text
    longest = client.get("/api/v1/openapi.json").json()["components"]["schemas"]["ClaimRequest"]["properties"]["lease"]
    assert longest["maximum"] == 2_592_000


@here
@pytest.mark.parametrize(
    "body",
    [
        {"limit": 0},
        {"limit": "1"},
        {"lease": 0},
        {"lease": 2_592_001},
        {"wait": -1},
        {"wait": 3600},
        {"worker": ""},
        {"limits": 1},
        [],
        None,
    ],
)
def test_what_cannot_be_claimed_is_refused(client: httpx2.Client, claims: str, body: object) -> None:
    refused = client.post(claims, json=body)
    assert refused.status_code == 422
    assert refused.headers["content-type"] == "application/problem+json"


@here
def test_a_stored_text_that_is_no_json_comes_as_text(db: QueueDB, name: str, client: httpx2.Client, claims: str) -> None:
    job_id = db.queue(name).enqueue("mail")
    with db.database.begin("test") as connection:
        table = db.store.tables.jobs
        connection.execute(table.update().where(table.c.id == job_id).values(payload="not JSON"))
    (job,) = client.post(claims, json={}).json()["jobs"]
    assert job["payload"] == "not JSON"


def test_a_claim_that_waits_gets_the_job_when_it_comes(
    db: QueueDB, name: str, waiting_client: httpx2.Client, claims: str, threads: ThreadPoolExecutor
) -> None:
    """On each database; other processes enqueue, too, so the database is asked."""
    answer = threads.submit(waiting_client.post, claims, json={"wait": 50})
    until(lambda: waits(waiting_client, name) == 1)
    with QueueDB(db.database.engine.url) as other:
        job_id = other.queue(name).enqueue("mail")
    assert [job["id"] for job in answer.result(PATIENCE).json()["jobs"]] == [str(job_id)]
    assert waits(waiting_client, name) == 0


@here
def test_a_wait_without_a_job_ends_empty(waiting_client: httpx2.Client, claims: str, name: str) -> None:
    assert waiting_client.post(claims, json={"wait": 0.05}).json() == {"jobs": []}
    assert waits(waiting_client, name) == 0


@here
def test_each_of_those_who_wait_gets_a_job(
    db: QueueDB, name: str, waiting_client: httpx2.Client, claims: str, threads: ThreadPoolExecutor
) -> None:
    answers = [threads.submit(waiting_client.post, claims, json={"wait": 50}) for _ in range(10)]
    until(lambda: waits(waiting_client, name) == 10)
    ids = db.queue(name).enqueue_many([("mail", n) for n in range(10)])
    got = [job["id"] for answer in answers for job in answer.result(PATIENCE).json()["jobs"]]
    assert sorted(got, key=int) == [str(job_id) for job_id in ids]


@here
def test_clients_who_wait_need_no_thread(
    db: QueueDB, name: str, waiting_client: httpx2.Client, claims: str, threads: ThreadPoolExecutor
) -> None:
    with open_requests(waiting_client, claims, {"wait": 50}, 200) as connections:
        until(lambda: waits(waiting_client, name) == len(connections))
        before = threading.active_count()
        # Another client is served meanwhile.
        assert waiting_client.get("/api/v1/queues").status_code == 200
        assert before < 100
        db.queue(name).enqueue_many([("mail", n) for n in range(len(connections))])
        for connection in connections:
            assert b'"jobs":[{' in received(connection)
    assert db.queue(name).stats().running == len(connections)


@here
def test_a_paused_queue_gives_nothing(
    db: QueueDB, name: str, waiting_client: httpx2.Client, claims: str, threads: ThreadPoolExecutor
) -> None:
    queue = db.queue(name)
    queue.pause()
    queue.enqueue("mail")
    assert waiting_client.post(claims, json={}).json() == {"jobs": []}
    answer = threads.submit(waiting_client.post, claims, json={"wait": 50})
    until(lambda: waits(waiting_client, name) == 1)
    queue.resume()
    assert len(answer.result(PATIENCE).json()["jobs"]) == 1


@here
def test_a_client_that_has_gone_while_it_waited_gets_no_job(
    db: QueueDB, name: str, waiting_client: httpx2.Client, claims: str
) -> None:
    with open_requests(waiting_client, claims, {"wait": 50}, 2):
        until(lambda: waits(waiting_client, name) == 2)
    until(lambda: waits(waiting_client, name) == 0)
    db.queue(name).enqueue("mail")
    (job,) = waiting_client.post(claims, json={}).json()["jobs"]
    assert job["attempts"] == 1


@here
@pytest.mark.parametrize("wait", [0, 50])
def test_jobs_of_a_client_that_goes_while_it_is_claimed_for_return(
    db: QueueDB, name: str, waiting_client: httpx2.Client, claims: str, monkeypatch: pytest.MonkeyPatch, wait: int
) -> None:
    """The claim has its job when the client goes: the job must not stay leased."""
    claimed, gone = threading.Event(), threading.Event()
    plain = Queue.claim

    def slowly(queue: Queue, *args: object, **options: object) -> list[LeasedJob]:
        jobs = plain(queue, *args, **options)  # type: ignore[arg-type]
        if jobs and not gone.is_set():
            claimed.set()
            assert gone.wait(PATIENCE)
        return jobs

    queue = db.queue(name)
    if not wait:
        queue.enqueue("mail")
    monkeypatch.setattr(Queue, "claim", slowly)
    with open_requests(waiting_client, claims, {"wait": wait, "lease": 3600}, 1):
        if wait:
            until(lambda: waits(waiting_client, name) == 1)
            queue.enqueue("mail")
        assert claimed.wait(PATIENCE)
    server_noticed(waiting_client)
    gone.set()
    until(lambda: queue.stats().available == 1)
    (job,) = queue.claim()
    assert job.attempts == 1


@here
def test_jobs_of_a_client_that_goes_before_it_has_read_a_long_answer_return(
    db: QueueDB, name: str, waiting_client: httpx2.Client, claims: str
) -> None:
    """Most of the answer waits in the service then, since the buffers of a connection do not hold it."""
    queue = db.queue(name)
    queue.enqueue_many([("mail", "x" * 400_000)] * 40)
    with open_requests(waiting_client, claims, {"limit": 40, "lease": 3600}, 1) as (connection,):
        assert connection.recv(12) == b"HTTP/1.1 200"
    until(lambda: queue.stats().available == 40)
    assert queue.claim()[0].attempts == 1


def test_jobs_of_a_client_that_has_gone_when_its_answer_is_written_return() -> None:
    """The connection is lost in the next turn of the event loop, as asyncio does it when a write fails."""
    given_back: list[bool] = []

    async def answer() -> None:
        closed, loop = asyncio.Event(), asyncio.get_running_loop()

        async def receive() -> dict[str, Any]:
            await closed.wait()
            return {"type": "http.disconnect"}

        async def send(message: MutableMapping[str, Any]) -> None:
            if message.get("body"):
                loop.call_soon(closed.set)

        disconnected = watch(receive)
        await asyncio.sleep(0)
        await Handover(b"{}", disconnected, Response, lambda: given_back.append(True))({"type": "http"}, receive, send)

    asyncio.run(answer())
    assert given_back == [True]


@here
@pytest.mark.parametrize("wait", [0, 50])
def test_messages_of_a_client_that_goes_while_they_are_claimed_for_it_are_free(
    db: QueueDB, name: str, waiting_client: httpx2.Client, monkeypatch: pytest.MonkeyPatch, wait: int
) -> None:
    db.feeds.set(name, claims=True, max_attempts=1)
    feed = db.feed(name)
    tried, claimed, gone = threading.Event(), threading.Event(), threading.Event()
    plain = Feed.claim

    def slowly(feed: Feed, *args: object, **options: object) -> MessageClaim | None:
        made = plain(feed, *args, **options)  # type: ignore[arg-type]
        tried.set()
        if made is not None and not gone.is_set():
            claimed.set()
            assert gone.wait(PATIENCE)
        return made

    if not wait:
        feed.publish("n")
    monkeypatch.setattr(Feed, "claim", slowly)
    with open_requests(waiting_client, f"/api/v1/feeds/{name}/claims?wait={wait}&lease=3600", {}, 1):
        assert tried.wait(PATIENCE)
        if wait:
            feed.publish("n")
        assert claimed.wait(PATIENCE)
    server_noticed(waiting_client)
    gone.set()
    until(lambda: feed.stats().free == 1)
    assert feed.claims() == []
    db.feeds.delete(name)


@here
def test_messages_are_free_if_the_answer_cannot_be_made(
    db: QueueDB, name: str, waiting_client: httpx2.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    db.feeds.set(name, claims=True)
    db.feed(name).publish("n")

    def fails(_made: MessageClaim) -> None:
        raise OverflowError

    monkeypatch.setattr(message_claims, "claim_view", fails)
    assert waiting_client.post(f"/api/v1/feeds/{name}/claims").status_code == 500
    until(lambda: db.feed(name).stats().free == 1)
    db.feeds.delete(name)


@here
def test_a_server_that_ends_answers_those_who_wait(
    name: str, waiting_client: httpx2.Client, claims: str, threads: ThreadPoolExecutor
) -> None:

    answer = threads.submit(waiting_client.post, claims, json={"wait": 50})
    until(lambda: waits(waiting_client, name) == 1)
    waiting_client.app.state.service.ending.set()  # type: ignore[attr-defined]
    assert answer.result(PATIENCE).json() == {"jobs": []}


@contextmanager
def open_requests(client: httpx2.Client, path: str, body: object, number: int) -> Iterator[list[socket.socket]]:
    """Requests on connections of their own; at the end of the block the connections are closed."""
    address = urlsplit(str(client.base_url))
    text = json.dumps(body).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nHost: {address.netloc}\r\nContent-Type: application/json\r\nContent-Length: {len(text)}\r\n\r\n"
    )
    connections = []
    try:
        for _ in range(number):
            connection = socket.create_connection((address.hostname or "", address.port or 0), timeout=PATIENCE)
            connections.append(connection)
            connection.sendall(head.encode() + text)
        yield connections
    finally:
        for connection in connections:
            connection.close()


def received(connection: socket.socket) -> bytes:
    """What has come, until the body of the answer is there."""
    data = b""
    while not data.endswith(b"]}"):
        data += connection.recv(65536)
    return data


def server_noticed(client: httpx2.Client) -> None:
    """The server has seen what happened on its other connections before: it answers after its event loop has turned."""
    for _ in range(3):
        assert client.get("/api/v1/queues").status_code == 200
