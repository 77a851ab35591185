"""MySQL and MariaDB servers: connections and error codes."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, ClassVar

from sqlalchemy import URL, Connection, Engine, event, func, select, text
from sqlalchemy.engine.interfaces import Dialect as SQLAlchemyDialect
from sqlalchemy.exc import DBAPIError

from queue_db.dialects import raw_cursor
from queue_db.dialects.error_codes import ErrorCodes
from queue_db.dialects.nodes import MySQLNodes, Nodes
from queue_db.dialects.server import GONE_AFTER, Server, limit_waits
from queue_db.dialects.transactions import Sender
from queue_db.model import Fault

# Error numbers of COMMIT (1180), ROLLBACK (1181) and statements (1030) whose messages contain the error number of the storage
# engine, or say that the transaction exceeds a limit of Galera (wsrep_max_ws_rows) and was rolled back.
_NUMBERED = frozenset({1180, 1181, 1030})
_NUMBER = re.compile(r"\d+|exceeded")

# Driver → options of connections that this driver lacks.
_LACKING: Mapping[str, tuple[str, ...]] = {"aiomysql": ("read_timeout", "write_timeout"), "asyncmy": ("write_timeout",)}

_SINGLE_PRIMARY = "group_replication_single_primary_mode"
_CLUSTER = text(
    "SHOW GLOBAL VARIABLES WHERE Variable_name IN "
    f"('wsrep_on', 'wsrep_provider', 'group_replication_group_name', '{_SINGLE_PRIMARY}')"
)

# The flag SERVER_STATUS_IN_TRANS of the status that each reply of the server contains, unless the reply is an error.
_IN_TRANSACTION = 1


def _code(error: DBAPIError) -> str | None:
    args = getattr(error.orig, "args", ())
    if not args or not isinstance(args[0], int):
        return None
    number = _NUMBER.search(str(args[1])) if args[0] in _NUMBERED and len(args) > 1 else None
    return f"{args[0]}-{number[0]}" if number else str(args[0])


def _message(error: DBAPIError) -> str:
    args: tuple[Any, ...] = getattr(error.orig, "args", ())
    return str(args[1]) if len(args) > 1 else str(error.orig)


# 1290: read_only or super_read_only is on. 1836: InnoDB is read-only. The other codes: a node of Galera (1047, 1180) or of Group
# Replication (3100) that has lost its cluster refuses statements or a COMMIT.
_READ_ONLY = frozenset({"1290", "1836", "1047", "1180", "1180-107", "3100"})

# A node has lost its cluster during a COMMIT. The other nodes may have got the transaction, and then they commit it.
_IN_DOUBT = frozenset({"1180", "1180-107", "3100"})

ERRORS = ErrorCodes(
    code=_code,
    message=_message,
    # 1020: a lost version check with innodb_snapshot_isolation. 1213: a deadlock. 1205: a lock wait timeout. 3101 and the codes
    # with a suffix (_NUMBERED): a conflict with a transaction of another node, in a cluster with several writers. COMMIT fails, or
    # the transaction is rolled back with its savepoints. The other numbers: a connection that was lost or refused.
    transient=_READ_ONLY
    | {"1020", "1213", "1205", "2002", "2003", "2006", "2013", "1040", "1053", "1927", "4031"}
    | {"3101", "1180-149", "1030-153", "1181-153"},
    read_only=_READ_ONLY,
    in_doubt=_IN_DOUBT,
    # The disk, a tablespace or a table is full. The codes with a suffix come from a storage engine (_NUMBERED).
    full=frozenset({"1021", "1114", "1030-28", "1180-28"}),
    # max_execution_time of MySQL, max_statement_time of MariaDB.
    expired=frozenset({"3024", "1969"}),
    faults={
        "1213": Fault.DEADLOCK,
        "1020": Fault.SERIALIZATION,
        "3101": Fault.SERIALIZATION,
        "1180-149": Fault.SERIALIZATION,
        "1030-153": Fault.SERIALIZATION,
        "1181-153": Fault.SERIALIZATION,
        "1205": Fault.LOCK_TIMEOUT,
        "3572": Fault.LOCK_TIMEOUT,
    },
)


class MySQLServer(Server):
    """Makes engines at READ COMMITTED with a limit on every wait."""

    schemas_are_databases: ClassVar[bool] = True
    nodes: ClassVar[Nodes] = MySQLNodes()

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

    def database_of(self, connection: Connection) -> str | None:
        found: str | None = connection.execute(select(func.database())).scalar_one()
        return found

    def prepare(self, engine: Engine, *, made_here: bool) -> Engine:
        # Use READ COMMITTED. At REPEATABLE READ, the default, reads use an old snapshot, and a locking read that finds no row
        # blocks inserts.
        if not made_here:
            return engine.execution_options(isolation_level="READ COMMITTED")
        event.listen(engine, "connect", _read_committed)
        event.listen(engine, "connect", _show_conflicts)
        if engine.dialect.driver == "pymysql":
            event.listen(engine, "connect", _remember_descriptions)
        if "read_timeout" in _LACKING.get(engine.dialect.driver, ()):
            event.listen(engine, "connect", limit_waits)
        return engine

    def is_idle(self, driver: Any) -> bool:
        # Drivers for asyncio have a method for the status. Drivers that use the C library do not show the status and count as idle.
        status = getattr(driver, "get_transaction_status", None)
        if status is not None:
            return not status()
        return not (getattr(driver, "server_status", 0) or 0) & _IN_TRANSACTION

    def known_alive(self, tx: Sender) -> bool:
        # Only the library's own connections with PyMySQL are checked, because other drivers do not show their socket.
        source = getattr(tx._driver, "_sock", None) if tx.sends_raw else None  # noqa: SLF001 - a dialect knows the driver
        return source is not None and raw_cursor.lively(tx.info, source)


def lock_waits(seconds: int) -> str:
    """The statement that limits the waits of a session for locks."""
    # The default for a row is 50 s, longer than most leases. The default for a table is a year (MariaDB: a day): an ALTER TABLE
    # would wait on after its client has disconnected, and would block all later statements on the table.
    return f"SET SESSION innodb_lock_wait_timeout = {seconds}, SESSION lock_wait_timeout = {seconds}"


def _remember_descriptions(connection: Any, _: Any) -> None:
    """Let a connection of PyMySQL parse each description of a column once."""
    of: Any = type(connection)
    made = _remembering(of)
    if made is not None:
        connection.__class__ = made


@lru_cache(maxsize=8)
def _remembering(of: Any) -> type[Any] | None:
    """The class of PyMySQL's connections, except that it parses each description of a column once; None: ``of`` is another class.

    Each result begins with descriptions of its columns. PyMySQL spends more than a third of its work on a job to parse them.
    The bytes are the same at each execution of a statement, and nothing changes the parsed object.
    """
    pymysql: Any = sys.modules.get("pymysql.connections")
    described, read = getattr(pymysql, "FieldDescriptorPacket", None), getattr(of, "_read_packet", None)
    if described is None or read is None or of is not getattr(pymysql, "Connection", None):
        return None  # a tracer's class, or a version of PyMySQL that reads in another way
    parsed = lru_cache(maxsize=1024)(described)

    def read_packet(self: Any, *kind: Any) -> Any:
        return read(self, *[parsed if one is described else one for one in kind])

    bases: tuple[Any, ...] = (of,)
    made: type[Any] = type("Connection", bases, {"_read_packet": read_packet})
    return made


def _read_committed(connection: Any, _: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")


def _show_conflicts(connection: Any, _: Any) -> None:
    """Let Galera report a conflict of a statement that commits by itself, in place of running it again."""
    # The answer has then also the rows of the first run, which was rolled back: a completion seems to have deleted its jobs.
    with connection.cursor() as cursor:
        cursor.execute("SHOW VARIABLES LIKE 'wsrep_retry_autocommit'")
        if cursor.fetchall():
            cursor.execute("SET SESSION wsrep_retry_autocommit = 0")


def is_mariadb(sql: SQLAlchemyDialect) -> bool:
    """Whether the server is MariaDB."""
    return bool(getattr(sql, "is_mariadb", False))


def has_several_writers(connection: Connection) -> bool:
    """Whether other nodes of a cluster take changes too, without seeing this node's row locks."""
    # SHOW needs no rights, and a node of Galera that has lost its cluster answers it. A server has only some of the variables.
    found: dict[str, str] = {str(name): str(value) for name, value in connection.execute(_CLUSTER)}
    galera = found.get("wsrep_on") == "ON" and found.get("wsrep_provider") != "none"
    # The plugin of Group Replication may be there without a group.
    return galera or (bool(found.get("group_replication_group_name")) and found[_SINGLE_PRIMARY] == "OFF")
