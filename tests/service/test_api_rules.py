"""The rules at the top of docs/rest.md, over all operations that they are for."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest

from queue_db import QueueDB
from queue_db.model import StoredResult
from queue_db.service import Settings
from tests.patience import PATIENCE
from tests.service.test_api_methods import body_of, path_of
from tests.service.test_api_schema import OPERATIONS

pytestmark = pytest.mark.parametrize("kind", ["sqlite"], scope="session")

KEPT = StoredResult(None, 3_600_000_000)
JSON = {"Content-Type": "application/json", "If-Match": '"1:1"', "Lease-Token": "x"}


def parameters(operation: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {one["name"]: one["schema"] for one in operation.get("parameters", ()) if one["in"] == "query"}


def test_a_query_parameter_is_given_once(client: httpx2.Client) -> None:
    """Where it is no list."""
    passed = []
    for line, operation in OPERATIONS.items():
        method, template = line.split()
        for name, schema in parameters(operation).items():
            if any(one.get("type") == "array" for one in (schema, *schema.get("anyOf", ()))):
                continue
            answer = client.request(method, path_of(template), params=[(name, "1"), (name, "1")], json=body_of(operation))
            if answer.status_code != 422 or f"query.{name}" not in [one["where"] for one in answer.json()["errors"]]:
                passed.append((line, name))
    assert passed == []
    assert client.get("/api/v1/feeds/none/messages", params={"kinds": ["a", "b"]}).status_code == 404


def test_an_object_has_each_key_once(client: httpx2.Client) -> None:
    passed = []
    for line, operation in OPERATIONS.items():
        if "requestBody" in operation:
            method, template = line.split()
            answer = client.request(method, path_of(template), content='{"x": {"twice": 1, "twice": 2}}', headers=JSON)
            if answer.status_code != 422 or "body" not in answer.text:
                passed.append((line, answer.status_code))
    assert passed == []


@pytest.mark.parametrize(
    "part",
    [
        '"verb": "complete", "verb": "release"',
        '"verb": "complete", "v\\u0065rb": "release"',
        '"result": {"a": 1, "a": 2}, "verb": "complete"',
    ],
)
def test_also_a_settlement_and_a_payload(db: QueueDB, name: str, client: httpx2.Client, part: str) -> None:
    db.queue(name).enqueue("mail")
    (job,) = client.post(f"/api/v1/queues/{name}/claims", json={}).json()["jobs"]
    content = f'{{"settlements": [{{"lease": {json.dumps(job["lease"])}, {part}}}]}}'
    assert client.post(f"/api/v1/queues/{name}/settlements", content=content, headers=JSON).status_code == 422
    payload = '{"kind": "mail", "payload": {"a": 1, "a": 2}}'
    assert client.post(f"/api/v1/queues/{name}/jobs", content=payload, headers=JSON).status_code == 422
    assert db.queue(name).stats().available == 0


def test_put_is_201_for_what_is_new_and_200_for_what_it_replaces(db: QueueDB, name: str, client: httpx2.Client) -> None:
    bodies: dict[str, Any] = {
        "set_schedule": {"queue": name, "kind": "mail", "every": 60},
        "set_feed": {},
        "set_route": {"action": "count", "target": name},
        "open_cursor": None,
        "set_limits": {},
        "set_group_limits": {},
    }
    puts = {one["operationId"]: line.split()[1] for line, one in OPERATIONS.items() if line.startswith("PUT ")}
    assert puts.keys() == bodies.keys(), "a new PUT is to be here"
    db.queue(name).fair()
    for operation, body in bodies.items():
        path = path_of(puts[operation], name=name, queue=name, feed=name, route=name, cursor=name)
        query = {"take_over": True} if operation == "open_cursor" else {}
        statuses = [client.put(path, json=body, params=query).status_code for _ in range(2)]
        # A queue is there before its limits.
        assert statuses == ([200, 200] if operation in {"set_limits", "set_group_limits"} else [201, 200]), operation
    to = {"pattern": name, "form": "exact"}
    assert [client.post(f"/api/v1/routes/{name}/subscriptions", json=to).status_code for _ in range(2)] == [201, 200]
    db.queue(name).fair(False)
    db.feeds.delete(name)
    db.routes.remove(name)
    db.schedules.remove(name)


def test_put_replaces_all_settings_and_patch_changes_some(db: QueueDB, name: str, client: httpx2.Client) -> None:
    url = f"/api/v1/feeds/{name}"
    assert client.patch(url, json={"delay": 1}).status_code == 404
    plain = client.put(url, json={"claims": True}).json()
    given = {"keep_for": 60, "keep_rows": 5, "keep_unread": 7, "max_attempts": 3, "delay": 5, "expires_in": 100}
    changed = client.patch(url, json=given).json()
    assert changed == {**plain, **given}
    for setting, value in given.items():
        assert client.patch(url, json={setting: None}).json() == {**changed, setting: plain[setting]}, setting
        assert client.patch(url, json={setting: value}).json() == changed
    assert client.put(url, json={"delay": None, "keep_rows": 2}).json() == {**plain, "keep_rows": 2}
    assert client.patch(url, json={}).status_code == 422
    assert client.patch(url, json={"claims": True}).status_code == 422
    db.feeds.delete(name)
    assert client.put(url, json={}).status_code == 201
    assert client.put(url, json={"keep_rows": 1}).json()["keep_rows"] == 1
    db.feeds.delete(name)


def test_null_is_refused_where_nothing_can_be_removed(db: QueueDB, name: str, client: httpx2.Client) -> None:
    job_id = db.queue(name).enqueue("mail", delay=60)
    for field in ("run_at", "delay", "priority"):
        refused = client.patch(f"/api/v1/jobs/{job_id}", json={"priority": 1, field: None}, headers={"If-Match": "*"})
        assert refused.status_code == 422, field


def test_after_of_one_list_is_not_taken_for_another(db: QueueDB, name: str, client: httpx2.Client) -> None:
    """Each list with its filters."""
    queue = db.queue(name)
    queue.enqueue_many([("mail", None)] * 7 + [("mail", None, {"delay": 60})] * 2)
    queue.enqueue_batch([("mail", None)], ("report", None))
    queue.enqueue_batch([("mail", None)], ("report", None))
    first, second, *rest = queue.claim(8)
    queue.complete_many([first, second], results=[KEPT, KEPT])
    for job in rest[:2]:
        job.bury(ValueError("broken"))
    rest[2].bury(OSError("broken"))
    rest[3].fail(KeyError("broken"))
    queue.claim()[0].fail(OSError("broken"))
    for _ in range(2):
        with db.graph() as graph:
            graph.add(name, "after", after=graph.add(name, "before", delay=60))
    client.post(f"/api/v1/queues/{name}/pause")
    client.post(f"/api/v1/queues/{name}/resume")
    queue.enqueue_many([("mail", None)] * 3)
    jobs = f"/api/v1/queues/{name}/jobs"
    lists: list[tuple[str, dict[str, Any]]] = [
        *((jobs, {"state": state}) for state in ("available", "scheduled", "running", "dead")),
        (jobs, {"state": "available", "kind": "mail"}),
        *((path, {"queue": name, **more}) for path in ("/api/v1/dead", "/api/v1/finished") for more in ({}, {"kind": "mail"})),
        ("/api/v1/failures", {"queue": name}),
        ("/api/v1/batches", {}),
        ("/api/v1/graphs", {}),
        (f"/api/v1/graphs/{graph.id}/nodes", {}),
        ("/api/v1/actions", {}),
    ]
    with_after = {line for line, one in OPERATIONS.items() if line.startswith("GET ") and "after" in parameters(one)}
    pages = [client.get(path, params={**params, "limit": 1}).json()["after"] for path, params in lists]
    assert [one for one, page in zip(lists, pages, strict=True) if not page] == []
    for number, (path, params) in enumerate(lists):
        taken = [one for one in pages if client.get(path, params={**params, "after": one}).status_code == 200]
        assert taken == [pages[number]], (path, params)
        assert client.get(path, params={**params, "after": "1"}).status_code == 422
    assert len(with_after) == 12, "a new list is to be here; messages, events and metrics have positions and times of their own"


def queues_listed(client: httpx2.Client, path: str) -> set[str]:
    """Queues of the jobs on all pages: a page is read first and shown as far as the token reaches, so it may be empty."""
    queues: set[str] = set()
    params: dict[str, str | int] = {"limit": 1000}
    while True:
        page = client.get(path, params=params).json()
        queues |= {one["queue"] for one in page["jobs"]}
        if page["after"] is None:
            return queues
        params["after"] = page["after"]


def test_lists_of_queues_show_what_the_token_may_read(db: QueueDB, name: str, serve: Callable[[Settings], httpx2.Client]) -> None:
    for queue in (f"{name}-mine", f"{name}-yours"):
        db.queue(queue).enqueue_many([("mail", None)] * 2)
        one, two = db.queue(queue).claim(2)
        db.queue(queue).complete_many([one], results=[KEPT])
        two.bury("broken")
    client = serve(Settings())
    client.headers["Authorization"] = f"Bearer {db.tokens.create(name, ['read'], queues=[f'{name}-mine'])}"
    for path in ("/api/v1/dead", "/api/v1/finished"):
        assert queues_listed(client, path) == {f"{name}-mine"}
        assert client.get(path, params={"queue": f"{name}-yours"}).status_code == 403


@pytest.mark.parametrize("invisible", ["\u202e", "\ufeff", "\u200b", "\u2066", "\u2028"])
def test_a_new_name_has_no_invisible_characters(db: QueueDB, name: str, client: httpx2.Client, invisible: str) -> None:
    bad = f"{name}{invisible}x"
    job, message = {"kind": "mail"}, {"messages": [{"kind": "paid"}]}
    answers = [
        client.post(f"/api/v1/queues/{bad}/jobs", json=job),
        client.post(f"/api/v1/queues/{bad}/jobs/many", json={"jobs": [job]}),
        client.post(f"/api/v1/queues/{bad}/batches", json={"jobs": [job], "then": job}),
        client.post(f"/api/v1/feeds/{bad}/messages", json=message),
        client.post(f"/api/v1/topics/{bad}/messages", json=message),
        client.put(f"/api/v1/feeds/{bad}", json={}),
        client.put(f"/api/v1/routes/{bad}", json={"action": "count", "target": "x"}),
        client.put(f"/api/v1/routes/{name}", json={"action": "feed", "target": bad}),
        client.put(f"/api/v1/schedules/{bad}", json={"queue": name, "kind": "mail", "every": 60}),
        client.put(f"/api/v1/schedules/{name}", json={"queue": bad, "kind": "mail", "every": 60}),
    ]
    assert {one.status_code for one in answers} == {422}
    assert all(f"U+{ord(invisible):04X}" in one.json()["detail"] for one in answers)
    db.queue(bad).enqueue("mail")
    assert client.delete(f"/api/v1/queues/{bad}/jobs").json() == {"count": 1}, "what is there can be removed"


def test_a_schedule_runs_at_most_once_a_second(client: httpx2.Client, name: str) -> None:
    body = {"queue": name, "kind": "mail"}
    for every, status in ((0.0001, 422), (0.9, 422), (1, 201)):
        assert client.put(f"/api/v1/schedules/{name}", json={**body, "every": every}).status_code == status
    client.delete(f"/api/v1/schedules/{name}")


def test_what_is_no_http_is_answered_with_a_problem_too(client: httpx2.Client) -> None:
    parts = urlsplit(str(client.base_url))
    with socket.create_connection((parts.hostname or "", parts.port or 80), PATIENCE) as connection:
        connection.sendall(b"no http\r\n\r\n")
        got = b""
        while part := connection.recv(65536):
            got += part
    head, _, body = got.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert b"application/problem+json" in head
    assert httpx2.Response(400, content=body).json()["status"] == 400
