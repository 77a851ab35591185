"""HTTP on a connection: what is read, in which order it is answered, and what is refused."""

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
from tests.patience import PATIENCE, wait_for

pytestmark = pytest.mark.parametrize("kind", ["sqlite"], scope="session")

HOST = b"Host: localhost\r\n"


def request(line: bytes = b"GET /a HTTP/1.1", headers: bytes = HOST, body: bytes = b"") -> bytes:
    return line + b"\r\n" + headers + b"\r\n" + body


def post(body: bytes, length: bytes | None = None, more: bytes = b"") -> bytes:
    size = b"%d" % len(body) if length is None else length
    return request(b"POST /b HTTP/1.1", HOST + b"Content-Length: " + size + b"\r\n" + more, body)


CHUNKED = b"Transfer-Encoding: chunked\r\n"


def chunks(body: bytes, coding: bytes = CHUNKED) -> bytes:
    return request(b"POST /b HTTP/1.1", HOST + coding, body)


#: Requests that proxies and servers have read in different ways, or that are none; each is refused, by llhttp or by the service.
REFUSED: dict[str, bytes] = {
    "two lengths": post(b"abc", b"3", b"Content-Length: 4\r\n"),
    "the same length twice": post(b"abc", b"3", b"Content-Length: 3\r\n"),
    "a list of lengths": post(b"abc", b"3, 3"),
    "a length with a sign": post(b"abc", b"+3"),
    "a negative length": post(b"abc", b"-1"),
    "an empty length": post(b"", b""),
    "a length beyond 64 bits": post(b"", b"9" * 21),
    "a length and chunks": post(b"0\r\n\r\n", b"5", CHUNKED),
    "chunks and a length": chunks(b"0\r\n\r\n", CHUNKED + b"Content-Length: 5\r\n"),
    "chunks twice": chunks(b"0\r\n\r\n", CHUNKED + CHUNKED),
    "chunks of HTTP/1.0": request(b"POST /b HTTP/1.0", HOST + CHUNKED, b"0\r\n\r\n"),
    "another coding": chunks(b"", b"Transfer-Encoding: gzip\r\n"),
    "another coding in chunks": chunks(b"0\r\n\r\n", b"Transfer-Encoding: gzip, chunked\r\n"),
    "no coding in words": chunks(b"", b"Transfer-Encoding: identity\r\n"),
    "another coding in a header before": chunks(b"0\r\n\r\n", b"Transfer-Encoding: gzip\r\n" + CHUNKED),
    "an empty coding": chunks(b"0\r\n\r\n", b"Transfer-Encoding:\r\n"),
    "a coding with a vertical tab": chunks(b"0\r\n\r\n", b"Transfer-Encoding: \x0bchunked\r\n"),
    "a chunk of a hexadecimal prefix": chunks(b"0x3\r\nabc\r\n0\r\n\r\n"),
    "a chunk of a negative size": chunks(b"-3\r\nabc\r\n0\r\n\r\n"),
    "a chunk beyond 64 bits": chunks(b"f" * 17 + b"\r\nabc\r\n0\r\n\r\n"),
    "a chunk longer than its size": chunks(b"2\r\nabc\r\n0\r\n\r\n"),
    "chunks with bare line feeds": chunks(b"3\nabc\n0\n\n"),
    "a length after the chunks": chunks(b"0\r\nContent-Length: 5\r\n\r\n"),
    "no host": request(headers=b""),
    "two hosts": request(headers=HOST + b"Host: elsewhere\r\n"),
    "the same host twice": request(headers=HOST + HOST),
    "two hosts of HTTP/1.0": request(b"GET /a HTTP/1.0", HOST + HOST),
    "a space before the colon": request(headers=HOST + b"X : 1\r\n"),
    "a folded header": request(headers=HOST + b"X: 1\r\n folded\r\n"),
    "a folded first header": request(headers=b" " + HOST),
    "a name that is no token": request(headers=HOST + b"X(: 1\r\n"),
    "a name beyond ASCII": request(headers=HOST + b"X\xe9: 1\r\n"),
    "no name": request(headers=HOST + b": 1\r\n"),
    "no colon": request(headers=HOST + b"no colon\r\n"),
    "a null": request(headers=HOST + b"X: \x00\r\n"),
    "a control character": request(headers=HOST + b"X: \x01\r\n"),
    "a bare carriage return": request(headers=HOST + b"X: 1\rY: 2\r\n"),
    "a bare line feed": request(headers=HOST + b"X: 1\nY: 2\r\n"),
    "only line feeds": request().replace(b"\r\n", b"\n"),
    "a line feed at the end": request()[:-2] + b"\n",
    "a space after the version": request(b"GET /a HTTP/1.1 "),
    "a tab": request(b"GET\t/a HTTP/1.1"),
    "a small method": request(b"get /a HTTP/1.1"),
    "an unknown method": request(b"NONE /a HTTP/1.1"),
    "a tunnel": request(b"CONNECT localhost:80 HTTP/1.1"),
    "a tunnel to a path": request(b"CONNECT /a HTTP/1.1"),
    "the address of a proxy": request(b"GET http://localhost/a HTTP/1.1"),
    "an address without a path": request(b"GET http://localhost HTTP/1.1"),
    "a path without a slash": request(b"GET a HTTP/1.1"),
    "a star": request(b"GET * HTTP/1.1"),
    "a fragment": request(b"GET /a#b?c HTTP/1.1"),
    "a path beyond ASCII": request(b"GET /\xe9 HTTP/1.1"),
    "a null in the path": request(b"GET /\x00 HTTP/1.1"),
    "no version": request(b"GET /a"),
    "HTTP/0.9": request(b"GET /a HTTP/0.9"),
    "HTTP/2": request(b"GET /a HTTP/2.0"),
    "the preface of HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "an answer": b"HTTP/1.1 200 OK\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01",
}


