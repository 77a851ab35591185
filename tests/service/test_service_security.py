"""Who gets in, what they may do, and what the service refuses: the list of attacks, one by one."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest
from anyio import to_thread
from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, StreamingResponse

from queue_db import QueueDB
from queue_db.operations.actor import ANYBODY
from queue_db.service import Settings, service
from queue_db.service.api.quick import QuickLease
from queue_db.service.auth.session import Session
from queue_db.service.http.guard import HEADERS
from queue_db.service.http.paths import Name
from queue_db.service.http.requests import Enqueuer, Fields, Manager, Person, Reader, WorkerClient
from queue_db.service.webhooks import Sender
from queue_db.tokens.tokens import SCOPES
from tests.patience import PATIENCE, wait_for
from tests.service.conftest import serving_app

#: Seconds within which a request must have arrived, where a test waits for the end of that.
SHORT = 0.3

FOREIGN = [
    *("evil.example", "127.0.0.1.evil.example", "localhost.evil.example:80", "10.0.0.1", "", "[::2]:80"),
    # They begin like names of this host.
    *("localhost:80@evil.example", "localhost:x", "localhost:", "[::1", "[::1]x", "localhost/x"),
]
OWN = ["localhost", "LOCALHOST:99", "127.0.0.1", "127.8.8.8:1", "[::1]:80", "queue.example", "Queue.example:443"]
ELSEWHERE = [
    *("//evil.example/", "https://evil.example/", "/\\evil.example", "\\\\evil.example", "//["),
    *("javascript:alert(1)", "evil", "", "/a\nb"),
]
OUTSIDE = [
    *("/static/../../../etc/passwd", "/static/x/..%2f..%2f..%2fetc%2fpasswd"),
    *("/%2e%2e/%2e%2e/etc/passwd", "//etc/passwd"),
]

TYPES: dict[str, Any] = {"read": Reader, "enqueue": Enqueuer, "work": WorkerClient, "manage": Manager}


def application(db: QueueDB, **settings: Any) -> FastAPI:
    """A service with an endpoint for each scope, and a page with a form."""
    app = service(db, Settings(**settings))

    def add(scope: str) -> None:
        def endpoint(queue: Name, who: TYPES[scope]) -> dict[str, str]:  # type: ignore[valid-type]
            who.check(scope, queue)
            return {"who": who.name}

        endpoint.__annotations__ = {"queue": Name, "who": TYPES[scope], "return": dict[str, str]}
        app.add_api_route(f"/api/v1/try/{scope}/{{queue}}", endpoint, methods=["GET", "POST"])

    for scope in SCOPES:
        add(scope)

    async def bug(who: Reader) -> None:
        raise RuntimeError(f"postgresql://user:hunter2@host/name and {db.database.engine.url}")

    async def tell(who: Reader) -> str:
        return who.name

    def page(who: Person, given: Fields) -> HTMLResponse:
        return HTMLResponse(f"{who.name} {given.get('do', '')}")

    def body(given: dict[str, Any], who: Enqueuer) -> dict[str, int]:
        return {"size": len(str(given))}

    app.add_api_route("/api/v1/try-bug", bug, methods=["GET"], response_model=None)
    app.add_api_route("/api/v1/try-who", tell)
    app.add_api_route("/api/v1/try-body", body, methods=["POST"])
    app.add_api_route("/try-page", page, methods=["GET", "POST"], response_model=None)
    return app


class Site:
    """A service on a port, and its clients."""

    def __init__(self, stack: ExitStack, app: FastAPI, **options: Any) -> None:
        self._stack = stack
        self.url = stack.enter_context(serving_app(app, **options))

    def client(self, secret: str | None = None, **headers: str) -> httpx2.Client:
        if secret is not None:
            headers["Authorization"] = f"Bearer {secret}"
        return self._stack.enter_context(httpx2.Client(base_url=self.url, timeout=PATIENCE, headers=headers))

    def person(self, secret: str) -> httpx2.Client:
        """A browser in which somebody has logged in."""
        client = self.client()
        assert client.post("/login", data={"token": secret}).status_code == 303
        return client

    def connect(self) -> socket.socket:
        parts = urlsplit(self.url)
        assert parts.hostname
        assert parts.port
        return self._stack.enter_context(closing(socket.create_connection((parts.hostname, parts.port), PATIENCE)))


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QueueDB]:
    """One file for all: what a database answers is tested elsewhere."""
    with QueueDB(f"sqlite:///{tmp_path_factory.mktemp('security')}/queue.db") as db:
        db.migrate()
        yield db


@pytest.fixture(scope="module")
def site(db: QueueDB) -> Iterator[Site]:
    """A closed service."""
    with ExitStack() as stack:
        yield Site(stack, application(db))


def csrf_of(db: QueueDB, client: httpx2.Client) -> str:
    """The token of a session's forms, as its pages have it."""
    (key,) = [value for name, value in client.cookies.items() if name.startswith("queue_db_session")]
    session = db.tokens.session(key)
    assert session
    return session.csrf


