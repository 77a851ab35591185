"""MySQL and MariaDB servers: connections, error codes, and diagnosis."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar

from sqlalchemy import URL, Connection, Engine, Table, event, func, select, text
from sqlalchemy.engine.interfaces import Dialect as SQLAlchemyDialect
from sqlalchemy.exc import DBAPIError

from queue_db.dialects import raw_cursor
from queue_db.dialects.server import GONE_AFTER, MOST, OpenTransaction, Server, limit_waits
from queue_db.dialects.transactions import Sender
from queue_db.model import Capability, Fault

# Times in innodb_trx are in the server's time zone, and NOW() is in the session's. A transaction at READ COMMITTED that has locked
# nothing delays nothing. Thread 0 stands for a transaction without a connection.
_OPEN = text(
    "SELECT t.trx_mysql_thread_id AS thread, p.user AS name, p.command AS state, "
    "TIMESTAMPDIFF(SECOND, t.trx_started, CONVERT_TZ(NOW(), @@session.time_zone, 'SYSTEM')) AS age "
    "FROM information_schema.innodb_trx t LEFT JOIN information_schema.processlist p ON p.id = t.trx_mysql_thread_id "
    "WHERE t.trx_mysql_thread_id NOT IN (0, CONNECTION_ID()) "
    "AND (t.trx_isolation_level IN ('REPEATABLE READ', 'SERIALIZABLE') OR t.trx_rows_locked + t.trx_rows_modified > 0) "
    "HAVING age >= :age ORDER BY age DESC LIMIT :most"
)

# The error number if the user lacks the privilege PROCESS.
_NOT_ALLOWED = 1227

# Network timeout in seconds while statements that take minutes run.
LONG = 1800

# Errors of COMMIT and of statements whose message contains the error number of the storage engine.
_NUMBERED = frozenset({1180, 1030})
_NUMBER = re.compile(r"\d+")

# Driver → options of connections that it lacks.
_LACKING: Mapping[str, tuple[str, ...]] = {"aiomysql": ("read_timeout", "write_timeout"), "asyncmy": ("write_timeout",)}

# The flag SERVER_STATUS_IN_TRANS. Each reply of the server that is not an error has these flags.
_IN_TRANSACTION = 1


class MySQLServer(Server):
    """Makes engines at READ COMMITTED with a limit on every wait; names accounts with their hosts."""

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
    # 1020 is a lost version check with innodb_snapshot_isolation. The other numbers without a suffix are a deadlock, a lock wait
    # timeout, and a connection that was lost or refused. In a cluster with several writers, a transaction can conflict with one of
    # another node. Then COMMIT fails, or the transaction is rolled back with its savepoints: 3101 and the numbers with a suffix
    # (_NUMBERED).
    transient: ClassVar[frozenset[str]] = frozenset(
        {"1020", "1213", "1205", "2002", "2003", "2006", "2013", "1040", "1053", "1927", "4031", "3101", "1180-149", "1030-153"}
    )

    # 1290: read_only or super_read_only is on. 1836: InnoDB is read-only. The others: a node of Galera that has lost its cluster
    # refuses statements or a COMMIT.
    read_only: ClassVar[frozenset[str]] = frozenset({"1290", "1836", "1047", "1180", "1180-107"})

    # The disk, a tablespace or a table is full. The numbers with a suffix are the same failure of a storage engine (_NUMBERED).
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
        # Not every server has all of these variables.
        query = text(
            "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('innodb_snapshot_isolation', 'innodb_lock_wait_timeout', "
            "'innodb_flush_log_at_trx_commit', 'innodb_doublewrite', 'innodb_buffer_pool_size', 'sync_binlog', 'binlog_format', "
            "'log_bin', 'max_allowed_packet', 'max_connections', 'transaction_isolation', 'tx_isolation')"
        )
        units = {"innodb_lock_wait_timeout": " s", "innodb_buffer_pool_size": " bytes", "max_allowed_packet": " bytes"}
        return {str(name): f"{value}{units.get(name, '')}" for name, value in connection.execute(query)}

    def engine_options(self, url: URL) -> dict[str, Any]:
        # PyMySQL has no read timeout by default and would wait forever for a stopped server.
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
        # At REPEATABLE READ, the default, reads use an old snapshot. A locking read that finds no row blocks inserts.
        if not made_here:
            return engine.execution_options(isolation_level="READ COMMITTED")
        event.listen(engine, "connect", _read_committed)
        if "read_timeout" in _LACKING.get(engine.dialect.driver, ()):
            event.listen(engine, "connect", limit_waits)
        return engine

    def is_idle(self, driver: Any) -> bool:
        # Drivers for asyncio have a method for the status; drivers that use the C library do not show it.
        status = getattr(driver, "get_transaction_status", None)
        if status is not None:
            return not status()
        return not (getattr(driver, "server_status", 0) or 0) & _IN_TRANSACTION

    def known_alive(self, tx: Sender) -> bool:
        # Only for the library's own connections with PyMySQL: other drivers do not show their socket.
        source = getattr(tx._driver, "_sock", None) if tx.sends_raw else None  # noqa: SLF001 - a dialect knows the driver
        return source is not None and raw_cursor.lively(tx.info, source)

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
        # CURRENT_USER() is the account with which the server has authenticated this user. A GRANT to a name without a host is for
        # the account 'name'@'%', which might not exist.
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
    # The default for a row is 50 s, longer than most leases. The default for a table is a year (MariaDB: a day): an ALTER TABLE
    # would wait on after its client has disconnected, and would block all later statements on the table.
    return f"SET SESSION innodb_lock_wait_timeout = {seconds}, SESSION lock_wait_timeout = {seconds}"


def _read_committed(connection: Any, _: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")


def is_mariadb(sql: SQLAlchemyDialect) -> bool:
    """Whether the server is MariaDB."""
    return bool(getattr(sql, "is_mariadb", False))