def upgrade(line: bytes, more: bytes = b"", body: bytes = b"") -> bytes:
    """As the HTTP client of Java asks on each connection."""
    return request(line, HOST + b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAE\r\n" + more, body)


_GET = {"method": "GET", "path": "/a", "body": ""}
_POST = {"method": "POST", "path": "/b", "body": "abc"}
_LENGTH = b"Content-Length: 3\r\n"

#: What is sent, in parts, and what the application gets.
TAKEN: dict[str, tuple[list[bytes], list[dict[str, Any]]]] = {
    "a request": ([request()], [_GET]),
    "a body": ([post(b"abc")], [_POST]),
    "an empty body": ([post(b"")], [{**_POST, "body": ""}]),
    "a long body": ([post(b"x" * 300_000)], [{**_POST, "body": "x" * 300_000}]),
    "a quoted path": (
        [request(b"GET /a%20b%2Fc?x=1?&y=%20 HTTP/1.1")],
        [{**_GET, "path": "/a b/c", "raw_path": "/a%20b%2Fc", "query_string": "x=1?&y=%20"}],
    ),
    "spaces around a value": (
        [request(headers=HOST + b"X-Empty:\r\nX: \ta \t b\t \r\nX: \xe9 \r\n")],
        [{**_GET, "headers": [["host", "localhost"], ["x-empty", ""], ["x", "a \t b"], ["x", "\xe9"]]}],
    ),
    "a star": ([request(b"OPTIONS * HTTP/1.1")], [{"method": "OPTIONS", "path": "*"}]),
    "an empty line before": ([b"\r\n" + request()], [_GET]),
    "byte by byte": ([bytes([one]) for one in post(b"abc")], [_POST]),
    "chunks": ([chunks(b"1;x=y\r\na\r\n2\r\nbc\r\n0\r\n\r\n")], [_POST]),
    "headers after the chunks": (
        [chunks(b"3\r\nabc\r\n0\r\nAuthorization: x\r\n\r\n") + request()],
        [{**_POST, "headers": [["host", "localhost"], ["transfer-encoding", "chunked"]]}, _GET],
    ),
    "the next in the same part": ([post(b"abc") + request() + post(b"abc")], [_POST, _GET, _POST]),
    "WebSocket": ([request(headers=HOST + b"Connection: Upgrade\r\nUpgrade: websocket\r\n") + request()], [_GET, _GET]),
    "HTTP/2 with a body": ([upgrade(b"POST /b HTTP/1.1", _LENGTH, b"abc") + request()], [_POST, _GET]),
    "HTTP/2 with chunks": ([upgrade(b"POST /b HTTP/1.1", CHUNKED, b"3\r\nabc\r\n0\r\n\r\n") + request()], [_POST, _GET]),
    "HTTP/2 often": ([upgrade(b"GET /a HTTP/1.1") * 100], [_GET] * 100),
}


# A slow answer has begun; and it may end.
came, go_on = threading.Event(), threading.Event()
# The paths for which the application was called.
asked: list[str] = []
# A client has gone.
left = threading.Event()


async def body_of(receive: Receive) -> bytes | None:
    """The body; None: its client has gone."""
    body: bytes = b""
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            left.set()
            return None
        body += bytes(message.get("body", b""))
        if not message.get("more_body"):
            return body


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Say what came."""
    if scope["type"] == "lifespan":
        return
    asked.append(scope["path"])
    body = b"" if scope["path"] == "/early" else await body_of(receive)
    if body is None:
        return
    found: dict[str, Any] = {one: scope[one] for one in ("method", "path", "http_version", "scheme")}
    found |= {one: scope[one].decode() for one in ("raw_path", "query_string")}
    found |= {"headers": [[one.decode("latin-1") for one in header] for header in scope["headers"]], "body": body.decode()}
    content = json.dumps(found).encode()
    path, status = scope["path"], 200
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(content))]
    if path in {"/stream", "/nothing", "/empty"}:
        headers = headers[:1] if path == "/stream" else []
        status = 204 if path == "/nothing" else 200
    if path == "/header":
        headers.append((b"x", b"1" + bytes.fromhex(scope["query_string"].decode()) + b"made: 1"))
    if path == "/wait":
        came.set()
        assert (await receive())["type"] == "http.disconnect"
        left.set()
        return
    if path == "/slow":
        came.set()
        await asyncio.to_thread(go_on.wait, PATIENCE)
    await send({"type": "http.response.start", "status": status, "headers": headers})
    if scope["query_string"] == b"slow":
        await asyncio.to_thread(go_on.wait, PATIENCE)
    parts = {"/stream": [b"one", b"", b"three"], "/nothing": [], "/empty": [], "/parts": [content[:1], content[1:]]}.get(
        path, [content]
    )
    for part in parts:
        await send({"type": "http.response.body", "body": part, "more_body": True})
    await send({"type": "http.response.body", "body": b"", "more_body": False})


@pytest.fixture
def running(db: QueueDB) -> servers.Server:
    made = servers.server(service(db, Settings(closed=False)))
    made.config.app = echo
    return made


@contextmanager
def echoing(running: servers.Server) -> Iterator[tuple[str, int]]:
    with closing(socket.create_server(("127.0.0.1", 0))) as listening:
        thread = threading.Thread(target=running.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield listening.getsockname()
        finally:
            running.should_exit = True
            thread.join(PATIENCE)


def answer(connection: socket.socket) -> bytes:
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
        elif b"content-length: " in head:
            left = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0])
            while left and (part := connection.recv(left)):
                got, left = got + part, left - len(part)
    return got


@pytest.fixture
def address(running: servers.Server) -> Iterator[tuple[str, int]]:
    with echoing(running) as found:
        yield found


def said(connection: socket.socket) -> dict[str, Any]:
    """What the application got."""
    head, _, body = answer(connection).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 "), head
    found: dict[str, Any] = json.loads(body)
    return found


def rest(connection: socket.socket) -> bytes:
    """What comes until the connection ends."""
    got = b""
    with suppress(ConnectionError):
        while part := connection.recv(1 << 16):
            got += part
    return got


@pytest.mark.parametrize("what", REFUSED)
def test_a_request_that_can_be_read_in_two_ways_is_refused(address: tuple[str, int], what: str) -> None:
    """And nothing that follows it is read."""
    with socket.create_connection(address, PATIENCE) as connection:
        connection.sendall(REFUSED[what] + request())
        got = rest(connection)
    assert got.startswith(b"HTTP/1.1 400 Bad Request\r\n"), got
    assert got.count(b"HTTP/1.1 ") == 1
    assert b"application/problem+json" in got
    assert b"x-content-type-options: nosniff" in got.lower()


@pytest.mark.parametrize("what", TAKEN)
def test_the_application_gets_what_was_sent(address: tuple[str, int], what: str) -> None:
    """Also the request that comes after it on its connection."""
    parts, wanted = TAKEN[what]
    with socket.create_connection(address, PATIENCE) as connection:
        for part in parts:
            connection.sendall(part)
        for one in wanted:
            found = said(connection)
            assert one == {name: found[name] for name in one}
        connection.sendall(request())
        assert said(connection)["path"] == "/a"


@pytest.mark.parametrize("path", ["/nothing", "/empty", "/stream", "/parts"])
def test_an_answer_has_an_end(address: tuple[str, int], path: str) -> None:
    with socket.create_connection(address, PATIENCE) as connection:
        connection.sendall(request(b"GET %b HTTP/1.1" % path.encode()))
        assert answer(connection).startswith(b"HTTP/1.1 2")
        connection.sendall(request())
        assert said(connection)["path"] == "/a"


@pytest.mark.parametrize(
    ("start", "more"),
    [
        (request()[:-2] + b"X: ", b"x" * 1000),
        (request()[:-2], b"X: 1\r\n" * 100),
        (b"", b"\r\n" * 100),
        (chunks(b"3;"), b"x" * 1000),
        (chunks(b"0\r\nX: "), b"x" * 1000),
        (chunks(b"0\r\n"), b"X: 1\r\n" * 100),
    ],
    ids=["value", "headers", "lines", "extension", "value after chunks", "headers after chunks"],
)
def test_nothing_is_endless(address: tuple[str, int], start: bytes, more: bytes) -> None:
    """The service cuts it off, whatever it is, before it has taken much of it."""
    sent = 0
    with socket.create_connection(address, PATIENCE) as connection, suppress(ConnectionError):
        connection.sendall(start)
        while sent < 30_000_000:
            connection.sendall(more)
            sent += len(more)
    assert sent < 30_000_000


def test_a_request_that_comes_before_the_answer_waits_for_it(address: tuple[str, int]) -> None:
    go_on.clear()
    came.clear()
    try:
        with socket.create_connection(address, PATIENCE) as connection:
            connection.sendall(request(b"GET /slow HTTP/1.1"))
            assert came.wait(PATIENCE)
            connection.sendall(request(b"GET /next HTTP/1.1"))
            connection.sendall(post(b"abc"))
            go_on.set()
            paths = [said(connection)["path"] for _ in range(3)]
    finally:
        go_on.set()
    assert paths == ["/slow", "/next", "/b"]


@pytest.mark.parametrize("last", [request(headers=b""), chunks(b"none\r\n")], ids=["headers", "body"])
def test_what_is_no_request_is_refused_after_the_answers_before_it(address: tuple[str, int], last: bytes) -> None:
    go_on.clear()
    came.clear()
    asked.clear()
    try:
        with socket.create_connection(address, PATIENCE) as connection:
            connection.sendall(request(b"GET /slow HTTP/1.1") + request() + last)
            assert came.wait(PATIENCE)
            go_on.set()
            assert [said(connection)["path"] for _ in range(2)] == ["/slow", "/a"]
            got = rest(connection)
    finally:
        go_on.set()
    assert got.startswith(b"HTTP/1.1 400 ")
    assert asked == ["/slow", "/a"]
    assert got.count(b"HTTP/1.1 ") == 1


def test_a_body_comes_late_after_the_headers_that_ask_for_another_protocol(address: tuple[str, int]) -> None:
    asked.clear()
    with socket.create_connection(address, PATIENCE) as connection:
        connection.sendall(upgrade(b"POST /b HTTP/1.1", _LENGTH, b"a"))
        wait_for(lambda: asked)
        connection.sendall(b"bc" + request())
        assert [said(connection)["body"] for _ in range(2)] == ["abc", ""]


def test_a_body_that_is_none_ends_the_request(address: tuple[str, int]) -> None:
    left.clear()
    with socket.create_connection(address, PATIENCE) as connection:
        connection.sendall(chunks(b"3\r\nabc\r\n"))
        connection.sendall(b"none\r\n")
        assert rest(connection).startswith(b"HTTP/1.1 400 ")
    assert left.wait(PATIENCE)


def test_a_body_that_is_none_after_its_answer_has_no_second_answer(address: tuple[str, int]) -> None:
    with socket.create_connection(address, PATIENCE) as connection:
        connection.sendall(request(b"POST /early HTTP/1.1", HOST + CHUNKED))
        assert said(connection)["path"] == "/early"
        connection.sendall(b"none\r\n")
        assert rest(connection) == b""


def test_who_leaves_is_noticed_also_with_a_request_behind(address: tuple[str, int]) -> None:
    left.clear()
    came.clear()
    with socket.create_connection(address, PATIENCE) as connection:
        connection.sendall(request(b"GET /wait HTTP/1.1") + request())
        assert came.wait(PATIENCE)
    assert left.wait(PATIENCE)


@pytest.mark.parametrize("late", [request(), request() * 3], ids=["one", "three"])
def test_who_leaves_is_noticed_also_with_a_request_that_has_come_meanwhile(address: tuple[str, int], late: bytes) -> None:
    left.clear()
    came.clear()
    with socket.create_connection(address, PATIENCE) as connection:
        connection.sendall(request(b"GET /wait HTTP/1.1"))
        assert came.wait(PATIENCE)
        connection.sendall(late)
    assert left.wait(PATIENCE)


def test_of_many_requests_at_once_few_are_read_before_their_turn(running: servers.Server, address: tuple[str, int]) -> None:
    """And all are answered."""
    go_on.clear()
    came.clear()
    last = request(b"GET /last HTTP/1.1", HOST + b"Connection: close\r\n")
    waiting: list[int] = []
    try:
        with socket.create_connection(address, PATIENCE) as connection:
            connection.sendall(request(b"GET /slow HTTP/1.1") + request() * 3000 + last)
            assert came.wait(PATIENCE)
            (protocol,) = running.server_state.connections
            waiting.append(len(protocol.pipeline))
            go_on.set()
            got = b""
            while part := connection.recv(1 << 16):
                got += part
                waiting.append(len(protocol.pipeline))
    finally:
        go_on.set()
    assert got.count(b"HTTP/1.1 200 ") == 3002
    assert b"/last" in got[-500:]
    assert max(waiting) < 300


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