# --- tokens -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", ["", "Bearer", "Bearer qdb_wrong", "Basic cXVldWU6ZGI=", "Bearer \xe4", "bearer null"])
def test_without_a_valid_token_nobody_gets_in(site: Site, given: str) -> None:
    for path in ("/api/v1/queues", "/api/v1/try/read/mail"):
        answer = site.client().get(path, headers=[(b"Authorization", given.encode("latin-1"))])
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"] == "Bearer"
        assert answer.headers["content-type"] == "application/problem+json"


def test_an_expired_token_does_not_let_in(site: Site, db: QueueDB, name: str) -> None:
    secret = db.tokens.create(name, ["read"], expires_in=0.000001)
    assert site.client(secret).get("/api/v1/try/read/mail").status_code == 401


def test_a_revoked_token_does_not_let_in_from_that_moment(site: Site, db: QueueDB, name: str) -> None:
    secret = db.tokens.create(name, ["read"])
    client, person = site.client(secret), site.person(secret)
    assert client.get("/api/v1/try/read/mail").json() == {"who": name}
    assert person.get("/try-page").status_code == 200
    db.tokens.revoke(name)
    assert client.get("/api/v1/try/read/mail").status_code == 401
    assert person.get("/try-page").status_code == 303


@pytest.mark.parametrize("scope", SCOPES)
def test_a_token_allows_its_scope_on_its_queues(site: Site, db: QueueDB, name: str, scope: str) -> None:
    client = site.client(db.tokens.create(name, [scope], queues=["mail-*", "a/b"]))
    for other in SCOPES:
        for queue, allowed in (("mail-1", True), ("a%2Fb", True), ("mail", False), ("Mail-1", False), ("x-mail-1", False)):
            answer = client.post(f"/api/v1/try/{other}/{queue}")
            assert answer.status_code == (200 if allowed and other == scope else 403), (other, queue)
            if answer.status_code == 403:
                assert answer.json()["type"] == "urn:queue-db:problem:forbidden"


def test_a_read_only_service_changes_nothing(db: QueueDB, name: str, stack: ExitStack) -> None:
    client = Site(stack, application(db, read_only=True)).client(db.tokens.create(name, SCOPES))
    statuses = {scope: client.post(f"/api/v1/try/{scope}/mail").status_code for scope in SCOPES}
    assert statuses == {"read": 200, "enqueue": 403, "work": 403, "manage": 403}
    assert client.post("/api/v1/try/work/mail").json()["detail"] == "this service is read-only"
    open_client = Site(stack, application(db, read_only=True, closed=False)).client()
    assert [open_client.post(f"/api/v1/try/{scope}/mail").status_code for scope in SCOPES] == [200, 403, 403, 403]


# --- people -----------------------------------------------------------------------------------------------------------


