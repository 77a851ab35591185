"""Claims and settlements that wait for the next statement, since a first one is held in its own."""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import httpx2
import pytest

from queue_db import Queue
from queue_db.service.live import together
from queue_db.service.live.together import Together
from tests.patience import PATIENCE
from tests.service.test_api_claims import until


class Group:
    """Clients of a service whose first statement is held: what they send meanwhile shares the next one."""

    def __init__(self, queue: Queue, client: httpx2.Client, threads: ThreadPoolExecutor, patch: pytest.MonkeyPatch) -> None:
        self.client, self.threads = client, threads
        self._queue, self._patch = queue, patch
        self._url = f"/api/v1/queues/{queue.name}"
        #: The first argument of each call of the method that is held.
        self.calls: list[Any] = []
        self.entered, self.released = threading.Event(), threading.Event()
        # No run is late: what comes meanwhile shares the next one.
        patch.setattr(together, "_LATE", 10 * PATIENCE)

    def hold_claims(self) -> Future[httpx2.Response]:
        """Let a first claim be in its statement, until ``released``."""
        return self._hold("claim", "claims", {})

    def settle_first(self, lease: dict[str, str]) -> Future[httpx2.Response]:
        """Let a first settlement be in its statement, until ``released``."""
        return self._hold("complete_many", "settlements", {"settlements": [done(lease)]})

    def claim(self, **body: Any) -> Future[httpx2.Response]:
        """Send a claim that waits for the next statement."""
        return self._wait("claims", body)

    def settle(self, *settlements: dict[str, Any]) -> Future[httpx2.Response]:
        """Send settlements that wait for the next statement."""
        return self._wait("settlements", {"settlements": settlements})

    def leases(self, number: int) -> list[dict[str, Any]]:
        """The leases of as many new jobs."""
        self._queue.enqueue_many(("mail", n) for n in range(number))
        return [job["lease"] for job in self.client.post(f"{self._url}/claims", json={"limit": number}).json()["jobs"]]

    def _hold(self, method: str, operation: str, body: dict[str, Any]) -> Future[httpx2.Response]:
        plain = getattr(Queue, method)

        def held(queue: Queue, *args: Any, **options: Any) -> Any:
            self.calls.append(args[0])
            if not self.entered.is_set():
                self.entered.set()
                assert self.released.wait(PATIENCE)
            return plain(queue, *args, **options)

        self._patch.setattr(Queue, method, held)
        sent = self.threads.submit(self.client.post, f"{self._url}/{operation}", json=body)
        assert self.entered.wait(PATIENCE)
        return sent

    def _wait(self, operation: str, body: dict[str, Any]) -> Future[httpx2.Response]:
        state = self.client.app.state  # type: ignore[attr-defined]
        shared = (state.claims if operation == "claims" else state.settling)._together
        before = pending(shared)
        sent = self.threads.submit(self.client.post, f"{self._url}/{operation}", json=body)
        until(lambda: pending(shared) == before + 1)
        return sent


def pending(shared: Together[Any, Any, Any]) -> int:
    return sum(len(one.calls) for one in shared._pending.values())


def jobs_of(answer: Future[httpx2.Response]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = answer.result(PATIENCE).json()["jobs"]
    return found


def verdicts_of(answer: Future[httpx2.Response]) -> list[str]:
    return [one["verdict"] for one in answer.result(PATIENCE).json()["verdicts"]]


def done(lease: dict[str, str]) -> dict[str, Any]:
    return {"lease": lease, "verb": "complete"}
