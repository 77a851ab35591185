"""A token that is revoked, or a session that ends, while its request waits: nothing that comes after that is handed over."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import httpx2
import pytest

from queue_db import QueueDB, State
from queue_db.model import StoredResult
from queue_db.service import Settings, service
from queue_db.service.api import event_stream as streams
from queue_db.service.auth import identity
from queue_db.service.live import events
from queue_db.service.live.arrivals import Arrivals
from queue_db.service.live.ends import Ends
from tests.patience import PATIENCE
from tests.service.conftest import serving_app
from tests.service.test_api_claims import until, waits

pytestmark = pytest.mark.parametrize("kind", ["sqlite"], scope="session")

Ending = Callable[[str], object]


@pytest.fixture
def client(db: QueueDB) -> Iterator[httpx2.Client]:
    """A client of a closed service, with the application as ``app``."""
    app = service(db, Settings())
    with serving_app(app) as url, httpx2.Client(base_url=url, timeout=PATIENCE) as made:
        made.app = app  # type: ignore[attr-defined]
        yield made


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as pool:
        yield pool


@pytest.fixture(params=["here", "elsewhere"])
def revoke(request: pytest.FixtureRequest, db: QueueDB, monkeypatch: pytest.MonkeyPatch) -> Ending:
    """Revoke a token: by the service itself, or by another process."""
    if request.param == "here":
        return db.tokens.revoke
    monkeypatch.setattr(identity, "REMEMBERED_FOR", 0.0)

    def elsewhere(name: str) -> None:
        with QueueDB(db.database.engine.url) as other:
            other.tokens.revoke(name)

    return elsewhere


def reads(client: httpx2.Client, feed: str) -> int:
    """How many requests wait for messages of the feed."""
    arrivals: Arrivals = client.app.state.arrivals  # type: ignore[attr-defined]
    return arrivals.waiting(feed)


def as_token(client: httpx2.Client, db: QueueDB, name: str, scope: str) -> None:
    client.headers["Authorization"] = f"Bearer {db.tokens.create(name, [scope])}"


@pytest.mark.parametrize("kept", [True, False])
def test_the_end_of_a_job_is_not_told(
    db: QueueDB, name: str, client: httpx2.Client, threads: ThreadPoolExecutor, revoke: Ending, *, kept: bool
) -> None:
    as_token(client, db, name, "read")
    queue = db.queue(name)
    job_id = queue.enqueue("mail") or 0
    ends: Ends = client.app.state.ends  # type: ignore[attr-defined]
    answer = threads.submit(client.get, f"/api/v1/jobs/{job_id}", params={"wait": 50})
    until(lambda: ends.waiting(job_id) == 1)
    revoke(name)
    queue.complete_many(queue.claim(), results=[StoredResult("1", 10**9) if kept else None])
    assert answer.result(PATIENCE).status_code == 401


def test_a_claim_that_waits_is_refused_and_its_job_released(
    db: QueueDB, name: str, client: httpx2.Client, threads: ThreadPoolExecutor, revoke: Ending
) -> None:
    as_token(client, db, name, "work")
    answer = threads.submit(client.post, f"/api/v1/queues/{name}/claims", json={"wait": 50})
    until(lambda: waits(client, name) == 1)
    revoke(name)
    job_id = db.queue(name).enqueue("mail")
    assert (answer.result(PATIENCE).status_code, answer.result().json()["status"]) == (401, 401)
    until(lambda: db.get(job_id or 0).state is State.AVAILABLE)
    assert db.get(job_id or 0).attempts == 0


def test_a_claim_of_messages_that_waits_is_refused_and_released(
    db: QueueDB, name: str, client: httpx2.Client, threads: ThreadPoolExecutor, revoke: Ending
) -> None:
    as_token(client, db, name, "work")
    db.feeds.set(name, claims=True)
    answer = threads.submit(client.post, f"/api/v1/feeds/{name}/claims", params={"wait": 50})
    until(lambda: reads(client, name) == 1)
    revoke(name)
    db.feed(name).publish("paid")
    assert answer.result(PATIENCE).status_code == 401
    until(lambda: db.feed(name).stats().free == 1)
    db.feeds.delete(name)


def test_a_read_that_waits_is_refused(
    db: QueueDB, name: str, client: httpx2.Client, threads: ThreadPoolExecutor, revoke: Ending
) -> None:
    as_token(client, db, name, "read")
    db.feeds.set(name)
    answer = threads.submit(client.get, f"/api/v1/feeds/{name}/messages", params={"wait": 50})
    until(lambda: reads(client, name) == 1)
    revoke(name)
    db.feed(name).publish("paid")
    assert answer.result(PATIENCE).status_code == 401
    db.feeds.delete(name)


def problem(coming: Iterator[str]) -> dict[str, Any]:
    """The last event of a stream, which is a problem."""
    lines = [line for line in coming if line and not line.startswith(":")]
    assert lines[-2] == "event: problem", lines
    found: dict[str, Any] = json.loads(lines[-1].removeprefix("data: "))
    return found


def test_a_stream_ends_with_a_problem_in_place_of_the_next_event(
    db: QueueDB, name: str, client: httpx2.Client, revoke: Ending
) -> None:
    as_token(client, db, name, "read")
    db.feed(name).publish("paid", 0)
    with client.stream("GET", f"/api/v1/feeds/{name}/events", params={"after": db.feed(name).start()}) as stream:
        coming = stream.iter_lines()
        assert next(coming).startswith("data: ")
        revoke(name)
        db.feed(name).publish("paid", "for others")
        rest = list(coming)
    assert "for others" not in "".join(rest)
    found = problem(iter(rest))
    assert (found["status"], found["type"]) == (401, "urn:queue-db:problem:unauthorized")
    db.feeds.delete(name)


@pytest.mark.parametrize("end", ["sign-out", "revocation"])
def test_an_idle_stream_of_a_session_ends_at_the_next_keep_alive(
    db: QueueDB, name: str, client: httpx2.Client, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (events, streams):
        monkeypatch.setattr(module, "IDLE", 0.02)
    db.feeds.set(name)
    assert client.post("/login", data={"token": db.tokens.create(name, ["read"])}).status_code == 303
    (key,) = client.cookies.values()
    with ExitStack() as stack:
        paths = ("/api/v1/events", f"/api/v1/feeds/{name}/events")
        open_ones = [stack.enter_context(client.stream("GET", path)).iter_lines() for path in paths]
        for one in open_ones:
            assert next(one)
        assert db.tokens.log_out(key) if end == "sign-out" else db.tokens.revoke(name)
        assert [problem(one)["status"] for one in open_ones] == [401, 401]
    db.feeds.delete(name)


def test_a_stream_whose_messages_were_trimmed_ends_with_that_problem(db: QueueDB, name: str, client: httpx2.Client) -> None:
    """Not as a bug of the service."""
    as_token(client, db, name, "read")
    db.feeds.set(name, keep_rows=1)
    with client.stream("GET", f"/api/v1/feeds/{name}/events") as stream:
        until(lambda: reads(client, name) == 1)
        db.feeds.purge(name)
        db.feed(name).publish("paid")
        found = problem(stream.iter_lines())
    assert found["status"] in {410, 422}, found
    assert not client.app.state.service.incidents.counts().get("bug")  # type: ignore[attr-defined]
    db.feeds.delete(name)
