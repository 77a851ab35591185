"""PostgreSQL servers: connections and error codes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

from sqlalchemy import URL, Connection, Engine, event, func, select
from sqlalchemy.exc import DBAPIError

from queue_db.dialects import pgbouncer, raw_cursor
from queue_db.dialects.error_codes import ErrorCodes
from queue_db.dialects.listening import AsyncpgListener, PostgreSQLListener
from queue_db.dialects.nodes import Nodes, PostgreSQLNodes
from queue_db.dialects.server import GONE_AFTER, Server, limit_waits
from queue_db.dialects.transactions import Sender
from queue_db.model import Fault

if TYPE_CHECKING:
    from queue_db.dialects.base import Dialect

# Options of connections with asyncpg, which prepares all statements and keeps them with the connection. Each execution gets its own
# plan (plan_cache_mode), because a generic plan that was made for an empty table would stay.
_ASYNCPG: dict[str, Any] = {
    "timeout": 10,
    "server_settings": {
        "application_name": "queue_db",
        "lock_timeout": "10000",
        "default_transaction_isolation": "read committed",
        "plan_cache_mode": "force_custom_plan",
        "enable_seqscan": "off",
        "jit": "off",
    },
}

# TRANSACTION_STATUS_IDLE of psycopg2. While a reply is outstanding, the status is another number.
_IDLE = 0

_READ_ONLY = frozenset({"25006"})


def _code(error: DBAPIError) -> str | None:
    return getattr(error.orig, "pgcode", None) or getattr(error.orig, "sqlstate", None)


ERRORS = ErrorCodes(
    code=_code,
    # Serialization failure, deadlock, lock not available, too many connections, shutting down, cannot connect now. The codes that
    # begin with 08 are those of a connection that failed.
    transient=_READ_ONLY
    | {"40001", "40P01", "55P03", "53300", "57P01", "57P02", "57P03"}
    | {"08000", "08001", "08003", "08004", "08006", "08007", "08P01"},
    read_only=_READ_ONLY,
    full=frozenset({"53100"}),
    # statement_timeout has ended the statement, or an administrator has cancelled it.
    expired=frozenset({"57014"}),
    other_session=frozenset({"26000", "42P05"}),
    faults={"40P01": Fault.DEADLOCK, "40001": Fault.SERIALIZATION, "55P03": Fault.LOCK_TIMEOUT},
)


class PostgreSQLServer(Server):
    """Makes engines at READ COMMITTED that notice a broken network within seconds."""

    nodes: ClassVar[Nodes] = PostgreSQLNodes()

    def __init__(self, dialect: Dialect) -> None:
        super().__init__(dialect)
        self._pooler = pgbouncer.PoolerDetection(dialect)

    def engine_options(self, url: URL) -> dict[str, Any]:
        # Without these options, a query hung for 25 s and more after its network was cut. With them, the limit is 15 s.
        # Options in the URL take precedence.
        if url.get_driver_name() == "asyncpg":
            return {"connect_args": {name: value for name, value in _ASYNCPG.items() if name not in url.query}}
        waits = {
            "connect_timeout": 10,
            "keepalives": 1,
            "keepalives_idle": 9,
            "keepalives_interval": 2,
            "keepalives_count": 3,
            "tcp_user_timeout": GONE_AFTER * 1000,
            "application_name": "queue_db",
            # lock_timeout, in milliseconds, limits the wait for a row or a table that a forgotten transaction has locked.
            # Isolation: at REPEATABLE READ a lost version check is an error instead of an empty result.
            # plan_cache_mode: the prepared statements need no new plan for each set of values.
            # enable_seqscan: a plan that is made while the table is small must not read the whole table after it has grown.
            # jit: with enable_seqscan=off, reading a whole table looks so expensive that servers before 18 would compile the query.
            "options": r"-c lock_timeout=10000 -c default_transaction_isolation=read\ committed "
            f"-c plan_cache_mode=force_generic_plan -c enable_seqscan=off -c jit=off -c {pgbouncer.MARK}=1",
        }
        if "options" in url.query:
            given = url.query["options"]
            waits["options"] = " ".join([str(waits["options"]), *([given] if isinstance(given, str) else given)])
        return {"connect_args": {name: value for name, value in waits.items() if name == "options" or name not in url.query}}

    def prepare(self, engine: Engine, *, made_here: bool) -> Engine:
        if not made_here or engine.dialect.driver != "psycopg2":
            self.dialect.uses_raw_cursor = False
        if not made_here:
            return engine.execution_options(isolation_level="READ COMMITTED")
        if engine.dialect.driver == "psycopg2":
            self._pooler.watch(engine)
        if engine.dialect.driver == "asyncpg":
            event.listen(engine, "do_connect", pgbouncer.refuse_pooler)
            event.listen(engine, "connect", limit_waits)
        return engine

    def is_idle(self, driver: Any) -> bool:
        status = getattr(driver, "get_transaction_status", None)
        if status is not None:
            return bool(status() == _IDLE)
        transaction = getattr(driver, "is_in_transaction", None)  # asyncpg's
        return transaction is None or not transaction()

    def database_of(self, connection: Connection) -> str | None:
        return str(connection.execute(select(func.current_database())).scalar_one())

    def known_alive(self, tx: Sender) -> bool:
        # Only the library's own connections with psycopg2 are checked. Statements on a caller's connection or through a pooler are
        # in a transaction anyway. asyncpg reads from its socket all the time, so the socket shows nothing.
        return tx.sends_raw and raw_cursor.lively(tx.info, tx._driver)  # noqa: SLF001 - a dialect knows the driver

    def listen(self, engine: Engine, channel: str) -> PostgreSQLListener | None:
        # Through a pooler no notification arrives.
        receives = self.dialect.notifies and engine.dialect.driver == "psycopg2" and not self._pooler.pooled
        return PostgreSQLListener(engine, channel) if receives else None

    def listen_on_loop(self, engine: Engine, broken: Callable[[], None]) -> AsyncpgListener | None:
        receives = self.dialect.notifies and engine.dialect.driver == "asyncpg" and not self._pooler.pooled
        return AsyncpgListener(engine, broken) if receives else None
