"""Settling by REST: only who holds the lease can, and each job gets its verdict."""

from __future__ import annotations

import json
from typing import Any

import httpx2
import pytest
from sqlalchemy import text

from queue_db import JobNotFoundError, QueueDB, State, Verdict

here = pytest.mark.parametrize("kind", ["sqlite"], scope="session")

WHY = {"error": {"message": "no route", "error_class": "TimeoutError", "trace": "at mail.js:17\nat main.js:3"}}


def claimed(client: httpx2.Client, name: str, limit: int = 1) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = client.post(f"/api/v1/queues/{name}/claims", json={"limit": limit, "worker": name}).json()["jobs"]
    return found


def settle(client: httpx2.Client, name: str, *settlements: dict[str, Any]) -> list[dict[str, Any]]:
    answer = client.post(f"/api/v1/queues/{name}/settlements", json={"settlements": settlements})
    assert answer.status_code == 200, answer.text
    verdicts: list[dict[str, Any]] = answer.json()["verdicts"]
    return verdicts


def lease_headers(lease: dict[str, str]) -> dict[str, str]:
    return {"If-Match": f'"{lease["id"]}:{lease["version"]}"', "Lease-Token": lease["token"]}


def test_a_job_goes_all_the_way(db: QueueDB, name: str, client: httpx2.Client) -> None:
    """On each database: enqueued, claimed, failed, claimed again, extended, completed with a result."""
    url = f"/api/v1/queues/{name}"
    job_id = client.post(f"{url}/jobs", json={"kind": "mail", "payload": {"to": "ada"}}).json()["id"]
    (first,) = claimed(client, name)
    assert db.get(int(job_id)).worker == name
    (failed,) = settle(client, name, {"lease": first["lease"], "verb": "fail", "retry_in": 0, **WHY})
    assert failed["verdict"] == "applied"
    (again,) = claimed(client, name)
    assert (again["id"], again["attempts"], again["last_error"]) == (job_id, 2, "TimeoutError: no route")
    (attempt,) = client.get(f"/api/v1/jobs/{job_id}/errors").json()["errors"]
    assert attempt["error_class"] == "TimeoutError"
    assert "at mail.js:17" in attempt["trace"]
    (extended,) = settle(client, name, {"lease": again["lease"], "verb": "extend", "seconds": 600})
    assert int(extended["lease"]["version"]) > int(again["lease"]["version"])
    done = {"verb": "complete", "result": {"sent": True}, "result_ttl": 60}
    (lost,) = settle(client, name, {"lease": again["lease"], **done})
    assert lost["verdict"] == "lost"
    (completed,) = settle(client, name, {"lease": extended["lease"], **done})
    assert completed["verdict"] == "applied"
    assert client.get(f"/api/v1/finished/{job_id}").json()["result"] == {"sent": True}


@here
def test_each_job_of_a_batch_gets_its_verdict(db: QueueDB, name: str, client: httpx2.Client) -> None:
    queue = db.queue(name)
    queue.enqueue_many([("mail", n) for n in range(9)])
    jobs = {job["payload"]: job["lease"] for job in claimed(client, name, 9)}
    guessed = {**jobs[7], "token": "0" * 32}
    verdicts = settle(
        client,
        name,
        {"lease": jobs[0], "verb": "complete"},
        {"lease": jobs[1], "verb": "fail", "retry_in": 60, **WHY},
        {"lease": jobs[2], "verb": "bury", **WHY},
        {"lease": jobs[3], "verb": "snooze", "seconds": 60},
        {"lease": jobs[4], "verb": "release"},
        {"lease": jobs[5], "verb": "cancel"},
        {"lease": jobs[6], "verb": "extend", "seconds": 60},
        {"lease": guessed, "verb": "complete"},
        {"lease": {**jobs[8], "version": "9223372036854775807"}, "verb": "complete"},
    )
    assert [one["verdict"] for one in verdicts] == ["applied"] * 7 + ["lost"] * 2
    states = {}
    for payload, lease in jobs.items():
        try:
            states[payload] = db.get(int(lease["id"])).state
        except JobNotFoundError:
            states[payload] = None
    assert states == {
        0: None,
        1: State.SCHEDULED,
        2: State.DEAD,
        3: State.SCHEDULED,
        4: State.AVAILABLE,
        5: None,
        6: State.RUNNING,
        7: State.RUNNING,
        8: State.RUNNING,
    }


@here
def test_nothing_is_settled_if_a_later_result_cannot_be_stored(db: QueueDB, name: str, client: httpx2.Client) -> None:
    queue = db.queue(name)
    queue.enqueue_many([("mail", n) for n in range(2)])
    first, second = claimed(client, name, 2)
    settlements = [
        {"lease": first["lease"], "verb": "bury", **WHY},
        {"lease": second["lease"], "verb": "complete", "result": "\ud800", "result_ttl": 60},
    ]
    url, headers = f"/api/v1/queues/{name}/settlements", {"Content-Type": "application/json"}
    assert client.post(url, content=json.dumps({"settlements": settlements}), headers=headers).status_code == 422
    assert db.get(int(first["id"])).state is State.RUNNING


