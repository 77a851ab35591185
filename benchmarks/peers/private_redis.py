"""A private Redis server for one run: as durable as the databases, reachable only from this machine with a password."""

from __future__ import annotations

import atexit
import secrets
import shutil
import socket
import subprocess
import tempfile
import time
from abc import abstractmethod
from contextlib import suppress
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar

from benchmarks.peers.common import Peer
from queue_db.compare.contestant import Target
from queue_db.errors import ConfigurationError

#: Folder into which ``tools/debian_packages.py`` unpacks it, without root.
UNPACKED = Path.home() / ".cache" / "queue-db" / "peers" / "redis"

_START_LIMIT = 10.0


@dataclass(frozen=True)
class Server:
    """The address of the server."""

    port: int
    password: str = field(repr=False)

    @property
    def url(self) -> str:
        """URL for clients; its timeouts are in seconds."""
        return f"redis://:{self.password}@127.0.0.1:{self.port}/0?socket_timeout=30&socket_connect_timeout=10"

    def client(self) -> Any:
        """Return a redis-py connection."""
        import redis

        return redis.Redis.from_url(self.url)


@dataclass
class _Running:
    server: Server
    process: subprocess.Popen[bytes]
    folder: Path

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(timeout=10.0)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(timeout=10.0)
        shutil.rmtree(self.folder, ignore_errors=True)


#: Servers started by this process, by row.
_running: dict[Peer, _Running] = {}


def program() -> list[str] | None:
    """Return the command line of Redis; None if it is not installed."""
    for name in ("redis-server", "valkey-server"):
        if found := shutil.which(name):
            return [found]
    if (UNPACKED / "usr" / "bin" / "redis-server").exists():
        try:
            from tools import debian_packages
        except ImportError:
            return None
        return debian_packages.command(UNPACKED, "usr/bin/redis-server")
    return None


@dataclass(frozen=True)
class RedisPeer(Peer):
    """A peer with its own Redis server, independent of the compared database.

    The server's address is sent to the workers with the row, after ``set_up``.
    """

    server: Server | None = field(default=None, repr=False, compare=False)

    databases: ClassVar[tuple[str, ...]] = ("postgresql", "mysql", "mariadb", "sqlite")

    def __reduce__(self) -> tuple[Any, ...]:
        running = _running.get(self)
        values = {one.name: getattr(self, one.name) for one in fields(self) if one.init}
        if running is not None:
            values["server"] = running.server
        return _restore, (type(self), values)

    def configuration(self) -> dict[str, str]:
        """Return its settings: as durable as the databases."""
        return {"server": "a private Redis", "appendonly": "yes", "appendfsync": "always"}

    def refused(self, target: Target) -> str | None:
        """Return what is missing: the server."""
        refused = super().refused(target)
        if refused is None and program() is None:
            return f"{self.name} needs redis-server on PATH (or unpacked, see benchmarks/README.md)"
        return refused

    def set_up(self, target: Target, jobs: int) -> None:
        """Start and fill the server."""
        self.tear_down(target)
        _running[self] = started = _start()
        self.fill(started.server, jobs)

    @abstractmethod
    def fill(self, server: Server, jobs: int) -> None:
        """Enqueue the jobs."""

    def tear_down(self, target: Target) -> None:
        """Stop the server."""
        running = _running.pop(self, None)
        if running is not None:
            running.stop()

    @property
    def reached(self) -> Server:
        """Return the server, in a worker."""
        running = _running.get(self)
        server = self.server or (running.server if running else None)
        if server is None:
            raise ConfigurationError(f"{self.name}: its Redis was not started")
        return server


def _restore(kind: type[RedisPeer], values: dict[str, Any]) -> RedisPeer:
    return kind(**values)


def _start() -> _Running:
    command = program()
    if command is None:
        raise ConfigurationError("there is no redis-server")
    folder = Path(tempfile.mkdtemp(prefix="queue-db-redis-"))
    password = secrets.token_hex(16)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    # By standard input, because other users can read a command line.
    settings = {
        "bind": "127.0.0.1",
        "port": str(port),
        "requirepass": password,
        "dir": str(folder),
        "save": '""',
        "appendonly": "yes",
        "appendfsync": "always",
        "daemonize": "no",
        "logfile": '""',
    }
    process = subprocess.Popen(  # noqa: S603 - found above
        [*command, "-"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    running = _Running(Server(port, password), process, folder)
    atexit.register(_stop_if_alive, running)
    try:
        assert process.stdin is not None  # noqa: S101 - requested above
        with suppress(BrokenPipeError):  # it has ended already; reported below
            process.stdin.write("".join(f"{name} {value}\n" for name, value in settings.items()).encode())
            process.stdin.close()
        _await(running)
    except BaseException:
        running.stop()
        raise
    return running


def _await(running: _Running) -> None:
    deadline = time.monotonic() + _START_LIMIT
    while not _answers(running.server):
        if running.process.poll() is not None:
            raise ConfigurationError(f"redis-server has ended with {running.process.returncode}")
        if time.monotonic() > deadline:
            raise ConfigurationError(f"redis-server does not answer within {_START_LIMIT:.0f} s")
        time.sleep(0.02)


def _answers(server: Server) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", server.port), timeout=1.0) as connection:
            connection.sendall(f"AUTH {server.password}\r\nPING\r\n".encode())
            # Another server on this port would refuse the password.
            return connection.recv(len(b"+OK\r\n+PONG\r\n"), socket.MSG_WAITALL) == b"+OK\r\n+PONG\r\n"
    except OSError:
        return False


def _stop_if_alive(running: _Running) -> None:
    if running.process.poll() is None:
        running.stop()