def test_a_person_logs_in_and_out(site: Site, db: QueueDB, name: str) -> None:
    client = site.client()
    sent = client.get("/try-page?a=b%20c")
    assert sent.status_code == 303
    assert sent.headers["location"] == "/login?next=%2Ftry-page%3Fa%3Db%2520c"
    form = client.get(sent.headers["location"])
    assert 'value="/try-page?a=b%20c"' in form.text
    wrong = client.post("/login", data={"token": "qdb_wrong", "next": "/try-page"})
    assert wrong.status_code == 401
    assert "set-cookie" not in wrong.headers
    done = client.post("/login", data={"token": f" {db.tokens.create(name, ['read'])} ", "next": "/try-page?a=b%20c"})
    assert (done.status_code, done.headers["location"]) == (303, "/try-page?a=b%20c")
    cookie = done.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert "secure" not in cookie
    assert client.get("/try-page").text == f"{name} "
    out = client.post("/logout", data={"csrf": csrf_of(db, client)})
    assert (out.status_code, out.headers["location"]) == (303, "/login")
    assert client.get("/try-page").status_code == 303


def test_a_login_makes_a_new_key(site: Site, db: QueueDB, name: str) -> None:
    """What somebody has put into the cookie before is no session afterwards."""
    secret = db.tokens.create(name, ["read"])
    first = site.person(secret)
    (cookie,) = first.cookies
    for planted in ("planted", secret, first.cookies[cookie]):
        client = site.client()
        client.headers["Cookie"] = f"{cookie}={planted}"
        done = client.post("/login", data={"token": secret})
        assert planted not in done.headers["set-cookie"]
        known = planted == first.cookies[cookie]
        assert client.get("/try-page").status_code == (200 if known else 303), planted


def test_behind_https_the_cookie_is_for_https(site: Site, db: QueueDB, name: str) -> None:
    secret = db.tokens.create(name, ["read"])
    done = site.client().post("/login", data={"token": secret}, headers={"X-Forwarded-Proto": "https"})
    assert "secure" in done.headers["set-cookie"].lower()


@pytest.mark.parametrize("path", ELSEWHERE)
def test_the_login_leads_to_no_other_site(site: Site, db: QueueDB, name: str, path: str) -> None:
    done = site.client().post("/login", data={"token": db.tokens.create(name, ["read"]), "next": path})
    assert (done.status_code, done.headers["location"]) == (303, "/")


def test_a_cookie_alone_changes_nothing(site: Site, db: QueueDB, name: str) -> None:
    person = site.person(db.tokens.create(name, SCOPES))
    assert person.get("/api/v1/try/read/mail").status_code == 200
    assert person.get("/api/v1/try/read/mail", headers={"Sec-Fetch-Site": "cross-site"}).status_code == 401
    assert person.post("/api/v1/try/manage/mail").status_code == 401


def test_a_form_needs_the_token_of_its_session(site: Site, db: QueueDB, name: str) -> None:
    secret = db.tokens.create(name, SCOPES)
    person, other = site.person(secret), site.person(secret)
    right = {"csrf": csrf_of(db, person), "do": "it"}
    assert person.post("/try-page", data=right).text == f"{name} it"
    assert person.post("/try-page", data=right, headers={"Sec-Fetch-Site": "same-origin", "Origin": site.url}).status_code == 200
    assert person.post("/try-page", headers={"X-CSRF-Token": right["csrf"]}).status_code == 200
    for wrong in ({}, {"csrf": ""}, {"csrf": "x"}, {"csrf": csrf_of(db, other)}, {"csrf": "\u00e4"}):
        assert person.post("/try-page", data=wrong).status_code == 403
    for headers in (
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
    ):
        assert person.post("/try-page", data=right, headers=headers).status_code == 403


def test_an_open_service_is_closed_to_other_sites(db: QueueDB, stack: ExitStack) -> None:
    client = Site(stack, application(db, closed=False)).client()
    assert client.post("/api/v1/try/manage/mail").status_code == 200
    assert client.post("/api/v1/try/manage/mail", headers={"Sec-Fetch-Site": "cross-site"}).status_code == 403
    assert client.post("/api/v1/try/manage/mail", headers={"Origin": "https://evil.example"}).status_code == 403
    assert client.post("/try-page").status_code == 403


