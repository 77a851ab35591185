"""A network that breaks on demand: a TCP proxy on loopback between a client and a server.

    with Proxy.before(url) as proxy:
        engine = create_engine(proxy.url(url))
        proxy.cut()              # reset every open connection
        proxy.refuse()           # the port is closed (open connections stay)
        proxy.silence()          # a black hole: connections stay open, no bytes arrive
        proxy.forward()          # end of all disturbances, for new and for silenced connections
        proxy.swallow("COMMIT")  # the next such statement is executed, and its reply is lost
        proxy.drop("COMMIT")     # the next such statement does not arrive; the connection is reset
        proxy.hold("EXECUTE")    # the next such statement arrives late: at proxy.release(); the connection is reset
        proxy.delay = 0.05       # seconds before each message

The statement must be readable in the stream: a client of MySQL or MariaDB connects with `ssl_disabled=True`.
"""

import contextlib
import re
import select
import socket
import struct
import threading
import time
from types import TracebackType
from typing import Self

from sqlalchemy import make_url

TICK = 0.02  # seconds until a change takes effect; data does not wait for it

# The beginning of a message with a statement: PostgreSQL's simple query, MySQL's COM_QUERY; each with its length.
QUERY = re.compile(rb"(?:Q....|...\x00\x03)", re.DOTALL)


