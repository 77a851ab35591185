"""What holds for every operation: which requests are refused and with what words, and that responses are as they are documented."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

import httpx2
import pytest
from jsonschema_rs import Draft202012Validator

from queue_db import QueueDB, __version__
from queue_db.service import Settings
from queue_db.service.api import API
from queue_db.service.http.declared import Declared
from queue_db.service.http.openapi import EXAMPLES
from tests.service.test_api_claims import until
from tests.service.test_api_schema import DOCUMENT, OPERATIONS

here = pytest.mark.parametrize("kind", ["sqlite"], scope="session")
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")
# Words of the library, of Python or of the command line.
PYTHON = re.compile(
    r"\bdb\.|\bfeed\.\w|\w\(\)|\b\w+=(?!true|false|skip)|\bNone\b|\bTrue\b|\bFalse\b|QueueDB|Error\b|--\w|datetime|float\b"
)
JSON = {"Content-Type": "application/json"}


def times(value: Any) -> Iterator[str]:
    """All texts of a response that look like times."""
    if isinstance(value, dict | list):
        for one in value.values() if isinstance(value, dict) else value:
            yield from times(one)
    elif isinstance(value, str) and re.match(r"\d{4}-\d\d-\d\dT", value):
        yield value


def validator(method: str, path: str, status: str = "200") -> Draft202012Validator:
    """Of the documented response of an operation."""
    schema = OPERATIONS[f"{method} /api/v1{path}"]["responses"][status]["content"]["application/json"]["schema"]
    # A response must have each documented field, and no other.
    document = json.loads(json.dumps(DOCUMENT))
    for one in document["components"]["schemas"].values():
        if one.get("type") == "object" and "properties" in one:
            one["additionalProperties"] = False
    return Draft202012Validator({**schema, "components": document["components"]})


@here
def test_responses_with_jobs_are_as_documented(db: QueueDB, name: str, client: httpx2.Client) -> None:
    """Also those that are made by hand, which no framework has checked."""
    queue = db.queue(name)
    queue.enqueue_batch([("mail", {"n": 1}, {"max_attempts": 1}), ("mail", None)], ("report", None))
    queue.enqueue("mail", [1, "é"], headers={"trace": "1"}, unique_key="k", group="g")
    queue.enqueue("mail", "second", group="g")
    base = f"/queues/{name}"
    generic = "/queues/{queue}"
    claimed = client.post(f"/api/v1{base}/claims", json={"limit": 9, "lease": 60, "worker": "w"})
    batches = client.get("/api/v1/batches")
    leases = [job["lease"] for job in claimed.json()["jobs"]]
    assert len(leases) == 3
    error = {"message": "no", "error_class": "TimeoutError", "trace": "at line 1"}
    settled = client.post(
        f"/api/v1{base}/settlements",
        json={
            "settlements": [
                {"lease": leases[0], "verb": "fail", "error": error},
                {"lease": leases[1], "verb": "complete", "result": {"sum": 1}, "result_ttl": 3600},
                {"lease": leases[2], "verb": "extend", "seconds": 60},
                {"lease": {**leases[0], "version": "0"}, "verb": "release"},
            ]
        },
    )
    assert [one["verdict"] for one in settled.json()["verdicts"]] == ["applied", "applied", "applied", "lost"]
    lease = settled.json()["verdicts"][2]["lease"]
    held = {"If-Match": f'"{lease["id"]}:{lease["version"]}"', "Lease-Token": lease["token"]}
    extended = client.post(f"/api/v1/jobs/{lease['id']}/extend", json={"seconds": 30}, headers=held)
    answers = [
        ("POST", f"{generic}/claims", claimed),
        ("POST", f"{generic}/settlements", settled),
        ("POST", "/jobs/{job_id}/extend", extended),
        ("GET", "/jobs/{job_id}", client.get(f"/api/v1/jobs/{lease['id']}")),
        ("GET", "/jobs/{job_id}/errors", client.get(f"/api/v1/jobs/{leases[0]['id']}/errors")),
        ("GET", f"{generic}/jobs", client.get(f"/api/v1{base}/jobs", params={"state": "running"})),
        ("GET", f"{generic}/groups/{{group}}/jobs", client.get(f"/api/v1{base}/groups/g/jobs")),
        ("GET", "/dead", client.get("/api/v1/dead", params={"queue": name})),
        ("GET", "/finished", client.get("/api/v1/finished", params={"queue": name})),
        ("GET", "/finished/{job_id}", client.get(f"/api/v1/finished/{leases[1]['id']}")),
        ("GET", "/batches", batches),
        ("GET", "/failures", client.get("/api/v1/failures", params={"queue": name})),
    ]
    for method, path, answer in answers:
        assert answer.status_code == 200, (path, answer.text)
        assert next(iter(answer.json().values())), path  # something was checked
        validator(method, path).validate(answer.json())
        found = list(times(answer.json()))
        assert found or path.endswith("/settlements") is False, path
        assert [one for one in found if not TIME.fullmatch(one)] == [], path


def test_a_response_that_is_not_as_documented_is_found() -> None:
    """The check above can fail."""
    job = {"id": "1", "verdict": "applied", "lease": None, "lease_expires": None}
    check = validator("POST", "/queues/{queue}/settlements")
    assert check.is_valid({"verdicts": [job]})
    assert not check.is_valid({"verdicts": [{**job, "id": 1}]})
    assert not check.is_valid({"verdicts": [{**job, "more": 1}]})


@here
def test_times_have_one_form_everywhere(db: QueueDB, name: str, client: httpx2.Client) -> None:
    db.feeds.set(name, claims=True)
    db.feed(name).publish("paid")
    db.queue(name).enqueue("mail", run_at=datetime(2040, 1, 1, tzinfo=UTC))
    db.schedules.set(name, queue=name, kind="mail", every=3600)
    db.metrics.take()
    position = db.feed(name).start()
    with client.stream("GET", f"/api/v1/feeds/{name}/events", params={"after": position}) as stream:
        event = next(line for line in stream.iter_lines() if line.startswith("data: "))
    (job,) = client.get(f"/api/v1/queues/{name}/jobs", params={"state": "scheduled"}).json()["jobs"]
    assert job["available_at"] == "2040-01-01T00:00:00.000000Z"
    answers = [
        json.loads(event.removeprefix("data: ")),
        client.get(f"/api/v1/schedules/{name}").json(),
        client.get(f"/api/v1/feeds/{name}").json(),
        client.post(f"/api/v1/feeds/{name}/claims").json(),
        client.put(f"/api/v1/feeds/{name}-2", json={}).json(),
        client.get("/api/v1/actions").json(),
    ]
    for answer in answers:
        found = list(times(answer))
        assert found, answer
        assert [one for one in found if not TIME.fullmatch(one)] == []
    for one in (name, f"{name}-2"):
        db.feeds.delete(one)


@here
@pytest.mark.parametrize("content_type", [None, "text/plain", "application/x-www-form-urlencoded", "application/jsonx"])
def test_a_body_that_is_not_json_is_refused(db: QueueDB, name: str, client: httpx2.Client, content_type: str | None) -> None:
    headers = {} if content_type is None else {"Content-Type": content_type}
    refused = client.post(f"/api/v1/queues/{name}/jobs", content='{"kind": "mail"}', headers=headers)
    assert refused.status_code == 415, refused.text
    assert "Content-Type: application/json" in refused.json()["detail"]
    assert db.queue(name).stats().available == 0
    for fine in ("application/json; charset=utf-8", "application/vnd.mail+json", "Application/JSON"):
        answer = client.post(f"/api/v1/queues/{name}/jobs", content='{"kind": "mail"}', headers={"Content-Type": fine})
        assert answer.status_code == 201, (fine, answer.text)
    # An operation without a body does not look at one; one with an optional body does.
    assert client.post(f"/api/v1/queues/{name}/pause", headers=headers).status_code == 200
    assert client.post(f"/api/v1/queues/{name}/resume", headers=headers).status_code == 200


@here
def test_an_unknown_query_parameter_is_refused(db: QueueDB, name: str, client: httpx2.Client) -> None:
    refused = client.get(f"/api/v1/queues/{name}/jobs", params={"limt": 3, "state": "dead"})
    assert refused.status_code == 422
    (error,) = refused.json()["errors"]
    assert error["where"] == "query.limt"
    assert error["what"] == "is unknown; this operation has after, group, kind, limit, state"
    assert "query.limt" in refused.json()["detail"]
    db.queue(name).enqueue("mail")
    assert client.delete(f"/api/v1/queues/{name}/jobs", params={"dry_run": "true"}).status_code == 422
    assert db.queue(name).stats().available == 1
    assert client.get("/api/v1/events", params={"queue": name}).status_code == 422


def test_known_query_parameters_are_those_of_the_document() -> None:
    known = Declared(API)._queries
    names = {route.name: tuple(known[route.endpoint]) for router in API for route in router.routes}  # type: ignore[attr-defined]
    documented = {
        operation["operationId"]: tuple(sorted(one["name"] for one in operation.get("parameters", ()) if one["in"] == "query"))
        for operation in OPERATIONS.values()
    }
    assert names.items() <= documented.items()
    assert any(names.values())


@here
def test_a_token_is_looked_at_first(db: QueueDB, serve: Callable[[Settings], httpx2.Client]) -> None:
    client = serve(Settings())
    assert client.get("/api/v1/queues", params={"unknown": 1}).status_code == 401
    assert client.post("/api/v1/queues/mail/jobs", content="x", headers={"Content-Type": "text/plain"}).status_code == 401


@here
def test_the_way_in_leads_to_the_description(serve: Callable[[Settings], httpx2.Client]) -> None:
    client = serve(Settings())
    for path in ("/api/v1", "/api/v1/"):
        about = client.get(path)
        assert (about.status_code, about.json()["version"]) == (200, __version__)
    assert client.get(about.json()["openapi"]).json()["openapi"].startswith("3.")
    for path in ("/api/v1/job", "/api", "/queues/mail/jobs"):
        lost = client.get(path)
        assert lost.status_code == 404
        assert lost.headers["content-type"] == "application/problem+json"
        assert "/api/v1/openapi.json" in lost.json()["detail"]
    wrong = client.put("/api/v1/queues")
    assert wrong.status_code in {401, 405}


@here
def test_problems_of_one_type_have_one_title_and_the_words_of_http(db: QueueDB, name: str, client: httpx2.Client) -> None:
    queue, api = db.queue(name), "/api/v1"
    queue.enqueue("mail", unique_key="k")
    queue.claim()[0].bury("broken")
    queue.enqueue("mail", unique_key="k")
    dead = db.dead.list(name)[0].id
    db.feeds.set(f"{name}-plain")
    db.feeds.set(f"{name}-claims", claims=True)
    plain, claims = f"{api}/feeds/{name}-plain", f"{api}/feeds/{name}-claims"
    client.put(f"{plain}/cursors/c")
    position = client.get(plain).json()["end"]
    any_version = {"If-Match": "*"}
    answers = [
        client.post(f"{api}/queues/{name}/jobs", json={"kind": "mail", "unique_key": "k"}),
        client.post(f"{api}/queues/{name}/jobs", json={"kind": " mail"}),
        client.post(f"{api}/queues/{name}/jobs", json={"kind": "mail", "on_duplicate": "skip"}),
        client.post(f"{api}/queues/{name}/jobs", json={"kind": "mail", "unique_for": 3}),
        client.post(
            f"{api}/queues/{name}/jobs", content='{"kind": "mail", "payload": NaN}', headers={"Content-Type": "application/json"}
        ),
        client.post(f"{api}/queues/{name}/jobs/many", json={"jobs": [{"kind": "mail"}, {"kind": "a\x01"}]}),
        client.post(f"{api}/queues/{name}/jobs", json={"kind": "mail", "payload": None}, headers={"Idempotency-Key": "k\x7f"}),
        client.get(f"{api}/queues/{name}/jobs", params={"after": "x"}),
        client.get(f"{api}/queues/{name}%20/jobs"),
        client.delete(f"{api}/jobs/{dead}", headers=any_version),
        client.patch(f"{api}/jobs/{dead}", json={"delay": 0}, headers=any_version),
        client.patch(f"{api}/jobs/{dead}", json={}, headers=any_version),
        client.patch(f"{api}/jobs/{dead}", json={}, headers={}),
        client.get(f"{api}/jobs/99999999"),
        client.post(f"{api}/dead/redrive", json={"ids": ["99999999"]}),
        client.post(f"{api}/jobs/{dead}/complete", headers={"If-Match": f'"{dead}:0"', "Lease-Token": "x"}),
        client.get(f"{api}/finished/99999999"),
        client.put(f"{api}/schedules/{name}", json={"queue": name, "kind": "mail"}),
        client.put(f"{api}/schedules/{name}", json={"queue": name, "kind": "mail", "cron": "0 3 * *"}),
        client.put(f"{api}/schedules/{name}", json={"queue": name, "kind": "mail", "cron": "0 3 * * *", "zone": "Mars"}),
        client.get(f"{api}/schedules/none"),
        client.get(f"{api}/feeds/{name}-none"),
        client.post(f"{api}/feeds/{name}-none/claims"),
        client.post(f"{plain}/claims"),
        client.put(plain, json={"claims": True}),
        client.put(plain, json={"delay": 3}),
        client.put(plain, json={"ordering": "none"}),
        client.put(f"{api}/feeds/{name}-new", json={"claims": True, "ordering": "counter"}),
        client.put(claims, json={"delay": 60, "expires_in": 3}),
        client.post(f"{plain}/messages", json={"messages": [{"delay": 3}]}),
        client.post(f"{claims}/messages", json={"messages": [{"delay": 3, "expires_in": 2}]}),
        client.get(f"{plain}/messages", params={"echo": False}),
        client.get(f"{plain}/messages", params={"after": "x"}),
        client.get(f"{claims}/messages", params={"after": position}),
        client.get(f"{plain}/messages", params={"after": position[:-1] + "99"}),
        client.put(f"{plain}/cursors/c", headers={}),
        client.post(f"{plain}/cursors/c/ack", json={"upto": "x"}, headers={"If-Match": '"1"'}),
        client.post(f"{plain}/cursors/c/ack", json={"upto": position}, headers={"If-Match": '"999"'}),
        client.post(f"{plain}/cursors/c/seek", json={"position": "nowhere"}),
        client.get(f"{claims}/claims/none"),
        client.delete(f"{claims}/messages"),
        client.delete(f"{claims}/messages/x"),
        client.put(f"{api}/routes/{name}", json={"action": "webhook", "target": "ftp://x"}),
        client.put(f"{api}/routes/{name}", json={"action": "webhook", "target": "https://a:b@x/"}),
        client.put(f"{api}/routes/{name}", json={"action": "feed", "target": ""}),
        client.put(f"{api}/routes/{name}", json={"action": "count", "target": name, "group": True}),
        client.post(f"{api}/routes/none/subscriptions", json={"pattern": "a.*"}),
        client.post(f"{api}/streams/none/release"),
        client.get(f"{api}/batches/99999999"),
        client.get(f"{api}/failures", params={"after": "x"}),
        client.get(f"{api}/queues/{name}/metrics", params={"width": 15}),
    ]
    titles: dict[str, str] = {}
    for answer in answers:
        if answer.status_code < 400:
            continue
        assert answer.status_code < 500, answer.text
        got = answer.json()
        kind = f"{got['type']} {got['status'] if got['type'] == 'about:blank' else ''}"
        assert titles.setdefault(kind, got["title"]) == got["title"]
        assert got["detail"], got
        assert not PYTHON.search(got["detail"]), got["detail"]
    assert len(titles) > 12
    for one in ("plain", "claims", "new"):
        db.feeds.delete(f"{name}-{one}")


@here
@pytest.mark.parametrize(
    "value",
    ["customer=7", "is True", "or 1=1--", "claims=True", "None=None", "webhook=:x", "feed.claim", "db.feeds.set(claims=True)"],
)
def test_no_value_of_a_client_is_rewritten(db: QueueDB, name: str, client: httpx2.Client, value: str) -> None:
    """The library's words are translated where it raises them, and not looked for in texts."""
    api, queue = "/api/v1", f"{name} {value}"
    jobs = f"{api}/queues/{quote(queue, safe='')}/jobs"
    db.feeds.set(queue)
    db.queue(queue).enqueue("mail", unique_key=value)
    db.queue(queue).enqueue("mail", unique_key="g", group="one")
    answers = {
        "key": client.post(jobs, json={"kind": "mail", "unique_key": value}),
        "kind": client.post(jobs, json={"kind": f" {value}"}),
        "second kind": client.post(f"{jobs}/many", json={"jobs": [{"kind": "a"}, {"kind": f"{value} "}]}),
        "group": client.post(jobs, json={"kind": "m", "unique_key": "g", "group": value, "on_duplicate": "replace"}),
        "payload": client.post(jobs, content=f'{{"kind": "{value}", "payload": NaN}}', headers=JSON),
        "cron": client.put(f"{api}/schedules/s", json={"queue": "q", "kind": "k", "cron": value}),
        "zone": client.put(f"{api}/schedules/s", json={"queue": "q", "kind": "k", "cron": "0 3 * * *", "zone": value}),
        "feed": client.post(f"{api}/feeds/{quote(queue, safe='')}/claims"),
        "absent feed": client.get(f"{api}/feeds/{quote('x' + queue, safe='')}"),
        "position": client.get(f"{api}/feeds/{quote(queue, safe='')}/messages", params={"after": value}),
        "address": client.put(f"{api}/routes/r", json={"action": "webhook", "target": value}),
    }
    for what, answer in answers.items():
        assert 400 <= answer.status_code < 500, (what, answer.text)
        assert value in answer.json()["detail"], (what, answer.json()["detail"])
    db.feeds.delete(queue)


