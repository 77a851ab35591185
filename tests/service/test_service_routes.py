"""What must hold for every endpoint and page, computed over all of them: none forgets to ask who asks."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from fnmatch import fnmatchcase

import httpx2
import pytest
from fastapi import APIRouter
from fastapi.routing import APIRoute

import queue_db
from queue_db import QueueDB, arguments, errors
from queue_db.model import PRESENT, StoredResult
from queue_db.service import Settings
from queue_db.service.api import API, BESIDE
from queue_db.service.auth.login import router as login
from queue_db.service.http import errors as answers
from queue_db.service.pages import PAGES
from queue_db.store import worker_registry
from queue_db.tokens.tokens import SCOPES
from tests.patience import PATIENCE
from tests.service.conftest import serving

#: Answers without a token; they have no data.
PUBLIC = {
    ("GET", "/healthz"),
    ("GET", "/readyz"),
    ("GET", "/api/v1"),
    ("GET", "/api/v1/"),
    ("GET", "/login"),
    ("POST", "/login"),
    ("GET", "/static/{version}/{file}"),
}


def routes(routers: tuple[APIRouter, ...], prefix: str = "") -> Iterator[tuple[str, str]]:
    for router in routers:
        for route in router.routes:
            assert isinstance(route, APIRoute), "a route that is not an APIRoute asks nobody"
            for method in sorted(route.methods):
                if method != "HEAD":
                    yield method, prefix + route.path


ENDPOINTS = [*routes(API, "/api/v1"), *routes(BESIDE)]
ALL_PAGES = [*routes(PAGES), *routes((login,))]
CHANGING = [(method, path) for method, path in ALL_PAGES if method != "GET" and (method, path) not in PUBLIC]


def filled(path: str) -> str:
    return re.sub(r"\{\w+(:\w+)?\}", "1", path)


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QueueDB]:
    with QueueDB(f"sqlite:///{tmp_path_factory.mktemp('routes')}/queue.db") as db:
        db.migrate()
        yield db


@pytest.fixture(scope="module")
def address(db: QueueDB) -> Iterator[str]:
    """A closed service."""
    with serving(db, Settings()) as url:
        yield url


@pytest.fixture
def closed(address: str) -> Iterator[httpx2.Client]:
    with httpx2.Client(base_url=address, timeout=PATIENCE) as client:
        yield client


def test_no_endpoint_answers_without_a_token(closed: httpx2.Client) -> None:
    assert len(ENDPOINTS) >= 10
    for method, path in ENDPOINTS:
        if (method, path) not in PUBLIC:
            answer = closed.request(method, filled(path))
            assert (answer.status_code, path) == (401, path)
            assert answer.headers["content-type"] == "application/problem+json"


def test_no_page_is_shown_without_a_login(closed: httpx2.Client) -> None:
    for method, path in ALL_PAGES:
        if (method, path) not in PUBLIC:
            answer = closed.request(method, filled(path))
            assert (answer.status_code, path) == (303, path)
            assert answer.headers["location"].startswith("/login")


def test_no_action_of_a_page_is_done_for_another_site(db: QueueDB, name: str, closed: httpx2.Client) -> None:
    assert ("POST", "/logout") in CHANGING
    assert closed.post("/login", data={"token": db.tokens.create(name, SCOPES)}).status_code == 303
    for method, path in CHANGING:
        for data, headers in (
            ({}, {}),
            ({"csrf": "wrong"}, {}),
            ({"csrf": _csrf(db, closed)}, {"Origin": "https://evil.example"}),
            ({"csrf": _csrf(db, closed)}, {"Sec-Fetch-Site": "cross-site"}),
        ):
            answer = closed.request(method, filled(path), data=data, headers=headers)
            assert (answer.status_code, path) == (403, path)


def _csrf(db: QueueDB, client: httpx2.Client) -> str:
    (key,) = [value for name, value in client.cookies.items() if name.startswith("queue_db_session")]
    session = db.tokens.session(key)
    assert session
    return session.csrf


def test_a_token_without_a_scope_gets_nothing(db: QueueDB, name: str, closed: httpx2.Client) -> None:
    """A token for another queue: nothing is changed, whatever it asks for."""
    closed.headers["Authorization"] = f"Bearer {db.tokens.create(name, ['read'], queues=[f'{name}-none'])}"
    for method, path in ENDPOINTS:
        if method != "GET":
            answer = closed.request(method, filled(path))
            assert answer.status_code in {403, 422}, (method, path, answer.status_code)


#: Bodies with which a request would be done, if the token allowed it.
_WHY = {"error": {"message": "m"}}
BODIES: dict[str, object] = {
    "/jobs": {"kind": "k"},
    "/jobs/many": {"jobs": [{"kind": "k"}]},
    "/fail": _WHY,
    "/bury": _WHY,
    "/snooze": {"seconds": 60},
    "/extend": {"seconds": 60},
    "/progress": {"fraction": 0.5},
    "/claims": {},
}

#: Text of the jobs and messages of the others.
MARK = "for-their-eyes-only"


def test_a_token_for_other_queues_sees_and_changes_nothing_of_theirs(db: QueueDB, name: str, closed: httpx2.Client) -> None:
    theirs = f"{name}-theirs"
    queue, feed = db.queue(theirs), db.feed(theirs)
    queue.enqueue("dies", MARK)
    (dead,) = queue.claim()
    dead.bury(MARK)
    queue.enqueue("runs", MARK, group="g")
    (job,) = queue.claim()
    queue.enqueue("waits", MARK)
    db.schedules.set(theirs, theirs, "k", MARK, every=3600)
    feed.publish("k", MARK)
    feed.rank()
    places = dict.fromkeys(("queue", "feed", "name", "topic", "route"), theirs) | {"job_id": str(job.id), "group": "g"}
    before = _world(db, theirs)
    closed.headers["Authorization"] = f"Bearer {db.tokens.create(name, SCOPES, queues=[f'{name}-mine'])}"
    lease = {"If-Match": f'"{job.id}:{job.version}"', "Lease-Token": job.token}
    seen = {}
    for method, path in ENDPOINTS:
        if (method, path) in PUBLIC or path.endswith("/events"):
            continue
        place = re.sub(r"\{(\w+)(:\w+)?\}", lambda found: places.get(found[1], "1"), path)
        body = next((body for end, body in BODIES.items() if path.endswith(end)), None)
        answer = closed.request(method, place, json=body, headers=lease)
        assert MARK not in answer.text, (method, path)
        seen[method, path] = answer.status_code
        assert _world(db, theirs) == before, (method, path, answer.status_code)
    for (method, path), status in seen.items():
        if "{queue}" in path or "{feed}" in path or "{job_id}" in path:
            unknown = 412 if _settles(method, path) else 404
            assert status in {403, unknown} or (method != "GET" and status == 422), (method, path, status)
        assert status < 500, (method, path)
    for end in BODIES:
        assert {status for (method, path), status in seen.items() if path.endswith(end) and method == "POST"} <= {403, 404, 412}


def _settles(method: str, path: str) -> bool:
    """Whether it takes a lease, in its headers."""
    return method == "POST" and "/jobs/{job_id}/" in path


def _world(db: QueueDB, name: str) -> object:
    """What a change would change."""
    jobs = [(job.id, job.version, job.state, job.progress) for state in PRESENT for job in db.queue(name).jobs(state).jobs]
    feed = [(message.kind, message.position) for message in db.feed(name).read().messages]
    schedules = [(one.name, one.paused) for one in db.schedules.list()]
    return jobs, feed, schedules, db.queue(name).controls()


def _only(db: QueueDB, client: httpx2.Client, name: str, *queues: str) -> None:
    """Let a client have all scopes, for these queues."""
    client.headers["Authorization"] = f"Bearer {db.tokens.create(f'{name}-token-{len(db.tokens.list())}', SCOPES, queues=queues)}"


@pytest.mark.parametrize("pattern", ["?", "[!b]*", "**"])
def test_a_pattern_that_matches_a_star_is_not_all_queues(db: QueueDB, name: str, closed: httpx2.Client, pattern: str) -> None:
    db.queue(name).enqueue("dies")
    db.queue(name).claim()[0].bury("gone")
    _only(db, closed, name, pattern)
    asked = [
        ("GET", "/actions"),
        *(("POST", f"/{path}") for path in ("dead/redrive", "dead/purge", "workers/w/rescue")),
    ]
    for method, path in asked:
        body = {"all": True} if path.startswith("/dead/") else None
        assert (closed.request(method, f"/api/v1{path}", json=body).status_code, path) == (403, path)
    shown = {one["queue"] for one in closed.get("/api/v1/dead").json()["jobs"]}
    assert all(fnmatchcase(queue, pattern) for queue in shown)
    assert len(db.dead.list(name)) == 1


def test_a_route_leads_only_to_what_its_token_is_for(db: QueueDB, name: str, closed: httpx2.Client) -> None:
    mine, theirs = f"{name}-mine", f"{name}-theirs"
    definitions = [db.routes.define(enqueue=theirs), db.routes.define(webhook="https://example.com/")]
    own, nothing = db.routes.define(count=mine), db.routes.define(drop=True)
    db.routes.set(mine, count=mine)
    _only(db, closed, name, mine)
    route = f"/api/v1/routes/{mine}"
    assert [closed.get(f"/api/v1/counters/{one}/keys").status_code for one in (mine, theirs)] == [200, 403]
    assert [closed.delete(f"/api/v1/counters/{one}").status_code for one in (mine, theirs)] == [404, 403]
    unknown = closed.post(f"{route}/assign", json={"definition": "0" * 64})
    for sha in definitions:
        answer = closed.post(f"{route}/assign", json={"definition": sha[:20]})
        assert (answer.status_code, answer.text) == (404, unknown.text.replace("0" * 64, sha[:20]))
    assert [one.action for one in db.routes.list() if one.name == mine] == ["count"]
    for sha in (nothing, own):
        assert closed.post(f"{route}/assign", json={"definition": sha}).json()["definition"] == sha


def test_the_cursors_of_one_name_are_those_of_feeds_that_a_token_is_for(db: QueueDB, name: str, closed: httpx2.Client) -> None:
    mine, theirs = f"{name}-mine", f"{name}-theirs"
    positions = []
    for feed in (mine, theirs):
        db.feed(feed).cursor(name).close()
        db.feed(feed).publish("n")
        positions.append(db.feed(feed).read().messages[0].position)
    _only(db, closed, name, mine)
    path = f"/api/v1/cursors/{name}"
    assert [(one["feed"], one["behind"]) for one in closed.get(path).json()["cursors"]] == [(mine, 1)]
    answer = closed.post(f"{path}/ack", json={"upto": [*reversed(positions), positions[0]]})
    assert answer.json() == {"verdicts": ["lost", "applied", "applied"]}
    assert [(one.feed, one.behind) for one in db.feeds.cursors(name)] == [(mine, 0), (theirs, 1)]
    token, epoch, number = positions[0].split(".")
    assert closed.post(f"{path}/ack", json={"upto": [f"{token}.{epoch}.{int(number) + 9}"]}).status_code == 422
    assert closed.post(f"{path}/ack", json={"upto": ["x"]}).status_code == 422
    for feed in (mine, theirs):
        db.feeds.delete(feed)


def test_a_route_gets_only_topics_that_its_token_is_for(db: QueueDB, name: str, closed: httpx2.Client) -> None:
    mine = f"{name}-mine"
    db.routes.set(mine, count=mine)
    path = f"/api/v1/routes/{mine}/subscriptions"
    given = [("#", "amqp"), (mine, "glob"), ("*", "glob"), (f'{{"topic": "{mine}", "a": null}}', "headers"), ("theirs", "exact")]
    _only(db, closed, name, mine)
    for pattern, form in given:
        assert (closed.post(path, json={"pattern": pattern, "form": form}).status_code, pattern) == (403, pattern)
    assert closed.post(path, json={"pattern": mine, "form": "exact"}).json()["subscriptions"] == [
        {"pattern": mine, "form": "exact"}
    ]
    _only(db, closed, name, "*")
    assert [closed.post(path, json={"pattern": pattern, "form": form}).status_code for pattern, form in given] == [201] * len(given)
    db.routes.remove(mine)


def test_an_unknown_route_is_answered_without_the_names_of_others(db: QueueDB, name: str, closed: httpx2.Client) -> None:
    db.routes.set(f"{name}-theirs", drop=True)
    _only(db, closed, name, f"{name}-mine")
    bodies = {
        "pause": None,
        "resume": None,
        "assign": {"definition": "0" * 64},
        "subscriptions": {"pattern": f"{name}-mine", "form": "exact"},
    }
    for verb, body in bodies.items():
        answer = closed.post(f"/api/v1/routes/{name}-mine/{verb}", json=body)
        assert (answer.status_code, "theirs" in answer.text) == (404, False), verb
    db.routes.remove(f"{name}-theirs")


def test_a_test_of_a_topic_shows_only_routes_that_may_be_read(db: QueueDB, name: str, closed: httpx2.Client) -> None:
    mine, theirs = f"{name}-mine", f"{name}-theirs"
    for route in (mine, theirs):
        db.routes.set(route, enqueue=route)
        db.routes.subscribe(mine, route, "exact")
    _only(db, closed, name, mine)
    answer = closed.post(f"/api/v1/topics/{mine}/test", json={})
    assert [step["route"] for step in answer.json()["steps"]] == [mine]


def test_pages_and_api_show_the_same_routes(db: QueueDB, name: str, closed: httpx2.Client) -> None:
    mine, theirs = f"{name}-mine", f"{name}-theirs"
    db.routes.set(mine, enqueue=theirs, where="payload.cents > `70`", matched=True)
    db.routes.set(theirs, enqueue=mine)
    _only(db, closed, name, mine)
    assert [one["name"] for one in closed.get("/api/v1/routes").json()["routes"]] == [mine]
    secret = closed.headers.pop("Authorization").removeprefix("Bearer ")
    assert closed.post("/login", data={"token": secret}).status_code == 303
    page = closed.get("/routes").text
    assert re.findall('data-row="([^"]+)"', page) == [mine]
    assert "payload.cents &gt; `70`" in page  # why it does not act for a message
    assert "with the header matched" in page
    done = [closed.post("/routes/pause", data={"csrf": _csrf(db, closed), "name": one}).status_code for one in (mine, theirs)]
    assert done == [303, 403]
    assert {one.name: one.paused for one in db.routes.list() if one.name in {mine, theirs}} == {mine: True, theirs: False}


def test_a_worker_is_shown_with_its_readable_queues(db: QueueDB, name: str, closed: httpx2.Client) -> None:
    mine = f"{name}-mine"
    values = {"host": "h", "pid": 1, "state": "working", "in_hand": 0, "stuck": 0, "counters": "{}"}
    db.core.write(
        "worker_registry.heartbeat", worker_registry.heartbeat, name, {**values, "queues": f'{{"{mine}": 4, "{name}-theirs": 5}}'}
    )
    _only(db, closed, name, mine)
    assert [one["queues"] for one in closed.get("/api/v1/workers").json()["workers"]] == [{mine: 4}]


@pytest.fixture
def hidden(db: QueueDB, name: str) -> dict[str, str]:
    """What another queue has, by the name of the parameter of a path."""
    queue = db.queue(f"{name}-theirs")
    finished = queue.enqueue("k")
    queue.complete_many(queue.claim(), results=[StoredResult(None, 60)])
    dead = queue.enqueue("k")
    queue.claim()[0].bury(MARK)
    batch, _ = queue.enqueue_batch([("k", MARK)], ("k", MARK))
    db.schedules.set(queue.name, queue.name, "k", MARK, every=3600)
    return {"finished": str(finished), "jobs": str(dead), "batches": str(batch), "schedules": queue.name}


#: An id or name that nothing has.
UNKNOWN = "987654321"


def test_what_is_found_by_its_id_is_unknown_to_a_token_for_other_queues(
    db: QueueDB, name: str, closed: httpx2.Client, hidden: dict[str, str]
) -> None:
    _only(db, closed, name, f"{name}-mine")
    headers = {"If-Match": "*"}
    lease = {"If-Match": f'"{hidden["jobs"]}:1"', "Lease-Token": "x"}
    secret = closed.headers["Authorization"].removeprefix("Bearer ")
    assert closed.post("/login", data={"token": secret}).status_code == 303
    paths = [(method, path) for method, path in ENDPOINTS if re.match(r"/api/v1/(finished|jobs|batches|schedules)/\{", path)]
    paths += [("GET", "/jobs/{number:int}")]
    compared = 0
    for method, path in paths:
        if method == "PUT":
            continue
        kind = re.match(r"(?:/api/v1)?/(\w+)", path)[1]  # type: ignore[index]
        body = next((body for end, body in BODIES.items() if path.endswith(end)), {"delay": 0} if method == "PATCH" else None)
        leased = _settles(method, path)
        for found in {hidden[kind], hidden["finished"]} if kind == "jobs" else {hidden[kind]}:
            answers = []
            for one in (found, UNKNOWN):
                sent = {**lease, "If-Match": f'"{one}:1"'} if leased else headers
                answers.append(closed.request(method, re.sub(r"\{.*?\}", one, path), json=body, headers=sent))
            there, unknown = answers
            assert (there.status_code, path) == (412 if leased else 404, path)
            assert re.sub(rf"(?<=[ '\"/]){found}(?=[ ,:'\"/])", UNKNOWN, there.text) == unknown.text
            compared += 1
    assert compared >= 15
    schedule = {"queue": f"{name}-mine", "kind": "k", "every": 60}
    refused = closed.put(f"/api/v1/schedules/{hidden['schedules']}", json=schedule)
    assert refused.status_code == 404
    assert "theirs" not in refused.text.replace(hidden["schedules"], "")
    redriven = closed.post("/api/v1/dead/redrive", json={"queue": f"{name}-mine", "ids": [hidden["jobs"]]})
    assert redriven.status_code == 404
    assert "theirs" not in redriven.text


def test_probes_need_no_host_name(closed: httpx2.Client) -> None:
    for path in ("/healthz", "/readyz"):
        assert closed.get(path, headers={"Host": "10.1.2.3:8321"}).status_code == 200
    assert closed.get("/metrics", headers={"Host": "10.1.2.3:8321"}).status_code == 421


def test_a_browser_gets_errors_as_pages(db: QueueDB, name: str, closed: httpx2.Client) -> None:
    assert closed.post("/login", data={"token": db.tokens.create(name, SCOPES)}).status_code == 303
    browser = {"Accept": "text/html,*/*;q=0.8"}
    answer = closed.get("/nowhere", headers=browser)
    assert (answer.status_code, answer.headers["content-type"]) == (404, "text/html; charset=utf-8")
    assert "<h1>" in answer.text
    assert closed.post("/logout", headers=browser).headers["content-type"] == "text/html; charset=utf-8"
    assert closed.get("/api/v1/nowhere", headers=browser).headers["content-type"] == "application/problem+json"


ERRORS = [one for one in vars(errors).values() if isinstance(one, type) and one.__module__ == errors.__name__]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: error.__name__)
def test_every_error_has_a_status_of_its_own(error: type[Exception]) -> None:
    kind = answers.KINDS[error]
    assert 400 <= kind.status < 600
    assert kind.status != 500
    made = error.__new__(error)
    Exception.__init__(made, "SELECT secret FROM postgresql://user:hunter2@host/name")
    vars(made)["wire"] = str(made)
    vars(made).update(dict.fromkeys([*kind.more, "outcome_unknown"], 0))
    answer = answers.answer(made)
    assert (answer.status_code, answer.media_type) == (kind.status, "application/problem+json")
    if kind.status >= 500:
        assert kind.detail is False or issubclass(error, queue_db.UnsupportedError)
        assert (b"SELECT" in answer.body) is kind.detail


def test_every_error_has_a_code_of_its_own_and_the_problem_has_it() -> None:
    codes = [vars(error)["code"] for error in ERRORS]
    assert [code for code in codes if not re.fullmatch("[a-z]+(_[a-z]+)*", code) or codes.count(code) > 1] == []
    known = json.loads(bytes(answers.answer(errors.JobDeadError(7)).body))
    assert (known["code"], known["type"]) == ("job_dead", "urn:queue-db:problem:job-dead")

    class OwnError(errors.StorageError):
        """Of a dialect."""

    assert json.loads(bytes(answers.answer(OwnError()).body))["code"] == "storage"
    assert "code" not in json.loads(bytes(answers.plain(404, "there is no such path").body))


def test_each_side_spells_an_argument_as_its_users_know_it() -> None:
    error = arguments.wrong("take_over", None, ": must be True or False")
    assert (str(error), error.wire) == ("take_over=None: must be True or False", "take_over null: must be True or False")
    assert error.named("--take-over") == "--take-over=None: must be True or False"
    error.place = "job 3: "
    assert {str(error).partition("take")[0], error.wire.partition("take")[0], error.cli.partition("take")[0]} == {"job 3: "}
    assert error.text == "take_over=None: must be True or False"


def test_what_is_no_error_of_the_library_is_a_bug() -> None:
    answer = answers.answer(ValueError("postgresql://user:hunter2@host/name"))
    assert answer.status_code == 500
    assert b"hunter2" not in answer.body
