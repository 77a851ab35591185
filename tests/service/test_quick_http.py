"""Requests that go around h11 are read and answered as h11 would."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from typing import Any

import pytest
from starlette.types import Receive, Scope, Send

from queue_db import QueueDB
from queue_db.service import Settings, service
from queue_db.service.http import server as servers
from queue_db.service.http.quick_http import QuickCycle
from tests.patience import PATIENCE

pytestmark = pytest.mark.parametrize("kind", ["sqlite"], scope="session")

HOST = b"Host: localhost\r\n"


def request(line: bytes = b"GET /a HTTP/1.1", headers: bytes = HOST, body: bytes = b"") -> bytes:
    return line + b"\r\n" + headers + b"\r\n" + body


def post(body: bytes, length: bytes | None = None, more: bytes = b"") -> bytes:
    size = b"%d" % len(body) if length is None else length
    return request(b"POST /b HTTP/1.1", HOST + b"Content-Length: " + size + b"\r\n" + more, body)


#: Requests of programs.
USUAL = [
    request(),
    request(b"GET /a%20b%2Fc?x=1&y=%20 HTTP/1.1"),
    request(b"DELETE /a?b?c HTTP/1.1"),
    request(headers=HOST + b"Connection: keep-alive\r\nX-Empty:\r\nX-Tabs: \ta \t b\t \r\nX-Twice: 1\r\nX-Twice: 2\r\n"),
    post(b'{"limit": 1}', more=b"Content-Type: application/json\r\n"),
    post(b"", b"0"),
    post(b"x" * 60_000),
    request(b"PUT /stream HTTP/1.1"),
    request(b"GET /nothing HTTP/1.1"),
    request(b"GET /empty HTTP/1.1"),
    request(b"GET /head HTTP/1.1", HOST + b"X: !#$%&'*+-.^_`|~()<>@,;:\\\"/[]?={}\r\n"),
]

#: What only h11 reads, or refuses; and how many answers there are.
OTHER: list[tuple[list[bytes], int]] = [
    *[
        ([one], 1)
        for one in (
            request(headers=b""),
            request(headers=HOST + HOST),
            request(b"GET http://localhost/a HTTP/1.1"),
            request(b"GET /a HTTP/1.0"),
            request(b"GET  /a HTTP/1.1"),
            request(b"GET /a\tb HTTP/1.1"),
            request(b"get /a HTTP/1.1"),
            request(b"HEAD /a HTTP/1.1"),
            request(b"OPTIONS * HTTP/1.1"),
            request(headers=HOST + b"X : 1\r\n"),
            request(headers=HOST + b"X: 1\r\n folded\r\n"),
            request(headers=HOST + b"X: \x00\r\n"),
            request(headers=HOST + b"X: \xe9\r\n"),
            request(headers=HOST + b"X\xe9: 1\r\n"),
            request(headers=HOST + b"no colon\r\n"),
            request(headers=HOST + b": no name\r\n"),
            request(headers=HOST + b"X: 1\n\r\n"),
            request(headers=HOST + b"Connection: close\r\n"),
            request(headers=HOST + b"Connection: Upgrade\r\nUpgrade: websocket\r\n"),
            request(headers=HOST + b"Transfer-Encoding: gzip\r\n"),
            post(b"abc", b"3", b"Content-Length: 4\r\n"),
            post(b"abc", b"+3"),
            post(b"abc", b"3, 3"),
            post(b"abc", b"-1"),
            request(b"POST /b HTTP/1.1", HOST + b"Transfer-Encoding: chunked\r\n", b"3\r\nabc\r\n0\r\n\r\n"),
            b"no http\r\n\r\n",
            request(headers=HOST + b"X: " + b"x" * 5000 + b"\r\n"),
        )
    ],
    ([post(b"abcdef")[:-3], b"def"], 1),
    ([request()[:9], request()[9:]], 1),
    ([request() + request(b"GET /2 HTTP/1.1")], 2),
    ([post(b"abc") + post(b"defg") + request()], 3),
    ([b"\r\n" + request()], 1),
]


# A slow answer has begun; and it may end.
came, go_on = threading.Event(), threading.Event()


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Say what came."""
    if scope["type"] == "lifespan":
        return
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            break
    wanted = ("method", "path", "http_version", "root_path", "scheme")
    said: dict[str, Any] = {one: scope[one] for one in wanted}
    said |= {one: repr(scope[one]) for one in ("raw_path", "query_string", "headers")}
    content = json.dumps(said).encode() + body
    path, status = scope["path"], 200
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(content))]
    if path in {"/stream", "/nothing", "/empty"}:
        headers = headers[:1] if path == "/stream" else []
        status = 204 if path == "/nothing" else 200
    if path == "/header":
        headers.append((b"x", b"1" + bytes.fromhex(scope["query_string"].decode()) + b"made: 1"))
    if path == "/slow":
        came.set()
        await asyncio.to_thread(go_on.wait, PATIENCE)
    await send({"type": "http.response.start", "status": status, "headers": headers})
    if scope["query_string"] == b"slow":
        await asyncio.to_thread(go_on.wait, PATIENCE)
    parts = {"/stream": [b"one", b"", b"three"], "/nothing": [], "/empty": [], "/head": [content[:1], content[1:]]}.get(
        path, [content]
    )
    for part in parts:
        await send({"type": "http.response.body", "body": part, "more_body": True})
    await send({"type": "http.response.body", "body": b"", "more_body": False})