@here
def test_what_is_settled_is_known_when_the_database_fails(db: QueueDB, name: str, client: httpx2.Client) -> None:
    queue = db.queue(name)
    queue.enqueue_many([("mail", n) for n in range(4)])
    leases = [job["lease"] for job in claimed(client, name, 4)]
    settlements = [
        {"lease": leases[0], "verb": "complete"},
        {"lease": leases[1], "verb": "bury", **WHY},
        {"lease": leases[2], "verb": "snooze", "seconds": 60},
        {"lease": {**leases[3], "token": "guessed"}, "verb": "complete"},
    ]
    dead = db.store.tables.dead.name
    with db.database.begin("test") as connection:
        full = f"CREATE TRIGGER full BEFORE INSERT ON {dead} WHEN NEW.queue = '{name}' BEGIN SELECT RAISE(ABORT, 'full'); END"
        connection.execute(text(full))
    try:
        verdicts = settle(client, name, *settlements)
        alone = client.post(f"/api/v1/queues/{name}/settlements", json={"settlements": settlements[1:2]})
    finally:
        with db.database.begin("test") as connection:
            connection.execute(text("DROP TRIGGER full"))
    assert [one["verdict"] for one in verdicts] == ["applied", "unknown", "unknown", "lost"]
    assert alone.status_code == 503
    again = settle(client, name, *settlements)
    assert [one["verdict"] for one in again] == ["lost", "applied", "applied", "lost"]


@here
@pytest.mark.parametrize(
    ("verb", "body", "state"),
    [
        ("complete", None, None),
        ("complete", {"result": [1], "result_ttl": 60}, None),
        ("fail", {**WHY, "retry_in": 60}, State.SCHEDULED),
        ("bury", WHY, State.DEAD),
        ("snooze", {"seconds": 60}, State.SCHEDULED),
        ("release", None, State.AVAILABLE),
        ("cancel", None, None),
        ("extend", {"seconds": 60}, State.RUNNING),
        ("progress", {"fraction": 0.5, "note": "half"}, State.RUNNING),
    ],
)
def test_one_job_is_settled_by_who_holds_its_lease(
    db: QueueDB, name: str, client: httpx2.Client, verb: str, body: dict[str, Any] | None, state: State | None
) -> None:
    job_id = db.queue(name).enqueue("mail")
    assert job_id is not None
    (job,) = claimed(client, name)
    url, headers = f"/api/v1/jobs/{job_id}/{verb}", lease_headers(job["lease"])
    for refused, status in (
        ({"If-Match": headers["If-Match"]}, 422),
        ({"Lease-Token": headers["Lease-Token"]}, 428),
        ({**headers, "If-Match": "*"}, 428),
        ({**headers, "If-Match": f'"{job_id}:0"'}, 412),
        ({**headers, "Lease-Token": "guessed"}, 412),
        ({**headers, "If-Match": f"W/{headers['If-Match']}"}, 412),
    ):
        assert client.post(url, json=body, headers=refused).status_code == status, refused
    assert db.get(job_id).state is State.RUNNING
    answer = client.post(url, json=body, headers=headers)
    assert (answer.status_code, answer.json()["verdict"]) == (200, "applied"), answer.text
    if state is None:
        with pytest.raises(JobNotFoundError):
            db.get(job_id)
    else:
        assert db.get(job_id).state is state
    if verb == "extend":
        assert answer.headers["etag"] == f'"{db.get(job_id).fence}"'
        assert client.post(url, json=body, headers={**headers, "If-Match": answer.headers["etag"]}).status_code == 200
    if verb != "progress":
        assert client.post(url, json=body, headers=headers).status_code == 412


@here
def test_a_lease_of_another_queue_is_lost(db: QueueDB, name: str, client: httpx2.Client) -> None:
    db.queue(name).enqueue("mail")
    (job,) = claimed(client, name)
    (verdict,) = settle(client, f"{name}-other", {"lease": job["lease"], "verb": "complete"})
    assert verdict["verdict"] == "lost"
    assert db.get(int(job["id"])).state is State.RUNNING


@here
def test_a_job_that_another_worker_has_now_is_not_settled(db: QueueDB, name: str, client: httpx2.Client) -> None:
    queue = db.queue(name)
    queue.enqueue("mail")
    (job,) = claimed(client, name)
    assert db.rescue(name) == 1
    (mine,) = queue.claim()
    late = client.post(f"/api/v1/jobs/{job['id']}/complete", headers=lease_headers(job["lease"]))
    assert late.status_code == 412
    assert late.json()["type"].endswith("lease-lost")
    assert mine.complete() is Verdict.APPLIED


@here
@pytest.mark.parametrize(
    "settlement",
    [
        {"verb": "snooze"},
        {"verb": "extend", "seconds": 0},
        {"verb": "extend"},
        {"verb": "finish"},
        {"verb": "complete", "result": "\ud800", "result_ttl": 5},
        {"verb": "extend", "seconds": 2_592_001},
        {"verb": "complete", "result_ttl": 0},
        {"verb": "fail", "error": "text"},
    ],
)
def test_a_settlement_that_makes_no_sense_is_refused(
    db: QueueDB, name: str, client: httpx2.Client, settlement: dict[str, Any]
) -> None:
    job_id = db.queue(name).enqueue("mail")
    assert job_id is not None
    (job,) = claimed(client, name)
    body = json.dumps({"settlements": [{"lease": job["lease"], **settlement}]})
    answer = client.post(f"/api/v1/queues/{name}/settlements", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 422, answer.text
    assert db.get(job_id).state is State.RUNNING
