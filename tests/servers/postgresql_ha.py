"""PostgreSQL with a synchronous standby and automatic failover on loopback, from this machine's Debian packages.

    cluster = PostgreSQLCluster()
    urls = cluster.create_database()     # of one database, on each node
    cluster.balanced(urls[0])            # by one port, which leads to the primary
    cluster.kill(cluster.primary)        # the other one is promoted
    cluster.start(0); cluster.wait()     # the old primary comes back as the standby
    cluster.remove()                     # or at the end of the process

pg_auto_failover runs it: a keeper starts each node, and the monitor, a database of its own, decides who is the primary. Without a
standby the primary goes on alone; a standby that was not in step is never promoted.
"""

import os
import secrets
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from sqlalchemy import NullPool, create_engine, make_url
from sqlalchemy.exc import SQLAlchemyError

from tests.servers import folders, partition, processes
from tests.servers.cluster import Cluster
from tests.servers.engines import USER, PostgreSQL
from tests.servers.errors import ServerFailed, ServerMissing
from tests.servers.haproxy import ROLE, HAProxy
from tests.servers.server import START_LIMIT, PrivateServer
from tools import debian_packages

PACKAGES = ["|".join(f"postgresql-{release}-auto-failover" for release in (18, 17, 16, 15)), "pg-auto-failover-cli"]

#: Seconds without a word from a node after which it is away.
SILENCE = 3

#: For the roles of the keepers and of HAProxy's check, which have no password.
_TRUSTED = """\
host all pgautofailover_monitor,pgautofailover_replicator,{health} 127.0.0.1/32 trust
host replication pgautofailover_replicator 127.0.0.1/32 trust
"""

_SETTINGS = """
unix_socket_directories = ''
max_connections = 200
shared_buffers = '64MB'
dynamic_shared_memory_type = mmap
wal_keep_size = '64MB'
checkpoint_completion_target = 0
fsync = off
logging_collector = off
"""

_MONITOR = {
    "shared_preload_libraries": "pgautofailover",
    "pgautofailover.health_check_period": 500,
    "pgautofailover.health_check_timeout": 1000,
    "pgautofailover.health_check_max_retries": 1,
    "pgautofailover.health_check_retry_delay": 500,
    "pgautofailover.node_considered_unhealthy_timeout": 1000 * SILENCE,
    "pgautofailover.primary_demote_timeout": 1000 * SILENCE,
    "pgautofailover.startup_grace_period": 1000,
}


def address(number: int) -> str:
    """By which the other nodes and the monitor reach a node, and it the monitor; clients use 127.0.0.1."""
    return f"127.0.0.{10 + number}"


class _Debian(PostgreSQL):
    """A server of the unpacked packages."""

    def __init__(self, tree: Path, source: str) -> None:
        (programs,) = tree.glob("usr/lib/postgresql/*/bin")
        super().__init__(source, programs)
        self._tree = tree

    def environment(self, folder: Path) -> dict[str, str]:
        # Their libraries with this machine's C library, which is of the same suite: PostgreSQL's programs start each other.
        libraries = sorted(self._tree.glob("usr/lib/*-linux-gnu*")) + sorted(self._tree.glob("lib/*-linux-gnu*"))
        return {"LD_LIBRARY_PATH": ":".join(map(str, libraries))}


class _Node(_Debian):
    """One node: its keeper, which starts PostgreSQL."""

    def __init__(self, tree: Path, number: int, monitor: str) -> None:
        super().__init__(tree, f"the packages, node {number}")
        self._number = number
        parts = make_url(monitor)
        self._password = str(parts.password)
        self._address = address(number)
        self._monitor = f"postgres://{USER}@{self._address}:{parts.port}/{parts.database}?sslmode=disable"

    def environment(self, folder: Path) -> dict[str, str]:
        return super().environment(folder) | {
            "HOME": str(folder),
            "XDG_RUNTIME_DIR": str(folder),
            "PATH": f"{self._programs}:{os.defpath}",
            "PG_REGRESS_SOCK_DIR": str(folder),  # PostgreSQL's socket
            "PGHOST": "127.0.0.1",
            "PGUSER": USER,
            "PGPASSWORD": self._password,
        }

    def make_data(self, folder: Path, password: str) -> None:
        if self._number:
            return  # a copy of the first node's data, by the keeper
        super().make_data(folder, password)
        rules = folder / "data/pg_hba.conf"
        rules.write_text(_TRUSTED.format(health=ROLE) + rules.read_text() + "host replication all 127.0.0.1/32 password\n")
        with (folder / "data/postgresql.conf").open("a") as settings:
            settings.write(_SETTINGS)

    def command(self, folder: Path, port: int, *, durable: bool) -> list[str]:
        keeper = [str(self._tree / "usr/bin/pg_autoctl")]
        data = ["--pgdata", f"{folder}/data"]
        if (folder / ".config").exists():
            return [*keeper, "run", *data]
        here = ["--hostname", self._address, "--listen", f"127.0.0.1,{self._address}", "--pgport", str(port)]
        here += ["--pgctl", f"{self._programs}/pg_ctl"]
        access = ["--username", USER, "--dbname", "postgres", "--skip-pg-hba", "--no-ssl"]
        named = ["--name", f"node{self._number}", "--monitor", self._monitor]
        return [*keeper, "create", "postgres", "--run", *data, *here, *access, *named]


