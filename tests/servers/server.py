"""A database server of the tests: one that runs already, or one that the suite starts, kills and removes."""

import atexit
import contextlib
import os
import re
import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import Sequence

from sqlalchemy import URL, NullPool, create_engine, make_url
from sqlalchemy.exc import SQLAlchemyError

from tests.servers import folders, processes
from tests.servers.engines import USER, Engine
from tests.servers.errors import NotPrivate, ServerFailed

START_LIMIT = 60.0
STOP_LIMIT = 20.0


class Server:
    """A server that runs already: the tests create databases on it, and nothing else."""

    def __init__(self, kind: str, source: str, url: URL) -> None:
        self.kind = kind
        self.source = source
        self.version = ""
        self._url = url
        self._databases: set[str] = set()
        self._ready_in = 0.0

    def url(self, database: str | None = None) -> str:
        """Return the SQLAlchemy URL of a database, or of the server's own first one."""
        url = self._url if database is None else self._url.set(database=database)
        return self._client_url(url).render_as_string(hide_password=False)

    def _client_url(self, url: URL) -> URL:
        return url

    def create_database(self, template: str = "template0") -> str:
        """Create a database and return its URL; on PostgreSQL a copy of ``template``, which nobody uses meanwhile."""
        name = f"queue_db_{secrets.token_hex(6)}"
        wishes = f"TEMPLATE {template}" if self.kind == "postgresql" else "CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"
        self._ask(f"CREATE DATABASE {name} {wishes}")
        self._databases.add(name)
        return self.url(name)

    def variable(self, name: str) -> str:
        """The value of a status variable of MySQL or MariaDB.

        :raises SQLAlchemyError: the server does not answer.
        """
        return self._ask(f"SELECT variable_value FROM information_schema.global_status WHERE variable_name = '{name}'")

    def drop_database(self, url: str) -> None:
        """Drop a database that `create_database` made, even with open connections."""
        name = make_url(url).database
        if name not in self._databases:
            raise ValueError(f"{name} is not a database that this server's create_database() made.")
        self._ask(f"DROP DATABASE IF EXISTS {name}" + (" WITH (FORCE)" if self.kind == "postgresql" else ""))
        self._databases.discard(name)

    def describe(self) -> str:
        """Return one line: kind, version, source, and seconds to start."""
        return f"{self.kind} {self.version} from {self.source}, ready in {self._ready_in:.1f} s"

    @property
    def pid(self) -> int:
        """Return the process id of the server."""
        raise NotPrivate(f"{self.kind} from {self.source} was not started by the tests: its pid is unknown.")

    def start(self) -> None:
        """Start the server again after `stop` or `kill`: same port, same data."""
        raise NotPrivate(f"{self.kind} from {self.source} was not started by the tests, so they do not start it.")

    def stop(self) -> None:
        """Shut the server down and keep its data."""
        raise NotPrivate(f"{self.kind} from {self.source} was not started by the tests, so they do not stop it.")

    def kill(self) -> None:
        """Kill all processes of the server at once (SIGKILL) and keep its data."""
        raise NotPrivate(f"{self.kind} from {self.source} was not started by the tests, so they do not kill it.")

    def remove(self) -> None:
        """Drop the databases that were created here and not dropped."""
        for name in sorted(self._databases):
            self.drop_database(self.url(name))

    def check(self) -> None:
        """Read the version.

        :raises ServerFailed: the server does not answer.
        """
        started = time.monotonic()
        try:
            self._learn_version()
        except SQLAlchemyError as error:
            raise ServerFailed(f"{self.kind} from {self.source} does not answer: {error}") from error
        self._ready_in = time.monotonic() - started
        _open_servers.append(self)

    def _learn_version(self) -> None:
        answer = self._ask("SHOW server_version" if self.kind == "postgresql" else "SELECT VERSION()")
        found = re.search(r"\d+(\.\d+)+", answer)
        self.version = found.group() if found else answer

    def _ask(self, statement: str) -> str:
        """Run one statement in autocommit mode and return the first value of its result, or an empty text."""
        engine = create_engine(self._url, poolclass=NullPool, isolation_level="AUTOCOMMIT", connect_args={"connect_timeout": 10})
        with engine.connect() as connection:
            result = connection.exec_driver_sql(statement)
            return str(result.scalar()) if result.returns_rows else ""


