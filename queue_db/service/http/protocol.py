"""HTTP/1.1 on a connection: llhttp reads it, uvicorn calls the application; here is what this service refuses and cuts off."""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import Any

import httptools
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT, FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from queue_db.service.http.errors import AGAIN, plain
from queue_db.service.http.guard import HEADERS
from queue_db.service.live.incidents import Incidents, IncidentType, described

_INVALID = "Invalid HTTP request received."

# Headers that say where a body ends.
_FRAMING = (b"content-length", b"transfer-encoding")

# Bytes that the parser gets at a time: 150 of the smallest requests.
_SLICE = 4096

# Requests of a connection that wait for the answer before them, until no more are read.
_MOST_WAITING = 100


class InvalidRequestError(Exception):
    """A request that llhttp takes, and this service does not."""


class _Flow(FlowControl):
    """Reads no more while ``full``, whoever wants to."""

    full = False

    def resume_reading(self) -> None:
        if not self.full:
            super().resume_reading()


class PatientProtocol(HttpToolsProtocol):
    """HTTP/1.1 for clients that keep up: a request must have arrived, headers and body, within a time, and what is sent must be
    taken: otherwise the connection is closed. Requests that come before their turn wait; no more is read while there are many.

    :param arrival: seconds.
    :param most: connections at a time; the requests of those beyond it are answered with 503.
    :param longest: bytes of headers, or of anything else without a part of a body, before the request is refused with 400.
    """

    def __init__(self, *args: Any, arrival: float, most: int, longest: int, incidents: Incidents, **options: Any) -> None:
        super().__init__(*args, **options)
        self._arrival = arrival
        self._most = most
        self._longest = longest
        self._incidents = incidents
        # What clients send wrong is an incident.
        self.logger = logging.getLogger("uvicorn.error.queue_db")
        self.logger.setLevel(logging.ERROR)
        self._deadline: asyncio.TimerHandle | None = None
        self._taking: asyncio.TimerHandle | None = None
        self._new = True
        # The request that is being answered; later ones wait in the pipeline.
        self._answered: RequestResponseCycle | None = None
        # What the parser has not got yet, and how much it has got while requests waited.
        self._rest = b""
        self._ahead = 0
        # The headers, and all, of the latest request are there.
        self._headed = self._whole = True
        # Bytes since headers or a part of a body were complete.
        self._unread = 0
        self._progress = False
        # The headers that the parser reads were read before.
        self._again = False
        # No more is read; and 400 is due when the requests before it are answered.
        self._broken = self._due = False

    def _should_upgrade(self) -> bool:
        # Every request can ask for another protocol; it is answered by this one, without a line in the log.
        return False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.flow: _Flow = _Flow(transport)
        # asyncio does this only for sockets that name their protocol. Without it each answer that is written in parts waits
        # for the client's acknowledgement of the first part, which may come 40 ms later.
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if len(self.connections) > self._most:
            self.app = self._refuse
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._answered is not None:
            # It need not be the latest request.
            _end(self._answered)
        for timer in (self._deadline, self._taking):
            if timer is not None:
                timer.cancel()

    # --- what comes ---------------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        self._new = False
        self._rest += data
        self._read()

    def _read(self) -> None:
        """Read what has come, until too many requests wait."""
        self._unset_keepalive_if_required()
        if self._broken:
            self._rest = b""
            return
        self._progress, at = False, 0
        if not self.pipeline:
            self._ahead = 0
        try:
            while at < len(self._rest) and not self._is_full():
                part = self._rest[at : at + _SLICE]
                at += len(part)
                self._feed(part)
                if self.pipeline:
                    self._ahead += len(part)
        except httptools.HttpParserError:
            self.send_400_response(_INVALID)
            return
        self._rest = self._rest[at:]
        self._unread = 0 if self._progress else self._unread + at
        if self._unread > self._longest:
            self.send_400_response(_INVALID)
            return
        self._read_on()
        self._watch()

    def _is_full(self) -> bool:
        return len(self.pipeline) >= _MOST_WAITING or self._ahead >= HIGH_WATER_LIMIT

    def _read_on(self) -> None:
        """Read on while requests wait, unless there are too many: only so it is noticed that the client has gone."""
        before, self.flow.full = self.flow.full, self._is_full()
        if self.flow.full:
            self.flow.pause_reading()
        elif before or self.pipeline:
            self.flow.resume_reading()

    def _feed(self, data: bytes) -> None:
        while True:
            try:
                self.parser.feed_data(data)
            except httptools.HttpParserUpgrade as asked:
                # The parser leaves what follows to the other protocol: here it is the body, and the next request. A new parser
                # gets it, after headers that say where the body ends.
                framing = [b"%b: %b\r\n" % header for header in self.headers if header[0] in _FRAMING]
                self.parser, self._again = httptools.HttpRequestParser(self), True
                self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
                self.parser.feed_data(b"POST / HTTP/1.1\r\n%b\r\n" % b"".join(framing))
                self._again = False
                data = data[asked.args[0] :]
            else:
                return

    def on_message_begin(self) -> None:
        self._headed = self._whole = False
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        # Fields after a body are none of the headers that the application has got before.
        if not self._headed:
            super().on_header(name, value.rstrip(b" \t"))

    def on_headers_complete(self) -> None:
        if not self._again:
            _check(self.parser.get_http_version(), self.parser.get_method(), self.url, self.headers)
            super().on_headers_complete()
        self._headed = self._progress = True

    def on_body(self, body: bytes) -> None:
        self._progress = True
        super().on_body(body)

    def on_message_complete(self) -> None:
        if self.parser.should_upgrade():
            return
        self._whole = self._progress = True
        self._stop_deadline()
        super().on_message_complete()

    # --- what is answered ---------------------------------------------------------------------------------------------

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._answered = cycle
        super()._start_asgi_task(cycle, app)

    @property
    def _busy(self) -> bool:
        """Whether a request that has arrived is being answered."""
        return self._answered is not None and not self._answered.response_complete and not self._answered.more_body

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._due and not self._busy and not self.transport.is_closing():
            self.send_400_response(_INVALID)
        if self.flow.full and not self.transport.is_closing():
            self._read()
        self._watch()

    def send_400_response(self, msg: str) -> None:
        self._broken = True
        self._stop_deadline()
        if self.pipeline and self.pipeline[0][0].more_body:
            # Of the request that is refused the headers were there.
            self.pipeline.popleft()
        if self._busy:
            # The answers come in the order of the requests.
            self._due = True
            # Nothing more is read of it, but it is noticed when the client goes.
            self._rest, self.flow.full = b"", False
            self.flow.resume_reading()
            return
        self._record(IncidentType.BAD_REQUEST)
        # The request whose body is none.
        cycle = self.cycle if self._headed and not self._whole else None
        if cycle is not None:
            _end(cycle)
        if cycle is None or not cycle.response_started:
            answer = plain(400, msg, headers={"Connection": "close", **HEADERS})
            headers = b"".join(b"%b: %b\r\n" % header for header in answer.raw_headers)
            self.transport.write(STATUS_LINE[400] + headers + b"\r\n" + bytes(answer.body))
        self.transport.close()

    async def _refuse(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._incidents.record(IncidentType.TOO_MANY_CONNECTIONS, described(scope))
        headers = {**AGAIN, "Connection": "close"}
        await plain(503, "there are too many connections", headers=headers)(scope, receive, send)

    # --- clients that do not keep up ----------------------------------------------------------------------------------

    def pause_writing(self) -> None:
        super().pause_writing()
        # The client takes nothing of what was sent.
        if self._taking is None:
            self._taking = self.loop.call_later(self._arrival, self._cut_reader)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._taking is not None:
            self._taking.cancel()
            self._taking = None

    def _watch(self) -> None:
        """Set the deadline while a part of a request is missing."""
        missing = not self._busy and not self._broken and (self._new or not self._whole or self._unread > 0)
        if not missing:
            self._stop_deadline()
        elif self._deadline is None:
            # A little after the application, which still can answer a slow body.
            self._deadline = self.loop.call_later(1.2 * self._arrival, self._cut_sender)

    def _stop_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _cut_sender(self) -> None:
        if self.transport.is_closing():
            return
        if not self._new:  # a browser opens connections that it then does not use
            self._record(IncidentType.SLOW_REQUEST)
        self.transport.abort()

    def _cut_reader(self) -> None:
        # A connection that is closing waits for this client, too.
        if not self.transport.is_closing():
            self._record(IncidentType.SLOW_READER)
        self.transport.abort()

    def _record(self, type_: IncidentType) -> None:
        self._incidents.record(type_, f"from {self.client[0] if self.client else 'an unknown address'}")


def _end(cycle: RequestResponseCycle) -> None:
    """Tell the application that nobody waits for this answer."""
    if not cycle.response_complete:
        cycle.disconnected = True
    cycle.message_event.set()


def _check(version: str, method: bytes, target: bytes, headers: list[tuple[bytes, bytes]]) -> None:
    """Refuse what a proxy and this service could read in different ways.

    :raises InvalidRequestError: it is refused.
    """
    hosts, codings = 0, []
    for name, value in headers:
        if name == b"host":
            hosts += 1
        elif name == b"transfer-encoding":
            codings.append(value.lower())
    if version not in {"1.1", "1.0"}:
        raise InvalidRequestError(version)
    if hosts > 1 or (hosts == 0 and version == "1.1"):
        raise InvalidRequestError("Host")
    if codings and (version == "1.0" or codings != [b"chunked"]):
        raise InvalidRequestError("Transfer-Encoding")
    if method == b"CONNECT" or b"#" in target or not (target.startswith(b"/") or (method, target) == (b"OPTIONS", b"*")):
        raise InvalidRequestError("target")
