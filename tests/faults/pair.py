"""Two servers of one kind with the same account and database, of which one can refuse changes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from sqlalchemy import Connection, create_engine, make_url

from queue_db import QueueDB
from tests.servers import Server, over_tls, provide
from tests.servers.proxy import Proxy

USER, PASSWORD, DATABASE = "app", "app-Pw1", "queues"

# Not as an administrator, whom read_only does not bind on MySQL and MariaDB.
ACCOUNT = {
    "postgresql": [f"CREATE ROLE {USER} LOGIN PASSWORD '{PASSWORD}'", f"CREATE DATABASE {DATABASE} OWNER {USER}"],
    "mysql": [
        f"CREATE USER {USER} IDENTIFIED BY '{PASSWORD}'",
        f"CREATE DATABASE {DATABASE} CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
        f"GRANT ALL ON {DATABASE}.* TO {USER}",
    ],
}

DEMOTE = {
    "postgresql": ["ALTER SYSTEM SET default_transaction_read_only = on", "SELECT pg_reload_conf()"],
    "mysql": ["SET GLOBAL read_only = 1"],
}

PROMOTE = {
    "postgresql": ["ALTER SYSTEM RESET default_transaction_read_only", "SELECT pg_reload_conf()"],
    "mysql": ["SET GLOBAL read_only = 0"],
}


@dataclass
class Pair:
    """Two servers with the same account, and the address that leads to one of them."""

    kind: str
    first: Server
    second: Server
    #: The oldest session of the first server: PostgreSQL tells it last that its settings have changed.
    oldest: Connection

    def set_first(self, statements: dict[str, list[str]], *, read_only: bool) -> None:
        """Demote the first server or promote it, and return when all of its sessions know."""
        self.say(self.first, statements)
        until = time.monotonic() + 60
        while self.kind == "postgresql" and self._reads_only() is not read_only:
            assert time.monotonic() < until
            time.sleep(0.01)

    def _reads_only(self) -> bool:
        return bool(self.oldest.exec_driver_sql("SHOW default_transaction_read_only").scalar_one() == "on")

    def say(self, server: Server, statements: dict[str, list[str]]) -> None:
        engine = create_engine(over_tls(server.url()), isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            for statement in statements.get(self.kind, statements["mysql"]):
                connection.exec_driver_sql(statement)
        engine.dispose()

    def url(self, server: Server) -> str:
        url = make_url(server.url()).set(username=USER, password=PASSWORD, database=DATABASE)
        return url.render_as_string(hide_password=False)

    def fail_over(self, proxy: Proxy) -> None:
        """The first one is demoted and stays up, with its connections open; the address moves to the second one."""
        self.set_first(DEMOTE, read_only=True)
        proxy.lead_to(self.second.url())


@contextmanager
def paired(kind: str) -> Iterator[Pair]:
    """Start two servers for this block."""
    servers = [provide(kind), provide(kind)]
    oldest = create_engine(over_tls(servers[0].url()), isolation_level="AUTOCOMMIT").connect()
    pair = Pair(kind, *servers, oldest)
    for server in servers:
        pair.say(server, ACCOUNT)
        create_engine(over_tls(pair.url(server))).connect().close()  # without TLS MySQL takes a password that it has seen
        with QueueDB(pair.url(server)) as db:
            db.migrate()
    try:
        yield pair
    finally:
        oldest.close()
        for server in servers:
            server.remove()