# --- the request itself -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", FOREIGN)
def test_another_host_name_is_refused(site: Site, db: QueueDB, name: str, host: str) -> None:
    answer = site.client(db.tokens.create(name, ["read"])).get("/api/v1/queues", headers={"Host": host})
    assert answer.status_code == 421


@pytest.mark.parametrize("host", OWN)
def test_own_host_names_are_answered(db: QueueDB, name: str, stack: ExitStack, host: str) -> None:
    site = Site(stack, application(db, hosts=("queue.example",)))
    answer = site.client(db.tokens.create(name, ["read"])).get("/api/v1/queues", headers={"Host": host})
    assert answer.status_code == 200


def test_each_answer_has_the_headers(site: Site, db: QueueDB, name: str) -> None:
    secret = db.tokens.create(name, ["read"])
    client = site.client(secret)
    for path, status in (
        ("/api/v1/queues", 200),
        ("/login", 200),
        ("/nowhere", 404),
        ("/api/v1/try/work/mail", 403),
        ("/try-page", 303),
        ("/api/v1/try-bug", 500),
    ):
        answer = client.get(path)
        assert answer.status_code == status
        assert {name: answer.headers.get(name) for name in HEADERS} == HEADERS, path
        assert answer.headers["cache-control"] == "no-store"
        assert "server" not in answer.headers
        assert "access-control-allow-origin" not in answer.headers
    assert client.get("/api/v1/queues", headers={"Host": "evil.example"}).headers["x-content-type-options"] == "nosniff"
    csp = HEADERS["Content-Security-Policy"]
    assert csp.startswith("default-src 'none'")
    assert "unsafe" not in csp


@pytest.mark.parametrize("path", OUTSIDE)
def test_no_path_leads_out(site: Site, db: QueueDB, name: str, path: str) -> None:
    with site.connect() as connection:
        secret = db.tokens.create(name, ["read"])
        request = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {secret}\r\nConnection: close\r\n\r\n"
        connection.sendall(request.encode())
        answer = received(connection)
    assert b" 404 " in answer.partition(b"\r\n")[0]
    assert b"root:" not in answer


def test_a_large_body_is_refused(site: Site, db: QueueDB, name: str) -> None:
    client = site.client(db.tokens.create(name, ["enqueue"]))
    assert client.post("/api/v1/try-body", json={"x": "y" * 1_000_000}).status_code == 200
    assert client.post("/api/v1/try-body", json={"x": "y" * 10_000_000}).status_code == 413
    parts = (b"y" * 100_000 for _ in range(100))
    answer = client.post("/api/v1/try-body", content=parts, headers={"Content-Type": "application/json"})
    assert (answer.status_code, answer.headers["content-type"]) == (413, "application/problem+json")


def test_who_asks_is_found_out_before_the_body_comes(site: Site) -> None:
    with site.connect() as connection:
        connection.sendall(b"POST /api/v1/try-body HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{")
        with connection.makefile("rb") as answer:
            assert answer.readline() == b"HTTP/1.1 401 Unauthorized\r\n"


def test_a_login_is_short(site: Site) -> None:
    assert site.client().post("/login", data={"token": "x" * 1000}).status_code == 401
    assert site.client().post("/login", data={"token": "x" * 10_000}).status_code == 413
    parts = (b"token=" + b"x" * 1000 for _ in range(10))
    assert site.client().post("/login", content=parts).status_code == 413


def test_a_form_is_short(site: Site) -> None:
    """It is read before anybody asks who sends it."""
    assert site.client().post("/try-page", data={"do": "x" * 10_000}).status_code == 303
    assert site.client().post("/try-page", data={"do": "x" * 100_000}).status_code == 413


