"""Clients that claim over HTTP are shown with what they have in hand, although they are not registered as workers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx2

from queue_db import QueueDB
from queue_db.service import Settings, service
from queue_db.testing import SettableClock
from tests.patience import PATIENCE, wait_for
from tests.service.conftest import serving_app


def test_a_client_is_shown_with_what_it_has_in_hand(tmp_path: Path) -> None:
    clock = SettableClock()
    with QueueDB(f"sqlite:///{tmp_path}/queue.db", clock=clock) as db:
        db.migrate()
        for queue in ("mail", "mail", "print"):
            db.queue(queue).enqueue("k")
        all_queues = {"Authorization": f"Bearer {db.tokens.create('all', ['read', 'work'])}"}
        of_print = {"Authorization": f"Bearer {db.tokens.create('print', ['read'], queues=['print'])}"}
        with serving_app(service(db, Settings())) as url, httpx2.Client(base_url=url, timeout=PATIENCE) as client:

            def claim(queue: str, lease: int) -> list[Any]:
                body = {"worker": "node-1", "limit": 1, "lease": lease}
                found: list[Any] = client.post(f"/api/v1/queues/{queue}/claims", json=body, headers=all_queues).json()["jobs"]
                return found

            def claimers(headers: dict[str, str]) -> Any:
                return client.get("/api/v1/workers", headers=headers).json()["claimers"]

            (first,) = claim("mail", 7200)
            claim("mail", 3600)
            (last,) = claim("print", 9000)
            clock.advance(1000)

            def sampled() -> bool:
                db.metrics.take()
                return [one["queues"] for one in claimers(all_queues)] == [["mail", "print"]]

            wait_for(sampled)
            (mine,) = claimers(all_queues)
            assert (mine["name"], mine["in_hand"], mine["queues"]) == ("node-1", 3, ["mail", "print"])
            assert mine["lease_ends"] < first["lease_expires"] < last["lease_expires"]
            (seen,) = claimers(of_print)
            assert (seen["in_hand"], seen["queues"], seen["lease_ends"]) == (1, ["print"], last["lease_expires"])
            secret = all_queues["Authorization"].removeprefix("Bearer ")
            assert client.post("/login", data={"token": secret}).status_code == 303
            page = client.get("/workers").text
            assert "node-1" in page.partition("not registered as workers")[2]
            assert client.get("/api/v1/workers", headers=all_queues).json()["workers"] == []
