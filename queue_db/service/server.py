"""The web server that runs the application."""

from __future__ import annotations

import asyncio
import gc
import signal
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import h11
import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

from queue_db.service.proxies import TRUSTED, Prefix

#: Most connections at a time; more are answered with 503.
MOST_CONNECTIONS = 4000

# New objects before a collection, and collections of each generation before one of the next.
_COLLECTING = (20_000, 10, 20)


class PatientProtocol(H11Protocol):
    """HTTP/1.1 for clients that keep up: a request must have arrived, headers and body, within a time, and what is sent must be
    taken: otherwise the connection is closed.

    :param arrival: seconds.
    """

    def __init__(self, *args: Any, arrival: float, **options: Any) -> None:
        super().__init__(*args, **options)
        self._arrival = arrival
        self._deadline: asyncio.TimerHandle | None = None
        self._taking: asyncio.TimerHandle | None = None
        self._new = True

    def _should_upgrade(self) -> bool:
        # Every request can ask for another protocol; it is answered by this one, without a line in the log.
        return False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        # asyncio does this only for sockets that name their protocol. Without it each answer that is written in parts waits
        # for the client's acknowledgement of the first part, which may come 40 ms later.
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._watch()

    def data_received(self, data: bytes) -> None:
        self._new = False
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        super().on_response_complete()
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
            self._taking = self.loop.call_later(self._arrival, self._cut)

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
            self._deadline = self.loop.call_later(1.2 * self._arrival, self._cut)
        elif not missing and self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _cut(self) -> None:
        if not self.transport.is_closing():
            self.transport.abort()


class Server(uvicorn.Server):
    """A web server that ends at SIGINT and SIGTERM when its requests are answered, and returns from ``run()``."""

    def __init__(self, app: FastAPI, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._service = app.state.service

    @property
    def interrupted(self) -> bool:
        """Whether it was ended by Ctrl-C."""
        return signal.SIGINT in self._captured_signals

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {one: signal.signal(one, self.handle_exit) for one in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for one, handler in before.items():
                signal.signal(one, handler)

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
) -> Server:
    """A server for the application; ``run()`` serves until SIGINT or SIGTERM.

    :param port: 0: a free one.
    :param most_connections: more are answered with 503.
    :param root_path: the path under which a proxy shows the service.
    :param trusted: addresses and networks of proxies whose X-Forwarded-Proto and X-Forwarded-For count.
    """
    settings = app.state.service.settings
    protocol: Any = partial(PatientProtocol, arrival=settings.arrival)
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
            limit_concurrency=most_connections,
            timeout_keep_alive=30,
            timeout_graceful_shutdown=10,
        ),
    )
