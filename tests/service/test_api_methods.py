"""Methods of paths: a path names all of them, HEAD works where GET does, and each answers alike for things of others."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import httpx2
import pytest

from queue_db import QueueDB
from queue_db.service import Settings
from queue_db.service.http.openapi import EXAMPLES
from tests.service.test_api_schema import DOCUMENT, OPERATIONS

pytestmark = pytest.mark.parametrize("kind", ["sqlite"], scope="session")

METHODS = ("GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE")


def path_of(template: str, **names: str) -> str:
    return re.sub(r"\{(\w+)\}", lambda found: names.get(found[1], "1"), template)


def test_a_path_names_all_its_methods(client: httpx2.Client) -> None:
    wrong = []
    for template, operations in DOCUMENT["paths"].items():
        has = {method.upper() for method in operations}
        has |= {"OPTIONS"} | ({"HEAD"} if "GET" in has else set())
        path = path_of(template)
        options = client.options(path)
        assert options.status_code == 204, path
        answers = [options, *(client.request(method, path) for method in METHODS if method not in has)]
        wrong += [(one.request.method, path) for one in answers[1:] if one.status_code != 405]
        wrong += [(one.request.method, path) for one in answers if set(one.headers["allow"].split(", ")) != has]
    assert wrong == []
    assert client.options("/api/v1/nowhere").status_code == 404


def test_head_is_answered_as_get_without_the_body(client: httpx2.Client, db: QueueDB, name: str) -> None:
    db.queue(name).enqueue("mail")
    db.feeds.set(name)
    paths = [path_of(one, queue=name, feed=name, job_id="1") for one, has in DOCUMENT["paths"].items() if "get" in has]
    for path in [*paths, "/", "/healthz", "/readyz", "/metrics", "/login", "/api/v1/openapi.json", "/nowhere"]:
        head = client.head(path)
        assert head.content == b""
        if path.endswith("/events"):
            assert (head.status_code, head.headers["content-type"].partition(";")[0]) == (200, "text/event-stream")
            continue
        get = client.get(path)
        assert (head.status_code, head.headers.get("content-type")) == (get.status_code, get.headers.get("content-type")), path
    db.feeds.delete(name)


def body_of(operation: dict[str, Any]) -> Any:
    """A valid body."""
    content = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
    schema = next((one["$ref"] for one in [content, *content.get("anyOf", ())] if "$ref" in one), "").rpartition("/")[2]
    return EXAMPLES.get(schema, BODIES.get(schema))


BODIES: dict[str, Any] = {
    "Acknowledgement": {"upto": "x.0.1"},
    "Acknowledgements": {"upto": ["x.0.1"]},
    "CursorSeek": {"position": "start"},
    "FairnessChange": {"fair": True},
    "GroupLimits": {"concurrency": 1},
    "FeedChange": {"keep_rows": 1},
    "RouteDefinition": {"definition": "abcdef"},
    "TopicTest": {},
    "Complete": {},
    "Fail": {"error": {"message": "m"}},
    "Bury": {"error": {"message": "m"}},
    "Snooze": {"seconds": 1},
    "Extend": {"seconds": 1},
    "Progress": {"fraction": 0.5},
}


def test_no_method_says_whether_somebody_elses_thing_exists(
    db: QueueDB, name: str, serve: Callable[[Settings], httpx2.Client]
) -> None:
    """By name and by id: what there is and what there is not have the same answer."""
    other = f"{name}-other"
    queue = db.queue(other)
    job_id = queue.enqueue("mail")
    batch, _ = queue.enqueue_batch([("mail", None)], ("report", None))
    db.schedules.set(other, queue=other, kind="mail", every=3600)
    db.feeds.set(other, claims=True)
    db.feed(other).cursor("c").close()
    db.routes.set(other, count=other)
    queue.enqueue("kept")
    there = {"job_id": str(job_id), "batch_id": str(batch), "name": other, "queue": other, "feed": other, "route": other}
    there |= {"topic": other, "cursor": "c", "claim": "c", "message": "m", "group": "g"}
    absent = {one: "999999999" if value.isdecimal() else f"{value}-absent" for one, value in there.items()}
    client = serve(Settings())
    client.headers["Authorization"] = f"Bearer {db.tokens.create(name, ['read', 'enqueue', 'work', 'manage'], queues=['mine*'])}"
    told = {}
    for line, operation in OPERATIONS.items():
        method, template = line.split()
        if "{" not in template or operation["operationId"] == "set_schedule":
            continue
        found = []
        for names in (there, absent):
            own = f'"{names["job_id"]}:1"' if "{job_id}" in template else '"1"'
            headers = {"If-Match": own, "Lease-Token": "x"}
            query = {"pattern": "x"} if operation["operationId"] == "unsubscribe_route" else {}
            answer = client.request(method, path_of(template, **names), params=query, json=body_of(operation), headers=headers)
            found.append((answer.status_code, re.sub(r"\d+", "", answer.text.replace(names["name"], ""))))
        # A name of cursors is of no feed: the answer leaves out those of others' feeds.
        if found[0] != found[1] or found[0][0] not in (
            {200} if "/cursors/" in template and "{feed}" not in template else {403, 404, 412}
        ):
            told[line] = found
    assert told == {}, told.keys()
    new = {"queue": "mine", "kind": "mail", "every": 60}
    assert client.put(f"/api/v1/schedules/{other}", json=new).json() == client.get(f"/api/v1/schedules/{other}").json()
    db.schedules.remove(other)
    db.feeds.delete(other)
    db.routes.remove(other)
