"""Queues by REST."""

from __future__ import annotations

import httpx2

from queue_db import QueueDB


def test_queues_are_listed(db: QueueDB, name: str, client: httpx2.Client) -> None:
    db.queue(name).enqueue("mail")
    assert name in client.get("/api/v1/queues").json()["queues"]
