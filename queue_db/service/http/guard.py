"""What every request passes first: limits of size and time, the names of the host, other sites; and what every response carries."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import ip_address
from urllib.parse import unquote_to_bytes, urlsplit, urlunsplit

from fastapi import HTTPException, Request
from starlette.datastructures import MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from queue_db.service.auth import session
from queue_db.service.http import errors, refusals
from queue_db.service.http.requests import HEAD, LOOKING, Service, count
from queue_db.service.live.incidents import CALLBACKS, REQUEST_ID, IncidentType, described

#: What asks for these knows no host name; the answers have no data.
PROBES = frozenset({"/healthz", "/readyz"})

#: Largest body of a login, which nobody has to be allowed to send.
MOST_OF_LOGIN = 4096

#: Largest body of a form, which is read before anybody asks who sends it.
MOST_OF_FORM = 64 * 1024

#: Largest body of a callback, which nobody has to be allowed to send.
MOST_OF_CALLBACK = 64 * 1024

#: A header of requests and answers: one line of a log is found by it, also in those of a proxy.
ID_HEADER = "X-Request-ID"

# Others are not taken from a client: they would stand in log lines.
_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")

_HOST = re.compile(r"(?P<name>\[[0-9a-f:.]+\]|[a-z0-9._-]+)(:[0-9]{1,5})?")

#: Status of a request after which the connection is closed.
UNSAFE = 400

#: Status of the router's redirect from a path with a slash at its end to the one without, or the other way round.
TO_OTHER_SLASH = 307

#: On every response.
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; form-action 'self'; "
        "frame-ancestors 'none'; base-uri 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",  # with no-referrer browsers send "Origin: null" with our own forms
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}

_ID_NAME = ID_HEADER.lower()
_RAW_ID_NAME = _ID_NAME.encode()
_RAW = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]
_OURS = frozenset({_RAW_ID_NAME, *(name for name, _ in _RAW)})


def _ended(scope: Scope) -> Response:
    """The answer to a request that was cancelled at the end of the server. Its thread goes on: a change may still be made."""
    if scope["method"] in LOOKING:
        return errors.plain(503, "the service ends", headers=errors.AGAIN)
    title, detail = "The service ends", "the change may still be made: look before you send it again"
    return errors.problem(503, title, detail, headers=errors.AGAIN, outcome_unknown=True)


class Guard:
    """The outermost part of the application: nothing passes that is too large, too slow, or for another name or site."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self.app = app
        self.service = service
        # Bytes of the bodies of all requests that are being answered.
        self._held = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return
        # Of several headers with one name the first.
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in reversed(scope["headers"])}
        scope = {**scope, REQUEST_ID: _id(headers.get(_ID_NAME, ""))}
        if scope["method"] == "HEAD":
            # Whatever answers GET answers this.
            await self._answer({**scope, "method": "GET", HEAD: True}, headers, receive, _without_body(send))
        else:
            await self._answer(scope, headers, receive, send)

    async def _answer(self, scope: Scope, headers: Mapping[str, str], receive: Receive, send: Send) -> None:
        started = False
        path: str = scope["path"].removeprefix(scope.get("root_path", ""))
        largest = self._largest(path)

        async def sending(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                _complete(message, scope[REQUEST_ID])
            await send(message)

        refusal = self._unsafe(scope, headers) or self._refusal(scope, headers, path, largest)
        if refusal is not None:
            await self._refuse(*refusal, scope)(scope, receive, sending)
            return
        ends = asyncio.get_running_loop().time() + self.service.settings.arrival
        body = _Body(receive, self, largest, scope, ends)
        try:
            await self._pass(path, scope, body.receive, sending)
        except asyncio.CancelledError:
            # When the server ends, requests that take too long are cancelled.
            if not self.service.ending.is_set():
                raise
            if not started:
                await _ended(scope)(scope, receive, sending)
        except refusals.RefusedError as error:
            await refusals.answer(error, self.service, scope)(scope, receive, sending)
        except Exception as error:
            if started:
                errors.report(error, self.service, scope)
                raise
            await errors.answer(error, self.service, scope)(scope, receive, sending)
        finally:
            self._held -= body.size

    def _refuse(self, incident: IncidentType, status: int, detail: str, scope: Scope) -> Response:
        self.service.incidents.record(incident, described(scope))
        if status == UNSAFE:
            return errors.plain(status, detail, headers={"Connection": "close"})
        return errors.for_anybody(Request(scope), errors.plain(status, detail))

    async def _pass(self, path: str, scope: Scope, receive: Receive, send: Send) -> None:
        # "/metrics" counts itself: it also has answers for tokens while they cannot be looked for.
        if (path == "/api" or path.startswith("/api/")) and not self._is_callback(path):
            # Before the path is looked for, and the body is read and parsed.
            await count(Request(scope))
        await self.app(scope, receive, send)

    def hold(self, size: int, scope: Scope) -> None:
        """Count bytes of a body until its request is answered; 503 if there are too many."""
        self._held += size
        if self._held > self.service.settings.max_bodies:
            self.service.incidents.record(IncidentType.TOO_MANY_BODIES, described(scope))
            raise HTTPException(503, "Too many large requests at once", {"Retry-After": "1"})

    def _is_callback(self, path: str) -> bool:
        return self.service.settings.callbacks and path.startswith(CALLBACKS)

    def _largest(self, path: str) -> int:
        most = self.service.settings.max_body
        if self._is_callback(path):
            return min(most, MOST_OF_CALLBACK)
        if path.startswith("/api/"):
            return most
        return min(most, MOST_OF_LOGIN if path == "/login" else MOST_OF_FORM)

    def _unsafe(self, scope: Scope, headers: Mapping[str, str]) -> tuple[IncidentType, int, str] | None:
        """Why a request is too large, or may be read in another way by a proxy; and status and detail of its answer."""
        most = self.service.settings.max_headers
        if sum(len(name) + len(value) for name, value in scope["headers"]) > most:
            return IncidentType.TOO_LARGE, 431, f"The headers are larger than {most:,} bytes"
        if len(scope["path"]) + len(scope["query_string"]) > most:
            return IncidentType.TOO_LARGE, 414, f"The address is longer than {most:,} bytes"
        if "\ufffd" in scope["path"] and not _is_text(scope.get("raw_path") or b""):
            return IncidentType.BAD_REQUEST, UNSAFE, "The address is not UTF-8"
        if "content-length" in headers and "transfer-encoding" in headers:
            # What a proxy takes for the body may be another request to us: nothing more is read of this connection.
            return IncidentType.BAD_REQUEST, UNSAFE, "A request has Content-Length or Transfer-Encoding, not both"
        return None

    def _refusal(self, scope: Scope, headers: Mapping[str, str], path: str, largest: int) -> tuple[IncidentType, int, str] | None:
        """Why a request goes no further, and status and detail of its answer."""
        if not _is_allowed(headers.get("host", ""), self.service.settings.hosts) and path not in PROBES:
            title = "This service does not answer to this host name: its owner allows it with --allow-host"
            return IncidentType.WRONG_HOST, 421, title
        if scope["method"] not in LOOKING and not session.is_own(headers):
            return IncidentType.CROSS_SITE, 403, "A page of another site must not do this"
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length[:20]) > largest:
            return IncidentType.TOO_LARGE, 413, f"The body is larger than {largest:,} bytes"
        return None