class PostgreSQLCluster(Cluster):
    """A primary, synchronous standbys of which one is promoted when the primary is away, and HAProxy before them.

    A COMMIT waits for one standby. Of two nodes the primary goes on alone when the standby is away; of three it waits.
    """

    def __init__(self, size: int = 2) -> None:
        tree = _tree()
        password = secrets.token_hex(12)
        listen = {"listen_addresses": ",".join(["127.0.0.1", *map(address, range(size))])}
        options = [word for name, value in (_MONITOR | listen).items() for word in ("-c", f"{name}={value}")]
        self.balancer: HAProxy | None = None
        self._monitor = PrivateServer(_Debian(tree, "the packages, monitor"), options, durable=False, password=password)
        self._states = self._monitor.create_database()
        ask(self._states, "CREATE EXTENSION pgautofailover CASCADE")
        super().__init__(lambda number: _Node(tree, number, self._states), size, password)
        ask(self.nodes[self.primary].url(), f"CREATE ROLE {ROLE} LOGIN")
        self.balancer = HAProxy([make_url(node.url()).port or 0 for node in self.nodes])

    def writers(self) -> list[int]:
        """The numbers of the nodes that take changes."""
        return [self.primary]

    @property
    def primary(self) -> int:
        """The number of the node that takes changes.

        :raises ServerFailed: none does in time.
        """
        limit = time.monotonic() + START_LIMIT
        while time.monotonic() < limit:
            for number, node in enumerate(self.nodes):
                with suppress(SQLAlchemyError):
                    if ask(node.url(), "SHOW transaction_read_only") == "off":
                        return number
            time.sleep(0.05)
        raise ServerFailed(f"No node takes changes: {self._state()}")

    def balanced(self, url: str) -> str:
        """The same URL by HAProxy, which leads to the primary."""
        assert self.balancer
        return self.balancer.url(url)

    def pause(self, *numbers: int) -> None:
        """Stop these nodes with their keepers (SIGSTOP): they keep their connections and say nothing."""
        for number in numbers:
            processes.stop_at_once(self.nodes[number].pid)

    def resume(self, *numbers: int) -> None:
        """Let paused nodes go on."""
        for number in numbers:
            _let_go_on(self.nodes[number])

    def _more(self) -> list[PrivateServer]:
        return [self._monitor]

    def _door(self, number: int) -> Callable[[partition.Address], bool]:
        own = socket.inet_aton(address(number))[::-1].hex().upper()
        return lambda listener: listener[0] == own

    @contextmanager
    def standby_silent(self) -> Iterator[None]:
        """In the block the standbys say nothing, so that no COMMIT is answered; the monitor does not notice."""
        primary = self.primary
        silent = [self._monitor, *(node for number, node in enumerate(self.nodes) if number != primary)]
        for server in silent:
            processes.stop_at_once(server.pid)
        try:
            yield
        finally:
            for server in reversed(silent):
                _let_go_on(server)

    def rejoin(self) -> None:
        """They do by themselves."""

    def _size(self, number: int) -> int:
        ask(self.nodes[number].url(), "SELECT 1")
        first, *others = self._state() or [""]
        return 1 + len(others) if first in {"primary", "single"} and {*others} <= {"secondary"} else 0

    def _state(self) -> list[str]:
        """What the monitor knows of the nodes that do what it wants, sorted."""
        settled = "current_group_state = assigned_group_state AND health = 1"
        states = f"SELECT string_agg(current_group_state::text, ' ') FROM pgautofailover.current_state() WHERE {settled}"
        return sorted(ask(self._states, states).split())

    def remove(self) -> None:
        super().remove()
        for one in (self.balancer, self._monitor):
            if one:
                one.remove()


def _let_go_on(server: PrivateServer) -> None:
    for stopped in processes.stop_at_once(server.pid):
        with suppress(ProcessLookupError):  # its parent, which goes on already, has ended it
            os.kill(stopped, signal.SIGCONT)


def ask(url: str, statement: str) -> str:
    """Run one statement in autocommit mode; return the first value of its result."""
    engine = create_engine(url, poolclass=NullPool, isolation_level="AUTOCOMMIT", connect_args={"connect_timeout": 2})
    with engine.connect() as connection:
        result = connection.exec_driver_sql(statement)
        return str(result.scalar()) if result.returns_rows else ""


def _tree() -> Path:
    system, suite = debian_packages.distribution()
    tree = folders.cache_folder() / f"postgresql-ha-{system}-{suite}"
    if not tree.is_dir():
        try:
            debian_packages.unpack(tree, "own", PACKAGES)
        except debian_packages.Unavailable as error:
            raise ServerMissing(f"No PostgreSQL with automatic failover to test with: {error}") from error
    return tree
