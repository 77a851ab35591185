"""The steps of a job on the command line, in the REST API and on its page; and callbacks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx2
import pytest

from queue_db import LeasedJob, Queue, QueueDB, Suspended
from queue_db.service import Settings
from tests.service.conftest import serve  # noqa: F401 - a fixture
from tests.steps.conftest import waiting_job

pytestmark = pytest.mark.parametrize("kind", ["sqlite"])

Serve = Callable[[Settings], httpx2.Client]

OPEN = Settings(closed=False)


def test_a_command_shows_steps(queue: Queue, ask: Callable[..., Any]) -> None:
    job = waiting_job(queue)
    shown = ask("jobs", "show", job.id, "--json").record["steps"]
    assert [(one["what"], one["name"], one["done"]) for one in shown] == [
        ("step", "charge", True),
        ("signal", "approved", False),
    ]
    assert "paid in secret" not in str(shown)
    text = ask("jobs", "show", job.id).out
    assert "step charge: done" in text
    assert "signal approved: waits until" in text


def test_the_api_and_the_page_show_steps(queue: Queue, serve: Serve) -> None:  # noqa: F811
    job = waiting_job(queue)
    client = serve(OPEN)
    answer = client.get(f"/api/v1/jobs/{job.id}")
    assert [(one["what"], one["name"], one["done"]) for one in answer.json()["steps"]] == [
        ("step", "charge", True),
        ("signal", "approved", False),
    ]
    page = client.get(f"/jobs/{job.id}").text
    assert 'step <span class="mono">charge</span>' in page
    assert "waits until" in page
    assert "paid in secret" not in page + answer.text


def token_of(job: LeasedJob) -> str:
    token: str = job.callback("approved")
    with pytest.raises(Suspended):
        job.wait_for("approved")
    return token


def test_who_has_the_token_calls_back_once(db: QueueDB, queue: Queue, serve: Serve) -> None:  # noqa: F811
    queue.enqueue("order")
    (job,) = queue.claim()
    token = token_of(job)
    client = serve(Settings(callbacks=True))
    assert client.get(f"/api/v1/jobs/{job.id}").status_code == 401, "all else needs a token"
    assert client.post(f"/api/v1/callbacks/{token}x", json=1).status_code == 404
    assert client.get(f"/api/v1/callbacks/{token}").status_code in {401, 405}
    assert client.post(f"/api/v1/callbacks/{token}", content=b"<x>").status_code == 415
    assert (
        client.post(f"/api/v1/callbacks/{token}", content=b"NaN", headers={"content-type": "application/json"}).status_code == 422
    )
    assert client.post(f"/api/v1/callbacks/{token}", json="x" * 70_000).status_code == 413
    assert db.actions.list(limit=1) == [] or db.actions.list(limit=1)[0].action != "call_back"
    assert client.post(f"/api/v1/callbacks/{token}", json={"by": "ann"}).status_code == 204
    (action,) = db.actions.list(limit=1)
    assert (action.who, action.action, action.target) == ("callback", "call_back", f"job {job.id}")
    again = client.post(f"/api/v1/callbacks/{token}", json={"by": "bob"})
    assert (again.status_code, again.json()["code"]) == (404, "no_such_callback")
    (job,) = queue.claim()
    assert job.wait_for("approved") == {"by": "ann"}


def test_callbacks_are_closed_unless_they_are_opened(queue: Queue, serve: Serve) -> None:  # noqa: F811
    queue.enqueue("order")
    (job,) = queue.claim()
    token = token_of(job)
    assert serve(Settings()).post(f"/api/v1/callbacks/{token}", json=1).status_code == 401
    assert serve(OPEN).post(f"/api/v1/callbacks/{token}", json=1).status_code == 404
    read_only = serve(Settings(callbacks=True, read_only=True)).post(f"/api/v1/callbacks/{token}", json=1)
    assert read_only.status_code == 403
    assert queue.claim() == []


def test_more_callbacks_than_a_service_takes_are_refused(serve: Serve, db: QueueDB) -> None:  # noqa: F811
    client = serve(Settings(callbacks=True, callback_rate=0.001))
    answers = [client.post("/api/v1/callbacks/qdbc_1_x", json=1).status_code for _ in range(2)]
    assert answers == [404, 429]
    elsewhere = httpx2.HTTPTransport(local_address="127.0.0.2", verify=False)
    with httpx2.Client(base_url=client.base_url, transport=elsewhere) as neighbour:
        answer = neighbour.post("/api/v1/callbacks/qdbc_1_x", json=1)
    assert answer.status_code == 404, "a stranger uses up his own rate"


def test_no_log_has_the_token(queue: Queue, serve: Serve, caplog: pytest.LogCaptureFixture) -> None:  # noqa: F811
    queue.enqueue("order")
    (job,) = queue.claim()
    token = token_of(job)
    client = serve(Settings(callbacks=True))
    client.post(f"/api/v1/callbacks/{token}", json="x" * 70_000)
    client.post(f"/api/v1/callbacks/{token}", json=1)
    assert "too large" in caplog.text
    assert token not in caplog.text