def test_bodies_together_are_limited(db: QueueDB, stack: ExitStack, name: str) -> None:
    app = application(db, max_bodies=1000)
    came, gone = threading.Event(), threading.Event()

    async def part(request: Request) -> None:
        try:
            async for _ in request.stream():
                came.set()
        finally:
            gone.set()

    app.add_api_route("/part", part, methods=["POST"], response_model=None)
    site = Site(stack, app)
    client = site.client(db.tokens.create(name, ["enqueue"]))
    with site.connect() as connection:
        connection.sendall(b"POST /part HTTP/1.1\r\nHost: localhost\r\nContent-Length: 901\r\n\r\n" + b"y" * 900)
        assert came.wait(PATIENCE)
        answer = client.post("/api/v1/try-body", json={"x": "y" * 500})
        assert (answer.status_code, answer.headers.get("retry-after")) == (503, "1")
    # What its client has given up is held no longer.
    assert gone.wait(PATIENCE)
    for _ in range(int(PATIENCE / 0.01)):
        if client.post("/api/v1/try-body", json={"x": "y" * 500}).status_code == 200:
            return
        threading.Event().wait(0.01)
    pytest.fail("a body is held after its client has gone")


def test_a_service_whose_threads_all_wait_says_who_may_ask(db: QueueDB, stack: ExitStack, name: str) -> None:
    app = application(db)
    waits, goes_on = threading.Event(), threading.Event()
    stack.callback(goes_on.set)

    async def shrink() -> None:
        to_thread.current_default_thread_limiter().total_tokens = 1

    def slow() -> None:
        waits.set()
        assert goes_on.wait(PATIENCE)

    app.add_api_route("/shrink", shrink, response_model=None)
    app.add_api_route("/slow", slow, response_model=None)
    site = Site(stack, app)
    client = site.client(db.tokens.create(name, ["read"]))
    assert client.get("/shrink").status_code == 200
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(site.client().get, "/slow")
        assert waits.wait(PATIENCE)
        try:
            assert client.get("/readyz").status_code == 200
            assert site.client("qdb_wrong").get("/api/v1/queues").status_code == 401
            assert client.get("/api/v1/try-who").status_code == 200
        finally:
            goes_on.set()
        assert running.result(PATIENCE).status_code == 200


def test_a_body_of_two_lengths_is_refused_and_the_connection_closed(site: Site) -> None:
    """What a proxy takes for the body would be the next request."""
    inner = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    body = f"0\r\n\r\n{inner}"
    for lengths in (
        f"Content-Length: {len(body)}\r\nTransfer-Encoding: chunked",
        f"Transfer-Encoding: chunked\r\nContent-Length: {len(body)}",
        f"Content-Length: {len(body)}\r\nContent-Length: 5",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
        "Transfer-Encoding: xchunked",
        "Content-Length: +5",
    ):
        with site.connect() as connection:
            connection.sendall(f"POST /login HTTP/1.1\r\nHost: localhost\r\n{lengths}\r\n\r\n{body}".encode())
            answer = received(connection)  # to the end of the connection
        assert answer.startswith(b"HTTP/1.1 400 "), lengths
        assert answer.count(b"HTTP/1.1") == 1, lengths


@pytest.mark.parametrize(("segment", "status"), [("%FF", 400), ("%ED%A0%80", 400), ("%EF%BF%BD", 200), ("%C3%A4", 200)])
def test_an_address_that_is_no_text_is_refused(site: Site, db: QueueDB, name: str, segment: str, status: int) -> None:
    """Otherwise it would be the name of another queue."""
    assert site.client(db.tokens.create(name, ["read"])).get(f"/api/v1/try/read/{segment}").status_code == status


def test_a_long_address_is_refused(site: Site) -> None:
    assert site.client().get(f"/login?next={'x' * 1000}").status_code == 200
    assert site.client().get(f"/login?next={'x' * 20_000}").status_code == 414


