"""The web server that runs the application."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import h11
import uvicorn
from fastapi import FastAPI
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from queue_db.service.http.errors import AGAIN, plain
from queue_db.service.http.guard import HEADERS
from queue_db.service.http.proxies import TRUSTED, Prefix
from queue_db.service.http.quick_http import Head, QuickCycle, head_of
from queue_db.service.live.incidents import Incidents, IncidentType, described
from queue_db.worker.signals import available

#: Most connections at a time; more are answered with 503.
MOST_CONNECTIONS = 4000

#: Connections that wait until they are taken.
BACKLOG = 2048

# New objects before a collection, and collections of each generation before one of the next.
_COLLECTING = (20_000, 10, 20)


class PatientProtocol(H11Protocol):
    """HTTP/1.1 for clients that keep up: a request must have arrived, headers and body, within a time, and what is sent must be
    taken: otherwise the connection is closed.

    :param arrival: seconds.
    :param most: connections at a time; the requests of those beyond it are answered with 503.
    """

    def __init__(self, *args: Any, arrival: float, most: int, incidents: Incidents, **options: Any) -> None:
        super().__init__(*args, **options)
        self._arrival = arrival
        self._most = most
        self._incidents = incidents
        # What clients send wrong is an incident.
        self.logger = logging.getLogger("uvicorn.error.queue_db")
        self.logger.setLevel(logging.ERROR)
        self._deadline: asyncio.TimerHandle | None = None
        self._taking: asyncio.TimerHandle | None = None
        self._new = True
        # A request that h11 does not know is being answered; what has come since.
        self._answering = False
        self._early = b""

    def _should_upgrade(self) -> bool:
        # Every request can ask for another protocol; it is answered by this one, without a line in the log.
        return False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        # asyncio does this only for sockets that name their protocol. Without it each answer that is written in parts waits
        # for the client's acknowledgement of the first part, which may come 40 ms later.
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if len(self.connections) > self._most:
            self.app = self._refuse
        self._watch()

    def data_received(self, data: bytes) -> None:
        self._new = False
        if self._answering:
            # The next request, before this one is answered.
            self._early += data
            self.flow.pause_reading()
            return
        if self.conn.our_state is h11.IDLE and self.conn.their_state is h11.IDLE and not self.conn.trailing_data[0]:
            found = head_of(data)
            if found is not None:
                self._answer(*found)
                self._watch()
                return
        super().data_received(data)
        self._watch()

    def _answer(self, head: Head, body: bytes) -> None:
        """Answer a request that h11 need not see."""
        self._unset_keepalive_if_required()
        self._answering = True
        self.scope = {
            "type": "http",
            "asgi": {"version": self.asgi_version, "spec_version": "2.3"},
            "http_version": "1.1",
            "server": self.server,
            "client": self.client,
            "scheme": self.scheme or "http",
            "method": head.method,
            "root_path": self.root_path,
            "path": self.root_path + head.path,
            "raw_path": self.root_path.encode("ascii") + head.raw_path,
            "query_string": head.query,
            "headers": [*head.headers],
            "state": self.app_state.copy(),
        }
        self.cycle = QuickCycle(
            scope=self.scope,
            conn=self.conn,
            transport=self.transport,
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=False,
            default_headers=self.server_state.default_headers,
            message_event=asyncio.Event(),
            on_response=self.on_response_complete,
        )
        self.cycle.body += body
        self.cycle.more_body = False
        self.cycle.message_event.set()
        task = self.loop.create_task(self.cycle.run_asgi(self.app))
        task.add_done_callback(self.tasks.discard)
        self.tasks.add(task)

    def on_response_complete(self) -> None:
        self._answering = False
        super().on_response_complete()
        if self._early and not self.transport.is_closing():
            early, self._early = self._early, b""
            self.data_received(early)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        for timer in (self._deadline, self._taking):
            if timer is not None:
                timer.cancel()

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
        state = self.conn.their_state
        missing = state is h11.SEND_BODY or (state is h11.IDLE and (self._new or bool(self.conn.trailing_data[0])))
        if missing and self._deadline is None:
            # A little after the application, which still can answer a slow body.
            self._deadline = self.loop.call_later(1.2 * self._arrival, self._cut_sender)
        elif not missing and self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def send_400_response(self, msg: str) -> None:
        self._record(IncidentType.BAD_REQUEST)
        answer = plain(400, msg, headers={"Connection": "close", **HEADERS})
        response = h11.Response(status_code=400, headers=answer.raw_headers, reason=b"Bad Request")
        for event in (response, h11.Data(data=bytes(answer.body)), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    async def _refuse(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._incidents.record(IncidentType.TOO_MANY_CONNECTIONS, described(scope))
        headers = {**AGAIN, "Connection": "close"}
        await plain(503, "there are too many connections", headers=headers)(scope, receive, send)

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


class Server(uvicorn.Server):
    """A web server that ends at SIGINT and SIGTERM when its requests are answered, and returns from ``run()``."""

    def __init__(self, app: FastAPI, config: uvicorn.Config, signals: Sequence[str]) -> None:
        super().__init__(config)
        self._service = app.state.service
        self._signals = available(signals)
        #: Called when it serves.
        self.on_start: Callable[[], object] = lambda: None

    @property
    def interrupted(self) -> bool:
        """Whether it was ended by Ctrl-C."""
        return signal.SIGINT in self._captured_signals

    @property
    def ended_by(self) -> str | None:
        """The signal that ended it; None: there was none."""
        return signal.Signals(self._captured_signals[0]).name if self._captured_signals else None

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {one: signal.signal(one, self.handle_exit) for one in self._signals}
        try:
            yield
        finally:
            for one, handler in before.items():
                signal.signal(one, handler)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self.on_start()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        # Requests that wait for something end now.
        self._service.ending.set()
        await super().shutdown(sockets)


def collect_less() -> None:
    """Let the garbage collector of this process, which only serves, do less: by default it takes a quarter of the time of claims.

    It walks no longer through what the modules and the application have made, and comes after more new objects.
    """
    gc.freeze()
    gc.set_threshold(*_COLLECTING)


def server(
    app: FastAPI,
    host: str = "127.0.0.1",
    port: int = 8321,
    *,
    most_connections: int = MOST_CONNECTIONS,
    root_path: str = "",
    trusted: Sequence[str] = TRUSTED,
    at_once: int = BACKLOG,
    signals: Sequence[str] = ("SIGINT", "SIGTERM"),
) -> Server:
    """A server for the application; ``run()`` serves until SIGINT or SIGTERM.

    :param port: 0: a free one.
    :param most_connections: more are answered with 503.
    :param root_path: the path under which a proxy shows the service.
    :param at_once: most connections that are taken at a time, where several processes listen on one socket.
    :param signals: those that end it.
    :param trusted: addresses and networks of proxies whose X-Forwarded-Proto and X-Forwarded-For count.
    """
    settings = app.state.service.settings
    incidents = app.state.service.incidents
    protocol: Any = partial(PatientProtocol, arrival=settings.arrival, most=most_connections, incidents=incidents)
    return Server(
        app,
        uvicorn.Config(
            Prefix(app, root_path) if root_path else app,
            host=host,
            port=port,
            http=protocol,
            ws="none",
            proxy_headers=bool(trusted),
            forwarded_allow_ips=list(trusted),
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            h11_max_incomplete_event_size=settings.max_headers,
            timeout_keep_alive=30,
            timeout_graceful_shutdown=10,
            backlog=at_once,
        ),
        signals,
    )