@contextmanager
def echoing(db: QueueDB) -> Iterator[tuple[str, int]]:
    running = servers.server(service(db, Settings(closed=False)))
    running.config.app = echo
    with closing(socket.create_server(("127.0.0.1", 0))) as listening:
        thread = threading.Thread(target=running.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield listening.getsockname()
        finally:
            running.should_exit = True
            thread.join(PATIENCE)


def answer(connection: socket.socket, *, body: bool = True) -> bytes:
    """The bytes of one answer; fewer: the connection was closed."""
    got = b""
    with suppress(ConnectionError):
        while b"\r\n\r\n" not in got:
            part = connection.recv(1)
            if not part:
                return got
            got += part
        head = got.lower()
        if b"transfer-encoding: chunked" in head:
            while not got.endswith(b"0\r\n\r\n"):
                got += connection.recv(1)
        elif b"content-length: " in head and body:
            left = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0])
            while left and (part := connection.recv(left)):
                got, left = got + part, left - len(part)
    return got


def talk(address: tuple[str, int], parts: list[bytes], answers: int, *more: bytes) -> list[bytes]:
    """The answers to parts of requests, and then to more requests."""
    with socket.create_connection(address, PATIENCE) as connection:
        for part in parts:
            connection.sendall(part)
        got = [answer(connection, body=not parts[0].startswith(b"HEAD")) for _ in range(answers)]
        for one in more:
            with suppress(ConnectionError):
                connection.sendall(one)
            got.append(answer(connection))
        return got


@pytest.fixture
def address(db: QueueDB) -> Iterator[tuple[str, int]]:
    with echoing(db) as found:
        yield found


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> list[QuickCycle]:
    """What went around h11."""
    found: list[QuickCycle] = []
    plain = QuickCycle.run_asgi

    async def counted(cycle: QuickCycle, app: Any) -> None:
        found.append(cycle)
        await plain(cycle, app)

    monkeypatch.setattr(QuickCycle, "run_asgi", counted)
    return found


def test_usual_requests_go_around_h11_and_are_answered_alike(
    address: tuple[str, int], quick: list[QuickCycle], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [talk(address, [one], 1, one, USUAL[0]) for one in USUAL]
    assert len(quick) == 3 * len(USUAL)
    monkeypatch.setattr(servers, "head_of", lambda _: None)
    for one, answers in zip(USUAL, found, strict=True):
        assert answers == talk(address, [one], 1, one, USUAL[0]), one
    assert len(quick) == 3 * len(USUAL)


def test_other_requests_are_answered_as_by_h11_alone(address: tuple[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Also the one that comes after them on their connection."""
    found = [talk(address, *other, USUAL[0]) for other in OTHER]
    monkeypatch.setattr(servers, "head_of", lambda _: None)
    for other, answers in zip(OTHER, found, strict=True):
        assert answers == talk(address, *other, USUAL[0]), other


def test_a_request_that_comes_before_the_answer_waits_for_it(address: tuple[str, int], quick: list[QuickCycle]) -> None:
    go_on.clear()
    try:
        with socket.create_connection(address, PATIENCE) as connection:
            connection.sendall(request(b"GET /slow HTTP/1.1"))
            assert came.wait(PATIENCE)
            connection.sendall(request(b"GET /next HTTP/1.1"))
            connection.sendall(post(b"abc"))
            go_on.set()
            paths = [json.loads(answer(connection).partition(b"\r\n\r\n")[2].partition(b"}")[0] + b"}")["path"] for _ in range(3)]
    finally:
        go_on.set()
    assert paths == ["/slow", "/next", "/b"]


def test_the_head_of_a_stream_comes_before_its_first_part(address: tuple[str, int]) -> None:
    go_on.clear()
    try:
        with socket.create_connection(address, PATIENCE) as connection:
            connection.sendall(request(b"GET /stream?slow HTTP/1.1"))
            got = b""
            while b"\r\n\r\n" not in got:
                got += connection.recv(1)
            assert not go_on.is_set()
    finally:
        go_on.set()


@pytest.mark.parametrize("line_break", [b"\r\n", b"\n", b"\r", b"\0"])
def test_an_answer_never_has_a_header_that_its_value_has_made(address: tuple[str, int], line_break: bytes) -> None:
    with socket.create_connection(address, PATIENCE) as connection:
        connection.sendall(request(b"GET /header?%b HTTP/1.1" % line_break.hex().encode()))
        assert b"made" not in answer(connection)