def test_a_request_for_another_protocol_fills_no_log(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    headers = {"Connection": "Upgrade", "Upgrade": "websocket"}
    assert site.client().get("/healthz", headers=headers).status_code == 200
    # What other tests had done is summed up once a minute, perhaps now.
    assert not [record.getMessage() for record in caplog.records if not hasattr(record, "incident")]


def test_endless_headers_are_refused(site: Site) -> None:
    with site.connect() as connection:
        connection.sendall(b"GET /login HTTP/1.1\r\nHost: localhost\r\nX-Endless: ")
        for _ in range(5):
            try:
                connection.sendall(b"x" * 16 * 1024)
            except OSError:
                break
        assert received(connection).partition(b"\r\n")[0] in (b"HTTP/1.1 400 Bad Request", b"")


def test_many_headers_are_refused(db: QueueDB) -> None:
    """Also under a server without a limit of its own."""
    from fastapi.testclient import TestClient

    client = TestClient(application(db), base_url="http://localhost")
    assert client.get("/login").status_code == 200
    assert client.get("/login", headers={f"x-{number}": "y" * 100 for number in range(200)}).status_code == 431


@pytest.mark.parametrize(
    "start",
    [
        b"",
        b"GET /login HTTP/1.1\r\nHost: localhost\r\nX-Slow: ",
        b"POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\ntoken=",
        b"POST /login HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"GET /login HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\nslow",
    ],
)
def test_a_slow_client_is_cut(db: QueueDB, stack: ExitStack, start: bytes) -> None:
    site = Site(stack, application(db, arrival=SHORT))
    with site.connect() as connection:
        connection.sendall(start)
        # The end of the connection: the test would wait for its patience and fail otherwise.
        answer = received(connection)
    assert answer.partition(b"\r\n")[0] in (b"", b"HTTP/1.1 408 Request Timeout", b"HTTP/1.1 200 OK")


def test_a_client_that_takes_no_answer_is_cut(db: QueueDB, stack: ExitStack) -> None:
    app = application(db, arrival=SHORT, closed=False)
    ended = threading.Event()

    async def endless() -> AsyncIterator[bytes]:
        try:
            while True:
                yield b"x" * 100_000
                await asyncio.sleep(0)
        finally:
            ended.set()

    app.add_api_route("/endless", lambda: StreamingResponse(endless()), response_model=None)
    site = Site(stack, app)

    def begun() -> bool:
        with suppress(ConnectionError):  # the request may have been too slow
            connection = site.connect()
            connection.sendall(b"GET /endless HTTP/1.1\r\nHost: localhost\r\n\r\n")
            return connection.recv(12) == b"HTTP/1.1 200"
        return False

    wait_for(begun)
    assert ended.wait(PATIENCE)


def test_more_connections_than_allowed_are_refused(db: QueueDB, stack: ExitStack) -> None:
    site = Site(stack, application(db), most_connections=3)
    for _ in range(3):
        site.connect()
    assert site.client().get("/login").status_code == 503


def received(connection: socket.socket) -> bytes:
    """All that comes until the other side closes."""
    parts = []
    try:
        while part := connection.recv(65536):
            parts.append(part)
    except ConnectionError:
        pass
    return b"".join(parts)


# --- secrets ----------------------------------------------------------------------------------------------------------


def test_no_answer_and_no_log_has_a_secret(db: QueueDB, name: str, site: Site, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    secret = db.tokens.create(name, SCOPES)
    client, person = site.client(secret), site.person(secret)
    answers = [
        client.get("/api/v1/try-bug"),
        client.get("/api/v1/queues"),
        client.post("/api/v1/try-body", content=b"{"),
        person.get("/try-page"),
        person.post("/try-page"),
        site.client(secret[:-1]).get("/api/v1/queues"),
        site.client().post("/login", data={"token": secret[:-1]}),
    ]
    assert [one.status_code for one in answers] == [500, 200, 422, 200, 403, 401, 401]
    for text in [*(one.text for one in answers), *(str(one.headers) for one in answers), caplog.text]:
        assert secret[:-1] not in text
        assert "hunter2" not in text
        assert str(db.database.engine.url) not in text or text is caplog.text
        assert "Traceback" not in text or text is caplog.text
    assert "RuntimeError" in caplog.text


@pytest.mark.parametrize(
    "one", [Sender(b"hidden"), Session(ANYBODY, "hidden"), QuickLease("1", "1", "hidden")], ids=lambda one: type(one).__name__
)
def test_what_an_error_or_a_log_may_show_has_no_secret(one: object) -> None:
    assert "hidden" not in repr(one)
