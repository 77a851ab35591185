"""The web server that runs the application."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import h11
import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

#: Most connections at a time; more are answered with 503.
MOST_CONNECTIONS = 4000


class PatientProtocol(H11Protocol):
    """HTTP/1.1, and a request must have arrived, headers and body, within a time: otherwise the connection is closed.

    :param arrival: seconds.
    """

    def __init__(self, *args: Any, arrival: float, **options: Any) -> None:
        super().__init__(*args, **options)
        self._arrival = arrival
        self._deadline: asyncio.TimerHandle | None = None
        self._new = True

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
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
        if self._deadline is not None:
            self._deadline.cancel()

    def _watch(self) -> None:
        """Set the deadline while a part of a request is missing."""
        state = self.conn.their_state
        missing = state is h11.SEND_BODY or (state is h11.IDLE and (self._new or bool(self.conn.trailing_data[0])))
        if missing and self._deadline is None:
            # A little after the application, which still can answer a slow body.
            self._deadline = self.loop.call_later(self._arrival + 1, self._cut)
        elif not missing and self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _cut(self) -> None:
        if not self.transport.is_closing():
            self.transport.abort()


def server(app: FastAPI, host: str = "127.0.0.1", port: int = 8321, *, most_connections: int = MOST_CONNECTIONS) -> uvicorn.Server:
    """A server for the application; ``run()`` serves until SIGINT or SIGTERM.

    :param port: 0: a free one.
    :param most_connections: more are answered with 503.
    """
    settings = app.state.service.settings
    protocol: Any = partial(PatientProtocol, arrival=settings.arrival)
    return uvicorn.Server(
        uvicorn.Config(
            app,
            host=host,
            port=port,
            http=protocol,
            ws="none",
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            h11_max_incomplete_event_size=settings.max_headers,
            limit_concurrency=most_connections,
            timeout_keep_alive=30,
            timeout_graceful_shutdown=10,
        )
    )
