"""Jobs by REST: enqueue, repeat, look, list, cancel."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from typing import Any

import httpx2
import pytest

from queue_db import QueueDB, State
from queue_db.service import Settings

pytestmark = pytest.mark.parametrize("kind", ["sqlite"], scope="session")


@pytest.fixture
def jobs(name: str) -> str:
    return f"/api/v1/queues/{name}/jobs"


def test_a_job_is_enqueued_and_read(db: QueueDB, name: str, client: httpx2.Client, jobs: str) -> None:
    answer = client.post(jobs, json={"kind": "mail", "payload": {"to": "ada", "password": "p"}, "priority": -3, "delay": 60})
    assert answer.status_code == 201, answer.text
    job_id = answer.json()["id"]
    assert answer.json() == {"id": job_id, "created": True}
    assert isinstance(job_id, str)
    got = client.get(answer.headers["location"])
    assert got.json()["payload"] == {"to": "ada", "password": "***"}
    assert (got.json()["state"], got.json()["priority"], got.json()["queue"]) == ("scheduled", -3, name)
    assert got.headers["etag"] == f'"{job_id}:{got.json()["version"]}"'
    assert db.get(int(job_id)).payload == {"to": "ada", "password": "p"}


def test_many_jobs_are_enqueued_or_none(db: QueueDB, name: str, client: httpx2.Client, jobs: str) -> None:
    answer = client.post(f"{jobs}/many", json={"jobs": [{"kind": "mail", "payload": n} for n in range(3)]})
    assert answer.status_code == 201
    assert [db.get(int(job_id)).payload for job_id in answer.json()["ids"]] == [0, 1, 2]
    twice = {"jobs": [{"kind": "mail"}, {"kind": "mail", "unique_key": "k"}, {"kind": "mail", "unique_key": "k"}]}
    assert client.post(f"{jobs}/many", json=twice).status_code == 409
    assert db.queue(name).stats().available == 3
    skipped = client.post(f"{jobs}/many", json={**twice, "on_duplicate": "skip"})
    assert [one is None for one in skipped.json()["ids"]] == [False, False, True]


def test_a_repetition_gets_the_first_id(db: QueueDB, name: str, client: httpx2.Client, jobs: str) -> None:
    key = {"Idempotency-Key": "order-17"}
    first = client.post(jobs, json={"kind": "mail", "payload": 1}, headers=key)
    assert first.status_code == 201
    assert db.queue(name).claim()[0].complete()  # it stays taken when the job is done
    again = client.post(jobs, json={"kind": "mail", "payload": 1}, headers=key)
    assert (again.status_code, again.json()) == (200, {"id": first.json()["id"], "created": False})
    assert client.post(jobs, json={"kind": "mail", "unique_key": "another"}, headers=key).status_code == 422
    assert client.post(jobs, json={"kind": "mail"}, headers={"Idempotency-Key": "order-18"}).status_code == 201


@pytest.mark.parametrize("then", [None, {"kind": "report"}])
def test_a_repetition_of_many_gets_their_first_ids(
    db: QueueDB, name: str, client: httpx2.Client, jobs: str, then: dict[str, Any] | None
) -> None:
    url = f"{jobs}/many" if then is None else f"/api/v1/queues/{name}/batches"
    body = {"jobs": [{"kind": "mail", "payload": n} for n in range(5)], **({} if then is None else {"then": then})}
    key = {"Idempotency-Key": "import"}
    first = client.post(url, json=body, headers=key)
    assert first.status_code == 201, first.text
    assert client.post(url, json=body, headers=key).json()["ids"] == first.json()["ids"]
    assert client.post(url, json=body, headers=key).status_code == 200
    assert db.queue(name).stats().available == 5


@pytest.mark.parametrize("then", [None, {"kind": "report"}])
def test_a_key_is_of_one_request(db: QueueDB, name: str, client: httpx2.Client, jobs: str, then: dict[str, Any] | None) -> None:
    """Whatever a taken key would mean for the jobs, and however many the repetition has."""
    url = f"{jobs}/many" if then is None else f"/api/v1/queues/{name}/batches"

    def send(number: int) -> httpx2.Response:
        body = {"jobs": [{"kind": "mail"}] * number, "on_duplicate": "skip", **({} if then is None else {"then": then})}
        return client.post(url, json=body, headers={"Idempotency-Key": "import"})

    first = send(3)
    again = send(3)
    assert (first.status_code, again.status_code) == (201, 200)
    assert again.json()["ids"] == first.json()["ids"]
    assert again.json().get("batch") is None
    assert [send(number).status_code for number in (2, 4)] == [409, 409]
    queue = db.queue(name)
    queue.complete_many(queue.claim(9))
    assert [job.kind for job in queue.claim(9)] == ([] if then is None else ["report"])


def test_a_batch_is_followed_by_its_callback(db: QueueDB, name: str, client: httpx2.Client) -> None:
    body = {"jobs": [{"kind": "page"}, {"kind": "page"}], "then": {"kind": "report", "payload": [1], "priority": 5}}
    made = client.post(f"/api/v1/queues/{name}/batches", json=body)
    assert made.status_code == 201
    batch = client.get(f"/api/v1/batches/{made.json()['batch']}").json()
    assert (batch["jobs"], batch["pending"], batch["queue"]) == (2, 2, name)
    assert made.json()["batch"] in [one["id"] for one in client.get("/api/v1/batches", params={"limit": 1000}).json()["batches"]]
    queue = db.queue(name)
    queue.complete_many(queue.claim(2))
    assert client.get(f"/api/v1/batches/{made.json()['batch']}").status_code == 404
    (report,) = queue.claim(2)
    assert (report.kind, report.payload, report.priority) == ("report", [1], 5)


def test_jobs_are_listed_in_pages(db: QueueDB, name: str, client: httpx2.Client, jobs: str) -> None:
    queue = db.queue(name)
    ids = [str(queue.enqueue("mail", n)) for n in range(5)]
    queue.enqueue("other")
    seen: list[str] = []
    after = None
    while True:
        page = client.get(jobs, params={"limit": 2, "kind": "mail", **({} if after is None else {"after": after})}).json()
        seen += [job["id"] for job in page["jobs"]]
        after = page["after"]
        if after is None:
            break
    assert seen == ids
    assert client.get(jobs, params={"after": "nonsense"}).status_code == 422
    assert client.get(jobs, params={"state": "running"}).json()["jobs"] == []


def test_a_changed_job_is_not_cancelled(db: QueueDB, name: str, client: httpx2.Client) -> None:
    queue = db.queue(name)
    job_id = queue.enqueue("mail")
    url = f"/api/v1/jobs/{job_id}"
    etag = client.get(url).headers["etag"]
    assert client.delete(url).status_code == 428
    (job,) = queue.claim()
    assert client.delete(url, headers={"If-Match": etag}).status_code == 412
    assert client.delete(url, headers={"If-Match": f'"{job.id + 1}:{job.version}"'}).status_code == 412
    assert client.delete(url, headers={"If-Match": f'"other", "{job.fence}"'}).status_code == 204
    assert client.get(url).status_code == 404
    assert not job.complete()
    assert client.delete(url, headers={"If-Match": "*"}).status_code == 404


def test_a_scheduled_job_runs_now(db: QueueDB, name: str, client: httpx2.Client) -> None:
    queue = db.queue(name)
    job_id = queue.enqueue("mail", delay=3600)
    assert job_id is not None
    url = f"/api/v1/jobs/{job_id}"
    etag = client.get(url).headers["etag"]
    assert client.patch(url, json={"delay": 0}).status_code == 428
    assert client.patch(url, json={"delay": 0}, headers={"If-Match": f'"{job_id}:99"'}).status_code == 412
    assert client.patch(url, json={"delay": 0, "priority": -1}, headers={"If-Match": etag}).status_code == 204
    assert client.patch(url, json={}, headers={"If-Match": "*"}).status_code == 422
    (job,) = queue.claim()
    assert job.priority == -1
    assert client.patch(url, json={"run_at": "2030-01-01T00:00:00Z"}, headers={"If-Match": "*"}).status_code in {404, 409}


def test_failed_attempts_are_listed(db: QueueDB, name: str, client: httpx2.Client) -> None:
    queue = db.queue(name)
    job_id = queue.enqueue("mail")
    queue.claim()[0].fail(ValueError("no\ud800 such address"))
    (attempt,) = client.get(f"/api/v1/jobs/{job_id}/errors").json()["errors"]
    assert (attempt["attempt"], attempt["error_class"]) == (1, "ValueError")


@pytest.mark.parametrize("payload", ['{"a": 1e400}', "[" * 400 + "]" * 400, '"\\ud800"', "[NaN]"])
def test_what_not_every_reader_understands_is_made_so(db: QueueDB, name: str, client: httpx2.Client, payload: str) -> None:
    queue = db.queue(name)
    job_id = queue.enqueue("mail")
    with db.database.begin("test") as connection:
        table = db.store.tables.jobs
        connection.execute(table.update().where(table.c.id == job_id).values(payload=payload))
    assert client.get(f"/api/v1/jobs/{job_id}").status_code == 200
    (claimed,) = client.post(f"/api/v1/queues/{name}/claims", json={}).json()["jobs"]
    assert claimed["id"] == str(job_id)


def test_a_full_queue_refuses_more(
    db: QueueDB, name: str, serve: Callable[[Settings], httpx2.Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    client = serve(Settings(closed=False, max_depths={"other": 1, name: 3}))
    many = {"jobs": [{"kind": "mail"}] * 3}
    assert client.post(f"/api/v1/queues/{name}/jobs/many", json=many).status_code == 201
    refused = client.post(f"/api/v1/queues/{name}/jobs", json={"kind": "mail"})
    assert refused.status_code == 429
    assert int(refused.headers["retry-after"]) > 0
    assert client.post(f"/api/v1/queues/{name}-more/jobs", json={"kind": "mail"}).status_code == 201
    assert db.queue(name).stats().available == 3


def test_what_was_not_enqueued_does_not_fill_a_queue(db: QueueDB, name: str, serve: Callable[[Settings], httpx2.Client]) -> None:
    client = serve(Settings(closed=False, max_depths={name: 4}))
    url = f"/api/v1/queues/{name}/jobs"
    keyed = {"kind": "mail", "unique_key": "k"}
    db.queue(name).enqueue("mail", unique_key="k")
    for _ in range(3):
        assert client.post(f"{url}/many", json={"jobs": [{"kind": "mail"}, keyed]}).status_code == 409
        assert client.post(url, json={**keyed, "on_duplicate": "skip"}).status_code == 200
    assert client.post(f"{url}/many", json={"jobs": [{"kind": "mail"}] * 3}).status_code == 201


def test_a_token_that_asks_too_often_waits(serve: Callable[[Settings], httpx2.Client]) -> None:
    client = serve(Settings(closed=False, max_rate=0.001))
    assert client.get("/api/v1/queues").status_code == 200
    refused = client.get("/api/v1/queues")
    assert refused.status_code == 429
    assert int(refused.headers["retry-after"]) > 1


BROKEN: dict[str, Any] = {"content": "{", "headers": {"Content-Type": "application/json"}}
WRONG: list[tuple[str, str, dict[str, Any]]] = [
    ("POST", "/api/v1/queues/mail/jobs", BROKEN),
    ("POST", "/api/v1/queues/mail/claims", BROKEN),
    ("POST", "/api/v1/queues/mail/settlements", BROKEN),
    ("POST", "/api/v1/queues/mail/jobs", {"content": "x", "headers": {"Content-Type": "text/plain"}}),
    ("GET", "/api/v1/no/such/path", {}),
    ("POST", "/api/v1/no/such/path", {}),
    ("PATCH", "/api/v1/queues", {}),
    ("GET", "/metrics", {}),
    ("GET", "/api/v1", {}),
    ("GET", "/api/v1/jobs/x", {}),
    ("GET", "/api/v1/queues", {"params": {"unknown": "1"}}),
]


@pytest.mark.parametrize("closed", [True, False])
def test_each_request_counts_whatever_is_wrong_with_it(
    db: QueueDB, name: str, serve: Callable[[Settings], httpx2.Client], closed: bool
) -> None:
    client = serve(Settings(closed=closed, max_rate=0.001))
    for number, (method, path, options) in enumerate(WRONG[:: 1 if closed else 100]):
        if closed:
            client.headers["Authorization"] = f"Bearer {db.tokens.create(f'{name}-{number}', ['read', 'enqueue', 'work'])}"
        assert client.request(method, path, **options).status_code != 429
        for answer in (client.request(method, path, **options), client.get("/api/v1/queues")):
            assert (answer.status_code, answer.json()["type"]) == (429, "urn:queue-db:problem:too-many-requests")
            assert int(answer.headers["retry-after"]) > 1
    assert client.get("/healthz").status_code == 200


def test_a_request_that_waits_counts_once(db: QueueDB, name: str, serve: Callable[[Settings], httpx2.Client]) -> None:
    """Although its token is looked at again."""
    client = serve(Settings(max_rate=1.0))
    client.headers["Authorization"] = f"Bearer {db.tokens.create(name, ['work'])}"
    assert client.post(f"/api/v1/queues/{name}/claims", json={"wait": 0.01}).status_code == 200


def test_dead_jobs_are_listed_redriven_and_purged(
    db: QueueDB, name: str, client: httpx2.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = db.queue(name)
    ids = [str(queue.enqueue("mail", n)) for n in range(3)]
    for job in queue.claim(3):
        job.bury("TimeoutError: broken")
    page = client.get("/api/v1/dead", params={"queue": name, "limit": 2}).json()
    rest = client.get("/api/v1/dead", params={"queue": name, "limit": 2, "after": page["after"]}).json()
    assert sorted(job["id"] for job in page["jobs"] + rest["jobs"]) == ids
    assert rest["after"] is None
    reverse = {"queue": name, "limit": 2, "newest": True}
    latest = client.get("/api/v1/dead", params=reverse).json()
    earlier = client.get("/api/v1/dead", params=reverse | {"after": latest["after"]}).json()
    assert latest["jobs"] + earlier["jobs"] == (page["jobs"] + rest["jobs"])[::-1]
    wrong = client.get("/api/v1/dead", params={"queue": name, "limit": 2, "after": latest["after"]})
    assert (wrong.status_code, "not of a page of this list" in wrong.text) == (422, True), wrong.text
    back = client.post("/api/v1/dead/redrive", json={"queue": name, "ids": [ids[0]]})
    assert back.json() == {"count": 1, "ids": [ids[0]], "dry_run": False, "more": False}
    assert db.get(int(ids[0])).state is State.AVAILABLE
    assert client.post("/api/v1/dead/redrive", json={"ids": [ids[0]]}).status_code == 404
    dry = {"queue": name, "dry_run": True}
    assert client.post("/api/v1/dead/purge", json=dry).json() == {"count": 2, "dry_run": True, "more": False}
    assert client.post("/api/v1/dead/redrive", json=dry).json() == {"count": 2, "ids": ids[1:], "dry_run": True, "more": False}
    assert client.post("/api/v1/dead/redrive", json={**dry, "ids": [ids[0]]}).status_code == 404
    for bounds, number in (({"older_than": 3600}, 0), ({"keep": 1}, 1), ({"limit": 1}, 1)):
        assert client.post("/api/v1/dead/purge", json={**dry, **bounds}).json()["count"] == number
    with monkeypatch.context() as few:
        few.setattr("queue_db.service.api.dead.MOST_COUNTED", 1)
        for verb in ("purge", "redrive"):
            found = client.post(f"/api/v1/dead/{verb}", json=dry).json()
            assert (found["count"], found["more"]) == (1, True)
    assert client.post("/api/v1/dead/purge", json={**dry, "error_class": "KeyError"}).json()["count"] == 0
    for error_class, number in (("Timeout", 0), ("TimeoutError", 2)):
        some = client.get("/api/v1/dead", params={"queue": name, "error_class": error_class}).json()["jobs"]
        assert len(some) == number
    assert client.post("/api/v1/dead/purge", json={"queue": name, "limit": 1}).json()["count"] == 1


def test_a_change_of_all_dead_jobs_is_asked_for(db: QueueDB, name: str, client: httpx2.Client) -> None:
    job_id = db.queue(name).enqueue("mail")
    db.queue(name).claim()[0].bury("broken")
    for verb in ("redrive", "purge"):
        for body in ({}, {"limit": 1}, {"dry_run": True}, {"all": False}, {"queue": None}):
            refused = client.post(f"/api/v1/dead/{verb}", json=body)
            assert refused.status_code == 422, (verb, body)
            assert "all" in refused.json()["errors"][0]["what"]
        everything = client.post(f"/api/v1/dead/{verb}", json={"all": True, "dry_run": True}).json()
        assert everything["count"] >= 1
    assert [job.id for job in db.dead.list(name)] == [job_id]
    assert client.post("/api/v1/dead/redrive", json={"all": True}).json()["count"] > 0
    assert db.dead.count(name) == 0


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/dead/redrive", {"kind": "none"}),
        ("POST", "/dead/purge", {"kind": "none"}),
        ("DELETE", "/queues/none/jobs", None),
        ("POST", "/queues/none/groups/repair", None),
        ("POST", "/workers/none/rescue", None),
    ],
)
def test_where_nothing_changes_there_is_no_action(db: QueueDB, client: httpx2.Client, method: str, path: str, body: object) -> None:
    before = db.actions.list()
    answer = client.request(method, f"/api/v1{path}", json=body)
    assert answer.is_success
    assert answer.status_code == 204 or answer.json()["count"] == 0
    assert db.actions.list() == before


def test_an_action_is_one_log_line_with_the_id_of_its_request(
    name: str, client: httpx2.Client, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="queue_db.operations")
    path = f"/api/v1/queues/{name}/pause"
    answered = client.post(path, headers={"X-Request-ID": "proxy-17"})
    assert answered.headers["X-Request-ID"] == "proxy-17"
    (line,) = [record for record in caplog.records if getattr(record, "action", "") == "pause"]
    assert (line.levelname, line.target, line.request) == ("INFO", f"queue {name}", "proxy-17")
    assert re.fullmatch(rf".*: pause queue {name} \(POST {path} from .*, request proxy-17\)", line.getMessage())


@pytest.mark.parametrize("given", [None, "two words", "é".encode(), "a" * 65, ""])
def test_a_request_without_a_usable_id_gets_one(client: httpx2.Client, given: str | bytes | None) -> None:
    answered = client.get("/healthz", headers={} if given is None else {"X-Request-ID": given})
    assert re.fullmatch("[0-9a-f]{16}", answered.headers["X-Request-ID"])


def test_finished_jobs_are_listed(db: QueueDB, name: str, client: httpx2.Client) -> None:
    from queue_db.model import StoredResult

    queue = db.queue(name)
    ids = [str(queue.enqueue("mail", n)) for n in range(3)]
    queue.complete_many(queue.claim(3), results=[StoredResult('{"n":1}', 10**9)] * 3)
    first = client.get("/api/v1/finished", params={"queue": name, "limit": 2}).json()
    rest = client.get("/api/v1/finished", params={"queue": name, "limit": 2, "after": first["after"]}).json()
    assert [job["id"] for job in first["jobs"] + rest["jobs"]] == ids
    assert client.get(f"/api/v1/finished/{ids[0]}").json()["result"] == {"n": 1}


def test_a_queue_is_paused_limited_and_resumed(db: QueueDB, name: str, client: httpx2.Client) -> None:
    url = f"/api/v1/queues/{name}"
    assert client.post(f"{url}/pause").json()["controls"]["paused"] is True
    limited = client.patch(f"{url}/limits", json={"concurrency": 3, "rate": 10, "per": 60}).json()["controls"]
    assert limited == {"paused": True, "concurrency": 3, "rate": 10, "per": 60.0, "per_group": 1, "fair": False}
    assert client.patch(f"{url}/limits", json={"rate": None}).json()["controls"]["concurrency"] == 3
    assert db.queue(name).controls().rate is None
    assert client.post(f"{url}/resume").json()["controls"]["paused"] is False
    assert {"limit", "pause", "resume"} <= {one.action for one in db.actions.list() if one.target == f"queue {name}"}
    db.queue(name).enqueue("mail")
    assert name in [one["name"] for one in client.get("/api/v1/queues").json()["queues"]]
    assert client.delete(f"{url}/jobs").json() == {"count": 1}


def test_a_schedule_is_set_run_paused_and_removed(db: QueueDB, name: str, client: httpx2.Client) -> None:
    url = f"/api/v1/schedules/{name}"
    body = {"queue": name, "kind": "report", "cron": "0 3 * * *", "zone": "Europe/Berlin"}
    assert client.put(url, json=body).status_code == 201
    assert client.put(url, json={**body, "priority": 3}).json()["priority"] == 3
    job_id = client.post(f"{url}/run").json()["id"]
    assert db.get(int(job_id)).kind == "report"
    assert client.post(f"{url}/pause").status_code == 204
    assert client.get(url).json()["paused"] is True
    assert client.post(f"{url}/resume").status_code == 204
    assert client.put(url, json={"queue": name, "kind": "report"}).status_code == 422
    assert client.delete(url).status_code == 204
    assert client.delete(url).status_code == 404
    assert name not in [stream["queue"] for stream in client.get("/api/v1/streams").json()["streams"]]
    assert client.post("/api/v1/streams/none/release").status_code == 404
    assert client.post("/api/v1/workers/nobody/rescue").json() == {"count": 0}
    assert client.get("/api/v1/workers").status_code == 200
