"""HTTP/1.1 for the requests of programs: those that arrive in one piece, with plain headers, as nearly all do.

They are read with two regular expressions, and their answers written at once, in a third of the time that h11 takes. Whatever is
not exactly like that is left to h11: it decides what is HTTP.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, NamedTuple
from urllib.parse import unquote

from uvicorn.protocols.http.h11_impl import STATUS_PHRASES, RequestResponseCycle

# Longest request line with headers, bytes.
_LONGEST = 4096

_LINE = re.compile(rb"(GET|POST|PUT|PATCH|DELETE) (/[!-~]*) HTTP/1\.1")
_FIELD = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]+):[ \t]*([!-~](?:[\t -~]*[!-~])?)?[ \t]*")
_LENGTH = re.compile(rb"[0-9]{1,12}")

# Headers that change how the rest is read.
_OTHER = frozenset({b"transfer-encoding", b"expect", b"upgrade", b"te", b"trailer", b"http2-settings", b"proxy-connection"})

# Statuses of answers without a body.
_BODILESS = frozenset({204, 304})


class Head(NamedTuple):
    """The request line and the headers of a request."""

    method: str
    path: str
    raw_path: bytes
    query: bytes
    headers: tuple[tuple[bytes, bytes], ...]
    length: int


def head_of(data: bytes) -> tuple[Head, bytes] | None:
    """The head and the body of a request; None: it is for h11."""
    end = data.find(b"\r\n\r\n", 0, _LONGEST)
    if end < 0:
        return None
    head = _head(data[:end])
    body = data[end + 4 :]
    return None if head is None or head.length != len(body) else (head, body)


@lru_cache(maxsize=512)
def _head(lines: bytes) -> Head | None:
    first, *fields = lines.split(b"\r\n")
    line = _LINE.fullmatch(first)
    if line is None:
        return None
    headers: list[tuple[bytes, bytes]] = []
    for field in fields:
        found = _FIELD.fullmatch(field)
        if found is None:
            return None
        headers.append((found[1].lower(), found[2] or b""))
    names = [name for name, _ in headers]
    given = dict(headers)
    length = given.get(b"content-length", b"0")
    if (
        names.count(b"host") != 1
        or names.count(b"content-length") > 1
        or names.count(b"connection") > 1
        or given.get(b"connection", b"keep-alive").lower() != b"keep-alive"
        or not _OTHER.isdisjoint(names)
        or not _LENGTH.fullmatch(length)
    ):
        return None
    raw_path, _, query = line[2].partition(b"?")
    return Head(line[1].decode(), unquote(raw_path.decode()), raw_path, query, tuple(headers), int(length))


class QuickCycle(RequestResponseCycle):
    """A request, and its answer: written without h11, whose state stays as between two requests."""

    _head = b""
    _chunked = False
    _closes = False
    # Bytes of the body that the headers promise.
    _left = 0

    async def send(self, message: Any) -> None:
        """A message of the application."""
        if self.flow.write_paused and not self.disconnected:
            await self.flow.drain()
        if self.disconnected:
            return
        if self.response_complete:
            raise RuntimeError(f"{message['type']} after the end of the answer")
        if not self.response_started:
            self._start(message)
            return
        more = message.get("more_body", False)
        body = self._framed(message.get("body", b""), more=more)
        data, self._head = self._head + body, b""
        if data:
            self.transport.write(data)
        if not more:
            self.response_complete = True
            self.message_event.set()
            if self._closes or not self.keep_alive:
                self.transport.close()
            self.on_response()

    def _framed(self, body: bytes, *, more: bool) -> bytes:
        """A part of the body as it is sent.

        :raises RuntimeError: the body is longer or shorter than its headers say.
        """
        if self._chunked:
            chunk = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
            return chunk if more else chunk + b"0\r\n\r\n"
        self._left -= len(body)
        if self._left < 0 or (self._left and not more):
            self.transport.close()
            raise RuntimeError("the body has not the length that its headers say")
        return body

    def _start(self, message: Any) -> None:
        """Keep the head of the answer until its first bytes are there, or send that of a stream."""
        if message["type"] != "http.response.start":
            raise RuntimeError(f"{message['type']} before the start of the answer")
        self.response_started = True
        status, headers = message["status"], [*self.default_headers, *message.get("headers", ())]
        names = {name.lower(): value for name, value in headers}
        self._closes = names.get(b"connection", b"").lower() == b"close"
        self._chunked = b"content-length" not in names and status not in _BODILESS
        if self._chunked:
            headers.append((b"Transfer-Encoding", b"chunked"))
        self._left = 0 if status in _BODILESS else int(names.get(b"content-length", b"0"))
        lines = [b"HTTP/1.1 %d %b" % (status, STATUS_PHRASES[status]), *(b"%b: %b" % header for header in headers), b"", b""]
        head = b"\r\n".join(lines)
        if head.count(b"\r") != len(lines) - 1 or head.count(b"\n") != len(lines) - 1 or b"\0" in head:
            raise RuntimeError("a header of the answer has a line break")
        if self._chunked:
            # What comes may come later.
            self.transport.write(head)
        else:
            self._head = head