def _without_body(send: Send) -> Send:
    async def sending(message: Message) -> None:
        await send({**message, "body": b""} if message["type"] == "http.response.body" else message)

    return sending


def _id(given: str) -> str:
    """The id of a request: the one that its client or a proxy gives, or a new one."""
    # No secret, so no call of the system, in which a thread may take the interpreter.
    return given if _ID.fullmatch(given) else f"{random.getrandbits(64):016x}"


def _complete(message: Message, request_id: str) -> None:
    """Add what every response carries."""
    own = [one for one in message["headers"] if one[0] not in _OURS]
    message["headers"] = [*own, *_RAW, (_RAW_ID_NAME, request_id.encode())]
    if all(name != b"cache-control" for name, _ in own):
        message["headers"].append((b"cache-control", b"no-store"))
    if message["status"] == TO_OTHER_SLASH:
        headers = MutableHeaders(scope=message)
        # On the same host, whatever the proxy is called and speaks.
        parts = urlsplit(headers["Location"])
        headers["Location"] = urlunsplit(("", "", parts.path, parts.query, ""))


def _is_text(raw: bytes) -> bool:
    try:
        unquote_to_bytes(raw).decode()
    except UnicodeDecodeError:
        return False
    return True


@lru_cache(maxsize=64)
def _is_allowed(host: str, allowed: tuple[str, ...]) -> bool:
    """Whether the service answers to this ``Host``. Other names may lead here too, by somebody else's DNS."""
    found = _HOST.fullmatch(host.lower())
    if found is None:
        return False
    if "*" in allowed:
        return True
    name = found["name"].strip("[]")
    if name == "localhost" or name in {one.lower() for one in allowed}:
        return True
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return False


@dataclass(slots=True)
class _Body:
    """The body of a request, up to a size and a time."""

    _receive: Receive
    _guard: Guard
    _largest: int
    _scope: Scope
    _ends: float
    size: int = 0
    _complete: bool = False

    async def receive(self) -> Message:
        """The next part. 413: it is too large; 408: it has not arrived in time; 503: all bodies together are too large."""
        if self._complete:
            # For what asks whether its client is still there, a server that ends is a client that has left.
            return {"type": "http.disconnect"} if self._guard.service.ending.is_set() else await self._receive()
        try:
            async with asyncio.timeout_at(self._ends):
                message = await self._receive()
        except TimeoutError:
            self._guard.service.incidents.record(IncidentType.SLOW_REQUEST, described(self._scope))
            raise HTTPException(408, "The request has not arrived in time") from None
        if message["type"] != "http.request":
            self._complete = True
            return message
        part = len(message.get("body", b""))
        self.size += part
        self._guard.hold(part, self._scope)
        self._complete = not message.get("more_body", False)
        if self.size > self._largest:
            self._guard.service.incidents.record(IncidentType.TOO_LARGE, described(self._scope))
            raise HTTPException(413, f"The body is larger than {self._largest:,} bytes")
        return message