@here
def test_failures_actions_and_numbers_are_listed_in_pages(
    db: QueueDB, name: str, client: httpx2.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = db.queue(name)
    queue.enqueue_many([(f"kind-{n}", None, {"max_attempts": 1}) for n in (0, 1, 1, 2, 2, 2)])
    for job in queue.claim(6):
        job.fail(ValueError("broken"))
    first = client.get("/api/v1/failures", params={"queue": name, "limit": 2}).json()
    rest = client.get("/api/v1/failures", params={"queue": name, "limit": 2, "after": first["after"]}).json()
    groups = [(one["kind"], one["count"], one["dead"]) for one in first["failures"] + rest["failures"]]
    assert groups == [("kind-2", 3, 3), ("kind-1", 2, 2), ("kind-0", 1, 1)]
    assert rest["after"] is None
    assert client.get("/api/v1/failures", params={"queue": name, "kind": "kind-1"}).json()["failures"][0]["count"] == 2
    for error_class, number in (("ValueError", 3), ("KeyError", 0)):
        some = client.get("/api/v1/failures", params={"queue": name, "error_class": error_class}).json()["failures"]
        assert len(some) == number

    for verb in ("pause", "resume", "pause", "resume"):
        client.post(f"/api/v1/queues/{name}/{verb}")
    after, seen = None, []
    while after is not None or not seen:
        page = client.get("/api/v1/actions", params={"limit": 3, **({} if after is None else {"after": after})}).json()
        seen += page["actions"]
        after = page["after"]
    assert [one["action"] for one in seen if one["target"] == f"queue {name}"] == ["resume", "pause"] * 2
    assert len({one["id"] for one in seen}) == len(seen)

    url = f"/api/v1/queues/{name}/metrics"
    since = (datetime.now(UTC) - timedelta(hours=1)).isoformat()

    def died() -> int:
        """Over all pages of one entry each: the service counts meanwhile, too."""
        db.metrics.take()
        number, after = 0, None
        while True:
            page = client.get(url, params={"since": since, "limit": 1, **({} if after is None else {"after": after})}).json()
            number += sum(row["died"] for row in page["metrics"])
            after = page["after"]
            if after is None:
                return number

    until(lambda: died() == 6)
    assert client.get(url, params={"since": (datetime.now(UTC) + timedelta(days=1)).isoformat()}).json()["metrics"] == []


@here
def test_failures_and_actions_of_others_are_not_shown(db: QueueDB, name: str, serve: Callable[[Settings], httpx2.Client]) -> None:
    for queue in (f"{name}-mine", f"{name}-yours"):
        db.queue(queue).enqueue("mail")
        db.queue(queue).claim()[0].fail("broken")
    secret = db.tokens.create(name, ["read"], queues=[f"{name}-mine"])
    client = serve(Settings())
    client.headers["Authorization"] = f"Bearer {secret}"
    found = client.get("/api/v1/failures").json()["failures"]
    assert [one["queue"] for one in found] == [f"{name}-mine"]
    assert client.get("/api/v1/failures", params={"queue": f"{name}-yours"}).status_code == 403
    assert client.get(f"/api/v1/queues/{name}-yours/metrics").status_code == 403
    assert client.get(f"/api/v1/queues/{name}-mine/metrics").status_code == 200
    assert client.get("/api/v1/actions").status_code == 403


def test_examples_of_the_document_are_requests() -> None:
    schemas = DOCUMENT["components"]["schemas"]
    assert EXAMPLES
    for name, example in EXAMPLES.items():
        Draft202012Validator({"$ref": f"#/components/schemas/{name}", "components": DOCUMENT["components"]}).validate(example)
        assert example.keys() <= schemas[name]["properties"].keys()


def test_names_of_the_document_read_well_in_a_client() -> None:
    for schema in DOCUMENT["components"]["schemas"]:
        assert re.fullmatch(r"[A-Z][A-Za-z]+", schema), schema
    for operation in OPERATIONS.values():
        assert re.fullmatch(r"[a-z]+(_[a-z]+)+", operation["operationId"]), operation["operationId"]
    described = {tag["name"] for tag in DOCUMENT["tags"] if tag["description"]}
    assert {tag for operation in OPERATIONS.values() for tag in operation["tags"]} == described


def part(schema: dict[str, Any], steps: list[str]) -> dict[str, Any] | None:
    """The schema at a JSON pointer of a response."""
    while "$ref" in schema:
        schema = DOCUMENT["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    if not steps:
        return schema
    step, *rest = steps
    choices = [one for one in schema.get("anyOf", [schema]) if one.get("type") != "null"]
    if choices != [schema]:
        return part(choices[0], steps)
    inner = schema.get("items") if step.isdigit() else schema.get("properties", {}).get(step)
    return None if inner is None else part(inner, rest)


def test_links_lead_to_operations_with_values_that_are_there() -> None:
    by_id = {one["operationId"]: one for one in OPERATIONS.values()}
    paged = 0
    for source in by_id.values():
        in_path = {one["name"] for one in source.get("parameters", []) if one["in"] == "path"}
        for response in source["responses"].values():
            for name, link in response.get("links", {}).items():
                target = by_id[link["operationId"]]
                taken = {one["name"] for one in target.get("parameters", [])}
                needed = {one["name"] for one in target.get("parameters", []) if one["in"] == "path"}
                assert needed <= link["parameters"].keys() <= taken, (source["operationId"], name)
                paged += name == "next_page"
                for value in link["parameters"].values():
                    if (pointer := value.removeprefix("$response.body#/")) != value:
                        assert part(response["content"]["application/json"]["schema"], pointer.split("/")) is not None, value
                    else:
                        assert value.removeprefix("$request.path.") in in_path, value
    assert paged > 8
    assert part(DOCUMENT["components"]["schemas"]["EnqueuedJob"], ["no"]) is None
