"""The faults of a round: each is begun by ``strike`` and ended by what that returns."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from sqlalchemy import Engine, NullPool, create_engine, make_url, text
from sqlalchemy.exc import SQLAlchemyError

from tests.chaos import ledger, nodes
from tests.chaos.plan import Fault
from tests.servers import Server, ServerFailed
from tests.servers.cluster import Cluster
from tests.servers.proxy import Proxy

#: Seconds by which a slow network delays each message.
LATENCY = 0.05
#: Seconds in which replies to COMMITs are lost before a primary is killed.
REPLIES_LOST = 1.0
#: Connections that a crowd opens at most.
CROWD = 400

End = Callable[[], None]

SESSIONS = {
    "postgresql": "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()",
    "mysql": "SELECT id FROM information_schema.processlist WHERE db = database() AND id <> connection_id()",
}
LOCK_TIMEOUT = {"postgresql": "SET lock_timeout = '5s'", "mysql": "SET innodb_lock_wait_timeout = 5"}
KILL = {"postgresql": "SELECT pg_terminate_backend({})", "mysql": "KILL {}"}


class Victims(Protocol):
    """The processes of the clients."""

    def pid(self, client: str) -> int | None: ...


class Faults:
    """Strikes the clients, the network and the server of one round."""

    def __init__(self, urls: Sequence[str], server: Server | Cluster | None, proxies: Sequence[Proxy], victims: Victims) -> None:
        self._urls = urls
        self._server = server
        self._proxies = proxies
        self._victims = victims
        self._threads: list[threading.Thread] = []
        backend = make_url(urls[0]).get_backend_name()
        self._kind = "mysql" if backend == "mariadb" else backend
        #: Fault of nodes, its begin and its end, of those that are over.
        self.of_nodes: list[tuple[str, float, float]] = []
        #: What did not end as it should.
        self.failed: list[str] = []
        self._one_at_a_time = threading.Lock()

    def join(self) -> None:
        """Wait for the end of those that end by themselves."""
        for thread in self._threads:
            thread.join()

    def strike(self, fault: Fault) -> End | None:
        """Begin a fault; return what ends it, None if it has no end."""
        if fault.kind in nodes.FAULTS:
            return self._apart(self._nodes, fault)
        if fault.target:
            return self._client(fault)
        if fault.kind in {"session", "crowd", "lock"}:
            # It waits for the server, which may be away.
            return self._apart(self._quietly, fault)
        if fault.kind == "server":
            assert isinstance(self._server, Server)
            self._server.kill()
            time.sleep(fault.seconds)
            self._server.start()
            return None
        return self._network(fault)

    def _apart(self, strike: Callable[[Fault], None], fault: Fault) -> None:
        self._threads.append(threading.Thread(target=strike, args=(fault,), daemon=True))
        self._threads[-1].start()

    def _nodes(self, fault: Fault) -> None:
        assert isinstance(self._server, Cluster)
        with self._one_at_a_time:
            if fault.kind in nodes.REPLIES_LOST:
                self._lose_replies()
            began = time.monotonic()
            try:
                nodes.strike(self._server, fault.kind, int(fault.target))
            except (ServerFailed, SQLAlchemyError) as error:
                self.failed.append(f"{fault.kind}: {error}")
            self.of_nodes.append((fault.kind, began, time.monotonic()))

    def _lose_replies(self) -> None:
        """For a while the COMMITs of clients behind the proxy are executed, and their replies are lost."""
        limit = time.monotonic() + REPLIES_LOST
        while time.monotonic() < limit:
            for proxy in self._proxies:
                proxy.swallow("COMMIT")
            time.sleep(0.05)

    def _client(self, fault: Fault) -> End | None:
        pid = self._victims.pid(fault.target)
        if pid is None:
            return None

        def send(number: signal.Signals) -> None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

        send({"kill": signal.SIGKILL, "stop": signal.SIGSTOP, "interrupt": signal.SIGUSR2}[fault.kind])
        return (lambda: send(signal.SIGCONT)) if fault.kind == "stop" else None

    def _network(self, fault: Fault) -> End | None:
        for proxy in self._proxies:
            match fault.kind:
                case "cut":
                    proxy.cut()
                case "after commit":
                    proxy.swallow("COMMIT")
                case "before commit":
                    proxy.drop("COMMIT")
                case "latency":
                    proxy.delay = LATENCY
                case "silence":
                    proxy.silence()
                case "refuse":
                    proxy.refuse()
        return self.forward if fault.kind in {"latency", "silence", "refuse"} else None

    def forward(self) -> None:
        """End what strikes the network."""
        for proxy in self._proxies:
            proxy.forward()

    def _quietly(self, fault: Fault) -> None:
        with contextlib.suppress(SQLAlchemyError):
            {"session": self._kill_sessions, "crowd": self._crowd, "lock": self._lock}[fault.kind](fault)

    def _engine(self) -> Engine:
        engine = create_engine(
            self._urls[0],
            connect_args={} if self._kind == "sqlite" else {"connect_timeout": 5},
            poolclass=NullPool,
            pool_reset_on_return=None,
        )
        ledger.take_any(engine, self._urls)
        return engine

    def _kill_sessions(self, fault: Fault) -> None:
        with self._engine().connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            for number, session in enumerate(connection.exec_driver_sql(SESSIONS[self._kind]).scalars().all()):
                if number % 2:
                    with contextlib.suppress(SQLAlchemyError):
                        connection.exec_driver_sql(KILL[self._kind].format(session))

    def _crowd(self, fault: Fault) -> None:
        """Open connections until the server refuses more."""
        opened: list[Any] = []
        try:
            with contextlib.suppress(SQLAlchemyError):
                engine = self._engine()
                opened.extend(engine.connect() for _ in range(CROWD))
            time.sleep(fault.seconds)
        finally:
            for connection in opened:
                with contextlib.suppress(SQLAlchemyError):
                    connection.close()

    def _lock(self, fault: Fault) -> None:
        """Lock the jobs of the queue; on SQLite the file."""
        engine = self._engine()
        with engine.connect() as connection:
            if self._kind == "sqlite":
                connection.exec_driver_sql("PRAGMA busy_timeout = 5000")
                connection.exec_driver_sql("BEGIN IMMEDIATE")
            else:
                connection.exec_driver_sql(LOCK_TIMEOUT[self._kind])
                connection.execute(text("SELECT id FROM jobs ORDER BY id LIMIT 1000 FOR UPDATE")).all()
            time.sleep(fault.seconds)
            connection.rollback()
