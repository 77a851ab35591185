"""Claims and settlements that wait for the next statement, since a first one is held in its own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import httpx2
import pytest

from queue_db import Queue
from queue_db.service.live.together import Together
from tests.patience import PATIENCE
from tests.service.test_api_claims import until

Send = Callable[..., "Future[httpx2.Response]"]


class Held:
    """The first call of a method of queues waits until :meth:`release`; ``calls`` has the first argument of each."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, method: str) -> None:
        self.calls: list[Any] = []
        self.entered, self.released = threading.Event(), threading.Event()
        plain = getattr(Queue, method)

        def held(queue: Queue, *args: Any, **options: Any) -> Any:
            self.calls.append(args[0])
            if not self.entered.is_set():
                self.entered.set()
                assert self.released.wait(PATIENCE)
            return plain(queue, *args, **options)

        monkeypatch.setattr(Queue, method, held)


def pending(together: Together[Any, Any, Any]) -> int:
    return sum(len(one.calls) for one in together._pending.values())


def claiming(waiting_client: httpx2.Client, name: str, threads: ThreadPoolExecutor) -> Send:
    """Send a claim that waits for the next statement."""
    together = waiting_client.app.state.claims._together  # type: ignore[attr-defined]

    def send(**body: Any) -> Future[httpx2.Response]:
        before = pending(together)
        sent = threads.submit(waiting_client.post, f"/api/v1/queues/{name}/claims", json=body)
        until(lambda: pending(together) == before + 1)
        return sent

    return send


def settling(waiting_client: httpx2.Client, name: str, threads: ThreadPoolExecutor) -> Send:
    """Send settlements that wait for the next statement."""
    together = waiting_client.app.state.settling._together  # type: ignore[attr-defined]

    def send(*settlements: dict[str, Any]) -> Future[httpx2.Response]:
        before = pending(together)
        body = {"settlements": settlements}
        sent = threads.submit(waiting_client.post, f"/api/v1/queues/{name}/settlements", json=body)
        until(lambda: pending(together) == before + 1)
        return sent

    return send


def jobs_of(answer: Future[httpx2.Response]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = answer.result(PATIENCE).json()["jobs"]
    return found


def verdicts_of(answer: Future[httpx2.Response]) -> list[str]:
    return [one["verdict"] for one in answer.result(PATIENCE).json()["verdicts"]]


def hold(waiting_client: httpx2.Client, name: str, threads: ThreadPoolExecutor, held: Held, operation: str) -> Future[Any]:
    """Let a first request be in its statement."""
    lease = {"id": "1", "version": "1", "token": "none"}
    body: dict[str, Any] = {} if operation == "claims" else {"settlements": [{"lease": lease, "verb": "complete"}]}
    first = threads.submit(waiting_client.post, f"/api/v1/queues/{name}/{operation}", json=body)
    assert held.entered.wait(PATIENCE)
    return first


def done(lease: dict[str, str]) -> dict[str, Any]:
    return {"lease": lease, "verb": "complete"}


def settle_first(client: httpx2.Client, name: str, threads: ThreadPoolExecutor, held: Held, lease: dict[str, str]) -> Future[Any]:
    """Let a first settlement be in its statement."""
    sent = threads.submit(client.post, f"/api/v1/queues/{name}/settlements", json={"settlements": [done(lease)]})
    assert held.entered.wait(PATIENCE)
    return sent


def claimed(client: httpx2.Client, name: str, number: int) -> list[dict[str, Any]]:
    found = client.post(f"/api/v1/queues/{name}/claims", json={"limit": number}).json()["jobs"]
    return [job["lease"] for job in found]