class Proxy:
    """Forward connections to one server until a method breaks them."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._lock = threading.Lock()
        self._links: set[_Link] = set()
        self._closed = threading.Event()
        self._refusing = threading.Event()
        self.silent = threading.Event()
        self.armed: bytes | None = None
        #: What becomes of the armed statement: of "swallow", "drop" and "hold".
        self.fate = "swallow"
        self._held: tuple[socket.socket, bytes] | None = None
        self.delay = 0.0
        self._swallowed = threading.Event()
        self._listener: socket.socket | None = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._accepting = threading.Thread(target=self._accept, name=f"proxy {self.port}", daemon=True)
        self._accepting.start()

    @classmethod
    def before(cls, url: str) -> Self:
        """Return a proxy to the server that an SQLAlchemy URL names."""
        parts = make_url(url)
        if parts.host is None or parts.port is None:
            raise ValueError("The URL must name a host and a port.")
        return cls(parts.host, parts.port)

    def url(self, url: str) -> str:
        """Return the same URL through this proxy."""
        return make_url(url).set(host="127.0.0.1", port=self.port).render_as_string(hide_password=False)

    def lead_to(self, url: str) -> None:
        """Forward new connections to another server, as an address that moves at a failover; open ones stay."""
        parts = make_url(url)
        if parts.host is None or parts.port is None:
            raise ValueError("The URL must name a host and a port.")
        self._target = (parts.host, parts.port)

    def forward(self) -> None:
        """End every disturbance: listen, forward bytes, deliver replies."""
        self.armed = None
        self.delay = 0.0
        self.silent.clear()
        with self._lock:
            self._refusing.clear()
            if self._listener is None:
                self._listener = socket.create_server(("127.0.0.1", self.port))

    def cut(self) -> int:
        """Reset every open connection, on both sides; return their number."""
        with self._lock:
            links = list(self._links)
        for link in links:
            link.reset()
        return len(links)

    def refuse(self) -> None:
        """Refuse new connections; the open ones stay."""
        self._refusing.set()
        with self._lock:
            listener, self._listener = self._listener, None
        if listener:
            listener.close()

    def silence(self) -> None:
        """Forward no bytes in either direction. Connections stay open; new ones are accepted and get no reply."""
        self.silent.set()

    def swallow(self, start: str) -> None:
        """Let the next statement that begins with ``start`` reach the server, and reset the connection instead of the reply."""
        self._swallowed.clear()
        self.fate = "swallow"
        self.armed = start.encode()

    def drop(self, start: str) -> None:
        """Reset the connection in place of the next statement that begins with ``start``, which does not reach the server."""
        self.fate = "drop"
        self.armed = start.encode()

    def hold(self, start: str) -> None:
        """Reset the connection in place of the next statement that begins with ``start``, which reaches the server at `release`."""
        self._swallowed.clear()
        self.fate = "hold"
        self.armed = start.encode()

    def keep(self, server: socket.socket, statement: bytes) -> None:
        """Take over the connection to the server for a statement that is held."""
        self._held = server, statement

    def release(self) -> None:
        """Let the held statement reach the server, and return when it has replied: the statement is executed."""
        if self._held is None:
            raise ValueError("No statement is held.")
        (server, statement), self._held = self._held, None
        server.settimeout(10.0)
        server.sendall(statement)
        server.recv(1)
        _reset(server)

    def wait_swallowed(self, timeout: float = 10.0) -> bool:
        """Wait until `swallow` or `hold` has reset a connection; return whether it has."""
        return self._swallowed.wait(timeout)

    def close(self) -> None:
        """Close: reset the open connections and refuse new ones."""
        self._closed.set()
        self.refuse()
        self.cut()
        if self._held is not None:
            _reset(self._held[0])
        self._accepting.join()

    def ended(self, link: "_Link", swallowed: bool) -> None:
        """Record that a connection is closed, and whether a reply was swallowed."""
        with self._lock:
            self._links.discard(link)
        if swallowed:
            self._swallowed.set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _accept(self) -> None:
        while not self._closed.is_set():
            listener = self._listener
            if listener is None or not _ready(reading=listener):
                time.sleep(TICK if listener is None else 0)
                continue
            try:
                client, _ = listener.accept()
            except OSError:
                continue  # refuse() closed it meanwhile
            try:
                server = socket.create_connection(self._target, timeout=10)
            except OSError:
                _reset(client)  # the server is down: the client sees a reset, as without a proxy
                continue
            link = _Link(self, client, server)
            with self._lock:
                self._links.add(link)
                link.start()


class _Link:
    """The connection of one client, forwarded to the server by one thread per direction."""

    def __init__(self, proxy: Proxy, client: socket.socket, server: socket.socket) -> None:
        self._proxy = proxy
        self._client = client
        self._server = server
        self._ended = threading.Event()
        self._swallowing = threading.Event()
        self._kept = False  # the proxy has the connection to the server
        self._leaving = threading.Lock()
        self._pumping = 2
        for end in (client, server):
            end.setblocking(False)
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._threads = [
            threading.Thread(target=self._pump, args=(client, server), name=f"proxy {proxy.port} up", daemon=True),
            threading.Thread(target=self._pump, args=(server, client), name=f"proxy {proxy.port} down", daemon=True),
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def reset(self) -> None:
        """End the connection with a reset on both sides, and return after both."""
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        """Forward bytes in one direction until a side closes or the proxy ends it; the last direction closes both sockets."""
        try:
            while not self._ended.is_set() and self._carry(source, sink):
                pass
        except OSError:
            self._ended.set()  # one side was reset: reset the other
        with self._leaving:
            self._pumping -= 1
            if self._pumping:
                return
        for end in (self._client,) if self._kept else (self._client, self._server):
            if self._ended.is_set():
                _reset(end)
            else:
                end.close()
        self._proxy.ended(self, self._swallowing.is_set())

    def _carry(self, source: socket.socket, sink: socket.socket) -> bool:
        """Forward the available bytes; return whether there may be more."""
        if not _ready(reading=source):
            return True
        if self._proxy.silent.is_set():
            self._ended.wait(TICK)
            return True
        data = source.recv(65536)
        if source is self._server and self._swallowing.is_set():
            self._ended.set()  # the server has replied, so the statement is executed
            return False
        if not data:
            sink.shutdown(socket.SHUT_WR)
            return False  # the other direction may still have bytes
        if source is self._client and self._proxy.armed is not None and not self._meets_its_fate(data):
            return False
        if self._proxy.delay:
            self._ended.wait(self._proxy.delay)
        self._send(sink, data)
        return True

    def _meets_its_fate(self, data: bytes) -> bool:
        """Whether the data goes on: unless it is the armed statement, and that is to be dropped or held."""
        query, wanted = QUERY.match(data), self._proxy.armed
        if not query or wanted is None or not data.startswith(wanted, query.end()):
            return True
        self._proxy.armed = None
        fate = self._proxy.fate
        if fate == "hold":
            self._kept = True
            self._proxy.keep(self._server, data)
        if fate != "drop":
            self._swallowing.set()
        if fate != "swallow":
            self._ended.set()
        return fate == "swallow"

    def _send(self, sink: socket.socket, data: bytes) -> None:
        while data and not self._ended.is_set():
            if _ready(writing=sink):
                data = data[sink.send(data) :]


def _ready(reading: socket.socket | None = None, writing: socket.socket | None = None) -> bool:
    """Wait one tick until a socket is readable, or writable."""
    try:
        found = select.select([reading] if reading else [], [writing] if writing else [], [], TICK)
    except (OSError, ValueError):
        return False  # closed in the meantime
    return bool(found[0] or found[1])


def _reset(end: socket.socket) -> None:
    """Close a socket with a reset."""
    with contextlib.suppress(OSError):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    end.close()
