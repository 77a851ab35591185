"""A small reverse proxy: one request for each connection, passed to the next of its upstreams."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import cycle
from socketserver import BaseRequestHandler, ThreadingTCPServer
from typing import Any
from urllib.parse import urlsplit

from tests.patience import PATIENCE


class _Proxy(ThreadingTCPServer):
    daemon_threads = True

    def __init__(self, upstreams: Sequence[str], cut: str, headers: dict[str, str]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.upstreams = cycle(upstreams)
        self.cut = cut
        self.headers = headers

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client has gone away."""


class _Handler(BaseRequestHandler):
    server: _Proxy

    def handle(self) -> None:
        data = b""
        while b"\r\n\r\n" not in data:
            part = self.request.recv(65536)
            if not part:
                return
            data += part
        head, _, rest = data.partition(b"\r\n\r\n")
        line, *lines = head.decode("latin-1").split("\r\n")
        method, path, version = line.split(" ")
        added = [f"{name}: {value}" for name, value in self.server.headers.items()]
        kept = [one for one in lines if not one.lower().startswith("connection:")]
        path = path.removeprefix(self.server.cut) or "/"
        sent = "\r\n".join([f"{method} {path} {version}", *kept, *added, "Connection: close"])
        to = urlsplit(next(self.server.upstreams))
        assert to.hostname
        assert to.port
        with socket.create_connection((to.hostname, to.port), PATIENCE) as upstream:
            upstream.sendall(sent.encode("latin-1") + b"\r\n\r\n" + rest)
            threading.Thread(target=_pipe, args=(self.request, upstream), daemon=True).start()
            _pipe(upstream, self.request)


def _pipe(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while part := source.recv(65536):
            target.sendall(part)


@contextmanager
def proxying(*upstreams: str, cut: str = "", **headers: str) -> Iterator[str]:
    """Run a proxy; its URL.

    :param cut: the prefix that it cuts off the paths.
    :param headers: what it adds to each request, ``_`` for ``-``.
    """
    with _Proxy(upstreams, cut, {name.replace("_", "-"): value for name, value in headers.items()}) as proxy:
        thread = threading.Thread(target=proxy.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{proxy.server_address[1]}"
        finally:
            proxy.shutdown()
            thread.join(PATIENCE)
