"""The web server that runs the application."""

from __future__ import annotations

import gc
import logging
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import uvicorn
from fastapi import FastAPI

from queue_db.service.http.protocol import PatientProtocol
from queue_db.service.http.proxies import TRUSTED, Prefix
from queue_db.worker.signals import available

log = logging.getLogger("queue_db.service")

#: Most connections at a time; more are answered with 503.
MOST_CONNECTIONS = 4000

#: Connections that wait until they are taken.
BACKLOG = 2048

# Seconds at the end for the requests that are being answered; and for what remains then, until the process ends by force.
_GRACE, _REST = 10, 2

# New objects before a collection, and collections of each generation before one of the next.
_COLLECTING = (20_000, 10, 20)


class Server(uvicorn.Server):
    """A web server that ends at SIGINT and SIGTERM when its requests are answered, and returns from ``run()``."""

    def __init__(self, app: FastAPI, config: uvicorn.Config, signals: Sequence[str]) -> None:
        super().__init__(config)
        self._service = app.state.service
        self._signals = available(signals)
        #: Called when it serves.
        self.on_start: Callable[[], object] = lambda: None
        #: Whether the process ends with it: by force, where threads wait for a database that does not answer.
        self.ends_process = False
        self._forced: threading.Timer | None = None

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

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        try:
            super().run(sockets)
        finally:
            if self._forced is not None:
                self._forced.cancel()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self.on_start()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        # Requests that wait for something end now.
        self._service.ending.set()
        if self.ends_process:
            self._forced = threading.Timer(_GRACE + _REST, _end_process)
            self._forced.daemon = True
            self._forced.start()
        await super().shutdown(sockets)


def _end_process() -> None:
    log.error("the service has not ended within %d s, perhaps the database does not answer: the process ends now", _GRACE + _REST)
    os._exit(1)


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
    limits = {"arrival": settings.arrival, "most": most_connections, "longest": settings.max_headers}
    protocol: Any = partial(PatientProtocol, incidents=incidents, **limits)
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
            timeout_keep_alive=30,
            timeout_graceful_shutdown=_GRACE,
            backlog=at_once,
            # uvloop, if it is installed, is no faster here, and makes of at_once the length of the kernel's queue.
            loop="asyncio",
        ),
        signals,
    )
