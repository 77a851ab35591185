"""Behind a reverse proxy: prefix, protocol, host and origin; which proxies are trusted."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import httpx2
import pytest

from queue_db import QueueDB
from queue_db.errors import ConfigurationError
from queue_db.service import Settings, service
from queue_db.service.auth.session import is_own
from queue_db.service.http import proxies
from queue_db.tokens.tokens import SCOPES
from tests.patience import PATIENCE
from tests.service.conftest import serving_app
from tests.service.reverse_proxy import proxying


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QueueDB]:
    with QueueDB(f"sqlite:///{tmp_path_factory.mktemp('proxies')}/queue.db") as db:
        db.migrate()
        yield db


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def behind(stack: ExitStack, db: QueueDB, *, cut: str = "", headers: dict[str, str] | None = None, **options: Any) -> httpx2.Client:
    """A client of a proxy before a closed service."""
    upstream = stack.enter_context(serving_app(service(db, Settings()), **options))
    url = stack.enter_context(proxying(upstream, cut=cut, **(headers or {})))
    return stack.enter_context(httpx2.Client(base_url=url, timeout=PATIENCE))


@pytest.mark.parametrize("cut", ["/queue", ""])
def test_the_service_is_shown_under_a_prefix_by_https(db: QueueDB, stack: ExitStack, name: str, cut: str) -> None:
    client = behind(stack, db, cut=cut, headers={"X_Forwarded_Proto": "https"}, root_path="/queue")
    secret = db.tokens.create(name, SCOPES)
    sent = client.get("/queue/jobs?state=dead")
    assert (sent.status_code, sent.headers["location"]) == (303, "/queue/login?next=%2Fqueue%2Fjobs%3Fstate%3Ddead")
    form = client.get(sent.headers["location"])
    assert 'value="/queue/jobs?state=dead"' in form.text
    done = client.post("/queue/login", data={"token": secret, "next": "/queue/jobs?state=dead"})
    assert (done.status_code, done.headers["location"]) == (303, "/queue/jobs?state=dead")
    cookie = done.headers["set-cookie"]
    assert {one.strip().lower() for one in cookie.split(";")[1:]} == {"httponly", "path=/queue", "samesite=strict", "secure"}
    client.headers["Cookie"] = cookie.split(";")[0]
    page = client.get("/queue/")
    links = set(re.findall(r'(?:href|src|action)="([^"#]*)', page.text)) - {""}
    assert {one.partition("/")[2].partition("/")[0] for one in links} == {"queue"}
    statuses = {one: client.get(one).status_code for one in links if "logout" not in one}
    assert set(statuses.values()) == {200}, statuses
    # A form of the page, with what a browser sends.
    (csrf, *_) = re.findall(r'name="csrf" value="([^"]+)"', page.text)
    own, foreign = str(client.base_url).rstrip("/"), "http://127.0.0.1:1"
    for origin, status in ((foreign, 403), (own, 303)):
        out = client.post("/queue/logout", data={"csrf": csrf}, headers={"Origin": origin})
        assert (out.status_code, out.headers.get("location")) == (status, "/queue/login" if status == 303 else None)
    assert client.get("/queue/").status_code == 303
    assert client.get("/queue").headers["location"].startswith("/queue/login")
    # The API, with a name that has a slash.
    client.headers["Authorization"] = f"Bearer {secret}"
    made = client.post("/queue/api/v1/queues/a%2Fb/jobs", json={"kind": "mail"})
    assert made.headers["location"].startswith("/queue/api/v1/jobs/")
    assert client.get(made.headers["location"]).json()["queue"] == "a/b"
    other = client.get("/queue/api/v1/queues/")
    assert (other.status_code, other.headers["location"]) == (307, "/queue/api/v1/queues")


def test_under_https_no_other_host_of_the_domain_sets_the_cookie(db: QueueDB, stack: ExitStack, name: str) -> None:
    client = behind(stack, db, headers={"X_Forwarded_Proto": "https"})
    done = client.post("/login", data={"token": db.tokens.create(name, ["read"])})
    cookie = done.headers["set-cookie"]
    assert cookie.startswith("__Host-")
    assert "Path=/;" in cookie
    assert client.get("/", headers={"Cookie": cookie.split(";")[0]}).status_code == 200
    assert client.get("/", headers={"Cookie": cookie.split(";")[0].removeprefix("__Host-")}).status_code == 303


@pytest.mark.parametrize(
    ("trusted", "secure", "client"), [(["127.0.0.0/8"], True, "198.51.100.7"), (["10.0.0.1"], False, "127.0.0.1")]
)
def test_only_a_trusted_proxy_says_who_asks_and_how(
    db: QueueDB,
    stack: ExitStack,
    name: str,
    caplog: pytest.LogCaptureFixture,
    trusted: list[str],
    secure: bool,
    client: str,
) -> None:
    headers = {"X_Forwarded_Proto": "https", "X_Forwarded_For": "198.51.100.7"}
    person = behind(stack, db, headers=headers, trusted=trusted)
    done = person.post("/login", data={"token": db.tokens.create(name, ["read"])})
    assert ("Secure" in done.headers["set-cookie"]) is secure
    # What the client itself claims stands before what the proxy adds.
    assert person.post("/login", data={"token": "qdb_wrong"}, headers={"X-Forwarded-For": "192.0.2.1"}).status_code == 401
    (logged,) = [one.getMessage() for one in caplog.records if "login" in one.getMessage()]
    assert f" from {client}, request " in logged


@pytest.mark.parametrize("origin", ["https://queue.example", "https://queue.example:443", "https://QUEUE.example"])
def test_an_origin_without_the_usual_port_is_the_same(db: QueueDB, stack: ExitStack, origin: str) -> None:
    with serving_app(service(db, Settings(hosts=("queue.example",)))) as url:
        for host, status in (("queue.example", 401), ("queue.example:443", 401), ("queue.example:8443", 403)):
            answer = httpx2.post(f"{url}/login", data={"token": "x"}, headers={"Host": host, "Origin": origin}, timeout=PATIENCE)
            assert (host, answer.status_code) == (host, status)


@pytest.mark.parametrize("headers", [{}, {"host": ""}])
@pytest.mark.parametrize("origin", ["", "null", "https://", "://", "https://:443"])
def test_an_origin_without_a_host_is_not_that_of_a_request_without_one(origin: str, headers: dict[str, str]) -> None:
    assert is_own(headers)
    assert not is_own({**headers, "origin": origin})


@pytest.mark.parametrize(
    "given",
    ["queue", "/a b", "/a//b", "/../x", "/.", "//evil.example", "/a?b", "/a#b", "/jobs", "/api", "/static/x", "/login", "/ä"],
)
def test_what_is_no_prefix_is_refused(given: str) -> None:
    with pytest.raises(ConfigurationError, match="--root-path"):
        proxies.prefix(given)


def test_no_path_of_the_service_is_a_prefix(db: QueueDB) -> None:
    # A router that the application includes has its routes with their whole paths.
    routes = [
        one
        for some in service(db, Settings()).routes
        for one in getattr(some, "effective_route_contexts", lambda some=some: [some])()
    ]
    own = {one.path.split("/")[1] for one in routes} - {""}
    assert own >= {"api", "healthz", "jobs", "login", "metrics", "static"}
    for segment in own:
        with pytest.raises(ConfigurationError, match="has this path itself"):
            proxies.prefix(f"/{segment}/x")


def test_prefixes_and_proxies() -> None:
    assert [proxies.prefix(one) for one in ("", "/", "/queue", "/queue/", "/a/b.c")] == ["", "", "/queue", "/queue", "/a/b.c"]
    assert proxies.trusted(None) == ["127.0.0.1", "::1"]
    assert proxies.trusted(["10.0.0.1, 10.1.0.0/16", "::1"]) == ["10.0.0.1", "10.1.0.0/16", "::1"]
    assert proxies.trusted([""]) == []
    for wrong in ("*", "10.0.0.1/8", "proxy.example"):
        with pytest.raises(ConfigurationError, match="--forwarded-allow-ips"):
            proxies.trusted([wrong])
