"""``/healthz``, ``/readyz`` and ``/metrics``."""

from __future__ import annotations

from pathlib import Path

import httpx2
import pytest

from queue_db import QueueDB
from queue_db.service import Settings
from tests.patience import PATIENCE, wait_for
from tests.service.conftest import serving


def test_a_service_is_ready(client: httpx2.Client) -> None:
    assert client.get("/healthz").json() == client.get("/readyz").json() == {"status": "ok"}


@pytest.mark.parametrize("kind", ["sqlite"], scope="session")
def test_metrics_count(db: QueueDB, name: str, client: httpx2.Client) -> None:
    db.queue(name).enqueue("mail")
    answer = client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    assert "queue_db_claims_total" in answer.text or "queue_db_claims" in answer.text
    queue = db.queue(name)
    queue.complete_many(queue.claim())
    db.metrics.take()  # or the service does, or has
    happened = f'queue_db_last_minute{{event="completed",queue="{name}"}} 1.0'
    wait_for(lambda: happened in client.get("/metrics").text)


def test_without_tables_the_process_lives_and_is_not_ready(tmp_path: Path) -> None:
    with (
        QueueDB(f"sqlite:///{tmp_path / 'empty.db'}") as db,
        serving(db, Settings(closed=False)) as base,
        httpx2.Client(base_url=base, timeout=PATIENCE) as client,
    ):
        assert client.get("/healthz").status_code == 200
        answer = client.get("/readyz")
        assert answer.status_code == 503
        assert "queue-db migrate" in answer.json()["title"]
        assert answer.headers["retry-after"] == "1"
        db.migrate()
        assert client.get("/readyz").status_code == 200
