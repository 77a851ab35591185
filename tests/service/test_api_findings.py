"""What makes no progress and why, over HTTP: of all queues, of one, and of one job."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from queue_db import QueueDB
from queue_db.service import Settings
from tests.patience import wait_for

Serve = Callable[[Settings], httpx2.Client]


@pytest.fixture
def db(tmp_path: Path) -> Iterator[QueueDB]:
    """A database of its own: findings are of all queues."""
    with QueueDB(f"sqlite:///{tmp_path}/queue.db") as db:
        db.migrate()
        yield db


def client_of(db: QueueDB, serve: Serve, *queues: str) -> httpx2.Client:
    client = serve(Settings())
    client.headers["Authorization"] = f"Bearer {db.tokens.create('-'.join(['agent', *queues]), ['read'], queues=queues or ['*'])}"
    return client


def found(client: httpx2.Client, **query: str) -> dict[str, Any]:
    """The findings, once the service has looked."""

    def look() -> dict[str, Any] | None:
        answer = client.get("/api/v1/findings", params=query)
        assert answer.status_code == 200, answer.text
        read: dict[str, Any] = answer.json()
        return None if read["age"] is None else read

    read = wait_for(look)
    assert read is not None
    return read


def test_findings_are_of_the_queues_that_the_token_may_read(db: QueueDB, serve: Serve) -> None:
    for queue in ("mail", "wages"):
        db.queue(queue).enqueue("send")
    with db.database.begin("age them") as connection:
        connection.exec_driver_sql("UPDATE jobs SET available_at = available_at - 600000000")
    db.schedules.set("nightly", queue="wages", kind="pay", every=3600)
    everything = found(client_of(db, serve))
    assert {one["queue"] for one in everything["findings"]} == {"mail", "wages"}
    assert all("no registered worker serves it" in one["sentence"] and one["stuck"] for one in everything["findings"])
    client = client_of(db, serve, "mail")
    assert {one["queue"] for one in found(client)["findings"]} == {"mail"}
    assert found(client, queue="mail")["findings"] == found(client)["findings"]
    assert client.get("/api/v1/findings", params={"queue": "wages"}).status_code == 403


def test_a_job_waits_for_a_reason_or_for_none(db: QueueDB, serve: Serve) -> None:
    mail = db.queue("mail")
    first, second = mail.enqueue("send", group="g"), mail.enqueue("send", group="g")
    client = client_of(db, serve)

    def waits(job_id: int) -> dict[str, Any]:
        answer = client.get(f"/api/v1/jobs/{job_id}/waits")
        assert answer.status_code == 200, answer.text
        read: dict[str, Any] = answer.json()
        return read

    assert "no registered worker" in waits(first)["findings"][0]["sentence"]
    mail.pause()
    for job_id, before, state in ((first, None, "available"), (second, str(first), "blocked")):
        told = waits(job_id)
        assert (told["first"], told["state"]) == (before, state)
        assert "it is paused" in told["findings"][0]["sentence"]
    mail.resume()
    (job,) = mail.claim()
    assert waits(first) == {"state": "running", "first": None, "findings": []}
    job.complete()
    assert client.get(f"/api/v1/jobs/{first}/waits").status_code == 404
    assert client_of(db, serve, "wages").get(f"/api/v1/jobs/{second}/waits").status_code == 404
