"""MySQL and MariaDB servers: how they are opened, what their errors mean, and what they show of themselves."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar

from sqlalchemy import URL, Connection, Engine, Table, event, func, select, text
from sqlalchemy.engine.interfaces import Dialect as SQLAlchemyDialect
from sqlalchemy.exc import DBAPIError

from queue_db.dialects.server import GONE_AFTER, MOST, OpenTransaction, Server, limit_waits
from queue_db.model import Capability, Fault

# The table has times of the server's zone, and NOW() has the session's. A transaction that has locked nothing, and reads what is
# committed, holds up nothing. Thread 0 is a transaction without a connection.
_OPEN = text(
    "SELECT t.trx_mysql_thread_id AS thread, p.user AS name, p.command AS state, "
    "TIMESTAMPDIFF(SECOND, t.trx_started, CONVERT_TZ(NOW(), @@session.time_zone, 'SYSTEM')) AS age "
    "FROM information_schema.innodb_trx t LEFT JOIN information_schema.processlist p ON p.id = t.trx_mysql_thread_id "
    "WHERE t.trx_mysql_thread_id NOT IN (0, CONNECTION_ID()) "
    "AND (t.trx_isolation_level IN ('REPEATABLE READ', 'SERIALIZABLE') OR t.trx_rows_locked + t.trx_rows_modified > 0) "
    "HAVING age >= :age ORDER BY age DESC LIMIT :most"
)

# The error of a user without the right PROCESS.
_NOT_ALLOWED = 1227

# Seconds for a statement of minutes.
LONG = 1800

# Errors of COMMIT and of a statement that pass on the error number of a storage engine, which is only in their texts.
_NUMBERED = frozenset({1180, 1030})
_NUMBER = re.compile(r"\d+")

# Options that some drivers do not have.
_LACKING: Mapping[str, tuple[str, ...]] = {"aiomysql": ("read_timeout", "write_timeout"), "asyncmy": ("write_timeout",)}

# SERVER_STATUS_IN_TRANS: in each reply that is not an error.
_IN_TRANSACTION = 1


class MySQLServer(Server):
    """READ COMMITTED, and a limit on every wait; accounts with their hosts."""

    names: ClassVar[tuple[str, ...]] = ("mysql", "mariadb")
    title: ClassVar[str] = "MySQL"
    default_driver: ClassVar[str | None] = "pymysql"
    extra: ClassVar[str] = "mysql"
    async_driver: ClassVar[str | None] = "aiomysql"
    async_extra: ClassVar[str] = "async-mysql"
    schemas_are_databases: ClassVar[bool] = True
    async_options: ClassVar[Mapping[str, str | None]] = dict.fromkeys(("ssl_disabled", "read_timeout", "write_timeout"))
    autocommits: ClassVar[bool] = True
    minimum: ClassVar[tuple[int, ...]] = (8, 0, 13)
    # 1020: with innodb_snapshot_isolation a lost version check is this error; the others: deadlock, lock wait timeout,
    # connection gone, lost, refused or shutting down. In a cluster with several writers a conflict with a transaction of another
    # node is an error of COMMIT, or has rolled back everything, so that a savepoint is not there (_NUMBERED).
    transient: ClassVar[frozenset[str]] = frozenset(
        {"1020", "1213", "1205", "2002", "2003", "2006", "2013", "1040", "1053", "1927", "4031", "3101", "1180-149", "1030-153"}
    )

    # read_only or super_read_only is on; the same by InnoDB itself. And a node of Galera without its cluster: it refuses
    # statements, or a COMMIT, with the error number of a socket or none.
    read_only: ClassVar[frozenset[str]] = frozenset({"1290", "1836", "1047", "1180", "1180-107"})

    # The disk, a tablespace or a table; the same in the error of an engine and of COMMIT.
    full: ClassVar[frozenset[str]] = frozenset({"1021", "1114", "1030-28", "1180-28"})

    # max_execution_time of MySQL, max_statement_time of MariaDB.
    expired: ClassVar[frozenset[str]] = frozenset({"3024", "1969"})

    faults: ClassVar[Mapping[str, Fault]] = {
        "1213": Fault.DEADLOCK,
        "1020": Fault.SERIALIZATION,
        "3101": Fault.SERIALIZATION,
        "1180-149": Fault.SERIALIZATION,
        "1030-153": Fault.SERIALIZATION,
        "1205": Fault.LOCK_TIMEOUT,
        "3572": Fault.LOCK_TIMEOUT,
    }

    def capabilities(self, sql: SQLAlchemyDialect) -> frozenset[Capability]:
        known = {Capability.SKIP_LOCKED, Capability.ROW_LOCKS, Capability.CONCURRENT_WRITERS}
        if is_mariadb(sql):
            known.add(Capability.DELETE_RETURNING)
        return frozenset(known)

    def server(self, sql: SQLAlchemyDialect) -> str:
        version = ".".join(str(part) for part in (sql.server_version_info or ())[:3])
        return f"{'MariaDB' if is_mariadb(sql) else self.title} {version}"

    def minimum_for(self, sql: SQLAlchemyDialect) -> tuple[int, ...]:
        return (10, 6) if is_mariadb(sql) else self.minimum

    def facts(self, connection: Connection, jobs: Table) -> dict[str, str]:
        # Not every server has all of them.
        query = text(
            "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('innodb_snapshot_isolation', 'innodb_lock_wait_timeout', "
            "'innodb_flush_log_at_trx_commit', 'innodb_doublewrite', 'innodb_buffer_pool_size', 'sync_binlog', 'binlog_format', "
            "'log_bin', 'max_allowed_packet', 'max_connections', 'transaction_isolation', 'tx_isolation')"
        )
        units = {"innodb_lock_wait_timeout": " s", "innodb_buffer_pool_size": " bytes", "max_allowed_packet": " bytes"}
        return {str(name): f"{value}{units.get(name, '')}" for name, value in connection.execute(query)}

    def engine_options(self, url: URL) -> dict[str, Any]:
        # PyMySQL has no read timeout by default and would wait without end for a stopped server.
        waits = {
            "connect_timeout": 10,
            "read_timeout": GONE_AFTER,
            "write_timeout": GONE_AFTER,
            "charset": "utf8mb4",
            "init_command": lock_waits(10),
        }
        unknown = _LACKING.get(url.get_driver_name(), ())
        return {"connect_args": {name: value for name, value in waits.items() if name not in url.query and name not in unknown}}

    @contextmanager
    def long_statements(self, connection: Connection) -> Iterator[None]:
        driver: Any = connection.connection.driver_connection
        limits = {name: getattr(driver, name) for name in ("_read_timeout", "_write_timeout") if getattr(driver, name, None)}
        for name, seconds in limits.items():
            setattr(driver, name, max(seconds, LONG))
        try:
            yield
        finally:
            for name, seconds in limits.items():
                setattr(driver, name, seconds)

    def database_of(self, connection: Connection) -> str | None:
        found: str | None = connection.execute(select(func.database())).scalar_one()
        return found

    def prepare(self, engine: Engine, *, made_here: bool) -> Engine:
        # At REPEATABLE READ, their default, an update sees an old snapshot, and an empty locking read keeps producers out.
        if not made_here:
            return engine.execution_options(isolation_level="READ COMMITTED")
        event.listen(engine, "connect", _read_committed)
        if "read_timeout" in _LACKING.get(engine.dialect.driver, ()):
            event.listen(engine, "connect", limit_waits)
        return engine

    def is_idle(self, driver: Any) -> bool:
        # Those for asyncio have a method; the C libraries do not show it.
        status = getattr(driver, "get_transaction_status", None)
        if status is not None:
            return not status()
        return not (getattr(driver, "server_status", 0) or 0) & _IN_TRANSACTION

    def code(self, error: DBAPIError) -> str | None:
        args = getattr(error.orig, "args", ())
        if not args or not isinstance(args[0], int):
            return None
        number = _NUMBER.search(str(args[1])) if args[0] in _NUMBERED and len(args) > 1 else None
        return f"{args[0]}-{number[0]}" if number else str(args[0])

    def detail(self, error: DBAPIError) -> str:
        args: tuple[Any, ...] = getattr(error.orig, "args", ())
        return str(args[1]) if len(args) > 1 else str(error.orig)

    when_read_only: ClassVar[str] = "connect to the primary, or switch read_only off"

    def grantee(self, connection: Connection) -> str:
        # The account that the server has chosen for this user. A GRANT to a name alone is one to its account for all hosts, which
        # need not exist.
        name, _, host = str(connection.execute(text("SELECT CURRENT_USER()")).scalar_one()).rpartition("@")
        return "@".join("'" + part.replace("'", "''") + "'" for part in (name, host))

    def open_transactions(self, connection: Connection, age: float) -> list[OpenTransaction]:
        if self.hidden_transactions(connection):
            return []
        rows = connection.execute(_OPEN, {"age": age, "most": MOST})
        return [OpenTransaction(row.state or "unknown", row.name, float(row.age), f"KILL {row.thread}") for row in rows]

    def hidden_transactions(self, connection: Connection) -> str | None:
        try:
            connection.execute(text("SELECT 1 FROM information_schema.innodb_trx LIMIT 1")).close()
        except DBAPIError as error:
            if getattr(error.orig, "args", (None,))[0] != _NOT_ALLOWED:
                raise
            return f"GRANT PROCESS ON *.* TO {self.grantee(connection)}"
        return None


def lock_waits(seconds: int) -> str:
    """The statement that limits the waits of a session for locks."""
    # The defaults are 50 s for a row, longer than most leases, and a year (MariaDB: a day) for a table: the server would keep an
    # ALTER TABLE waiting after its client has gone, and each statement of the others behind it.
    return f"SET SESSION innodb_lock_wait_timeout = {seconds}, SESSION lock_wait_timeout = {seconds}"


def _read_committed(connection: Any, _: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")


def is_mariadb(sql: SQLAlchemyDialect) -> bool:
    """Whether the server is MariaDB."""
    return bool(getattr(sql, "is_mariadb", False))