class PrivateServer(Server):
    """A server that the suite started: a process with its own folder, port on loopback, and password."""

    def __init__(self, engine: Engine, options: Sequence[str] = (), *, durable: bool = True, password: str = "") -> None:
        started = time.monotonic()
        self._engine = engine
        self._options = list(options)
        self._durable = durable
        self._port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        password = password or secrets.token_hex(12)
        first = "postgres" if engine.kind == "postgresql" else None
        url = URL.create(engine.driver, USER, password, "127.0.0.1", self._port, first)
        super().__init__(engine.kind, engine.source, url)
        self._folder = folders.new_run_folder(engine.kind)
        _open_servers.append(self)
        try:
            processes.hand_over(self._folder)
            engine.make_data(self._folder, password)
            self.start()
            (self._folder / "first.sql").unlink(missing_ok=True)
        except BaseException:
            self.remove()
            raise
        self._ready_in = time.monotonic() - started

    def _client_url(self, url: URL) -> URL:
        # TLS takes PyMySQL 40 ms for each connection, a third of a test. MySQL accepts a password without TLS once it has seen it
        # with TLS, and it has when the server started.
        return url if self.kind == "postgresql" else url.update_query_dict({"ssl_disabled": "true"})

    @property
    def pid(self) -> int:
        """Return the process id of the server."""
        if self._process is None:
            raise ServerFailed(f"{self.kind} is not running.")
        return self._process.pid

    def start(self) -> None:
        """Start the server again after `stop` or `kill` on the same port and data. Return when it answers."""
        if self._process is not None:
            return None
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [*self._engine.command(self._folder, self._port, durable=self._durable), *self._options],
                cwd=self._folder,
                env={"PATH": os.defpath, "LANG": "C"} | self._engine.environment(self._folder),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C goes to the tests only, which then end the server
                **processes.account(),
            )
        folders.note_process(self._folder, self._process.pid)
        limit = time.monotonic() + START_LIMIT
        while True:
            try:
                return self._learn_version()
            except SQLAlchemyError as error:
                ended = self._process.poll()
                if ended is None and time.monotonic() < limit:
                    time.sleep(0.03)
                    continue
                self.kill()
                how = f"did not answer within {START_LIMIT:.0f} s ({error})" if ended is None else f"ended with {ended}"
                message = f"{self.kind} from {self.source} {how}. The end of its log:\n{self.log()}"
                raise ServerFailed(message) from error

    def stop(self) -> None:
        """Shut the server down and keep its data."""
        if self._process is None:
            return
        self._process.send_signal(self._engine.stop_signal)
        try:
            self._process.wait(STOP_LIMIT)
            self._process = None
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """Kill all processes of the server at once (SIGKILL) and keep its data."""
        if self._process is None:
            return
        if self._process.poll() is None:
            processes.kill_at_once(self._process.pid)
            self._process.wait()
        self._process = None

    def remove(self) -> None:
        """Kill the server and remove its folder."""
        if self._process is not None:
            self._process.send_signal(self._engine.removal_signal)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(STOP_LIMIT)
        self.kill()
        self._databases.clear()
        shutil.rmtree(self._folder, ignore_errors=True)

    def log(self, lines: int = 20) -> str:
        """Return the end of the server's log."""
        try:
            return "\n".join((self._folder / "log").read_text(errors="replace").splitlines()[-lines:])
        except OSError:
            return ""


_open_servers: list[Server] = []
_owner = os.getpid()


@atexit.register
def _remove_all() -> None:
    if os.getpid() != _owner:
        return  # a forked child: its parent owns the servers
    for server in _open_servers:
        with contextlib.suppress(SQLAlchemyError):  # a server that ran already and is gone
            server.remove()
    folders.remove_owner_folder()


def free_port() -> int:
    """Return a port on loopback that nobody uses."""
    # Below the range of ports for outgoing connections, so that none of those takes the port between kill() and start().
    for _ in range(100):
        port = 20_000 + secrets.randbelow(12_000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise ServerFailed("No free port between 20000 and 32000.")
