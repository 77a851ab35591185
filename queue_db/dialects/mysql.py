"""MySQL 8.0 and MariaDB 10.6 and later, through PyMySQL, and aiomysql or asyncmy for asyncio."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from itertools import chain
from typing import Any, ClassVar

from sqlalchemy import (
    URL,
    ColumnElement,
    Connection,
    Engine,
    Executable,
    Select,
    Table,
    Update,
    event,
    func,
    select,
    text,
)
from sqlalchemy.engine.interfaces import Dialect as SQLAlchemyDialect
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.compiler import compiles

from queue_db.dialects import asynchronous, direct, grouping, statements
from queue_db.dialects.base import Dialect
from queue_db.dialects.clock import instant, now_us
from queue_db.dialects.grouping import Member
from queue_db.dialects.mysql_diagnosis import MySQLDiagnosis
from queue_db.dialects.seam import Rows, Statement
from queue_db.dialects.statements import Columns, JobsText, Pairs, kept
from queue_db.dialects.texts import column_text, length
from queue_db.dialects.transactions import Sender, savepoint
from queue_db.errors import TransientStorageError
from queue_db.model import Capability, Fault


@compiles(now_us, "mysql", "mariadb")
def _now(element: now_us, compiler: Any, **kw: Any) -> str:
    # UTC_TIMESTAMP does not follow the session's time zone, and the number does not end in 2038.
    return "(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)))"


@compiles(column_text, "mysql", "mariadb")
def _binary(element: column_text, compiler: Any, **kw: Any) -> str:
    # A parameter has the collation of the connection, to which "Mail" and "mail" are the same.
    text = compiler.process(element.clauses.clauses[0], **kw)
    return f"CAST({text} AS CHAR({length(element)}) CHARACTER SET utf8mb4) COLLATE utf8mb4_bin"


@compiles(instant, "mysql", "mariadb")
def _instant(element: instant, compiler: Any, **kw: Any) -> str:
    micros = compiler.process(next(iter(element.clauses)), **kw)
    return f"TIMESTAMPADD(MICROSECOND, {micros}, TIMESTAMP'1970-01-01 00:00:00')"


class MySQL(MySQLDiagnosis, Dialect):
    """No UPDATE … RETURNING on either server; DELETE … RETURNING on MariaDB."""

    names: ClassVar[tuple[str, ...]] = ("mysql", "mariadb")
    title: ClassVar[str] = "MySQL"
    default_driver: ClassVar[str | None] = "pymysql"
    extra: ClassVar[str] = "mysql"
    async_driver: ClassVar[str | None] = "aiomysql"
    async_extra: ClassVar[str] = "async-mysql"
    schemas_are_databases: ClassVar[bool] = True
    async_options: ClassVar[Mapping[str, str | None]] = dict.fromkeys(("ssl_disabled", "read_timeout", "write_timeout"))
    autocommits: ClassVar[bool] = True
    returns_new_id: ClassVar[bool] = False  # MariaDB could; without, it is one statement for both
    # InnoDB's rows are stored in this order, and read in it by the primary key, whether by ranges or from end to end.
    updates_in_order: ClassVar[bool] = True
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
            "read_timeout": asynchronous.GONE_AFTER,
            "write_timeout": asynchronous.GONE_AFTER,
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
            event.listen(engine, "connect", asynchronous.limit_waits)
        return engine

    def is_idle(self, driver: Any) -> bool:
        # Those for asyncio have a method; the C libraries do not show it.
        status = getattr(driver, "get_transaction_status", None)
        if status is not None:
            return not status()
        return not (getattr(driver, "server_status", 0) or 0) & _IN_TRANSACTION

    def random(self) -> ColumnElement[float]:
        return func.rand()

    by_id_hint: ClassVar[str] = " FORCE INDEX (PRIMARY)"

    def by_id(self, statement: Statement, jobs: Table) -> Statement:
        # While the table is small they would rather read all of it. That waits for rows that others have locked, and two workers
        # with different jobs wait for each other in a circle.
        if isinstance(statement, Select):
            return statement.with_hint(jobs, FORCE)
        return statement.with_hint(FORCE) if isinstance(statement, Update) else statement

    def delete_returning(self, tx: Sender, jobs: Table, pairs: Pairs) -> set[int]:
        sql = tx.connection.dialect
        returns = is_mariadb(sql) and (len(pairs) == 1 or (sql.server_version_info or ()) >= _HINTS_IN_DELETE)
        if len(pairs) > 1 and not returns:
            tx.begin()
            pairs = self.hold(tx, jobs, pairs)
        if not pairs:
            return set()
        # In id order, so that two settles cannot wait for each other in a circle. One row is found by its primary key anyway.
        one, values, texts = len(pairs) == 1, self.wanted(sorted(pairs)), statements.on(self, jobs, sql)
        if returns:
            gone = tx.fetch(texts.made(statements.delete, one=one, returns=True, hint="" if one else self.by_id_hint), values)
            return {job_id for (job_id,) in gone}
        # Where a DELETE takes no hint, the form for several tables does.
        delete = texts.made(statements.delete, one=one, hint="" if one else f" USING {texts.by_id}")
        return {job_id for job_id, _ in pairs} if tx.execute(delete, values) else set()

    def by_claim(self, rows: Select[Any], jobs: Table) -> Select[Any]:
        # With few keyed jobs the planner prefers the index of the keys: it would lock the whole queue, and then sort it.
        return rows.with_hint(jobs, f"FORCE INDEX ({jobs.name}_claim)")

    def first_in_groups(self, tx: Sender, jobs: Table, queue: str, keys: Sequence[str], most: int, *, locks: bool) -> list[Member]:
        sql = tx.connection.dialect
        ordered = (sql.server_version_info or ()) >= (_ORDERED_MARIADB if is_mariadb(sql) else _ORDERED_MYSQL)
        if most > 1 or locks or len(keys) == 1 or not ordered:
            return super().first_in_groups(tx, jobs, queue, keys, most, locks=locks)
        # To read and plan a query for each group costs five times as much.
        values = {"of_queue": queue, "keys": json.dumps(list(keys), ensure_ascii=False)}
        rows = tx.fetch(grouping.first_of_each(jobs, f"FORCE INDEX ({jobs.name}_group)"), values)
        return [(place, job_id, version, due) for place, job_id, version, due in rows]

    def by_group(self, rows: Select[Any], jobs: Table, key: str, above: int) -> Select[Any]:
        # The same, for a queue with few keyed jobs.
        return super().by_group(rows, jobs, key, above).with_hint(jobs, f"FORCE INDEX ({jobs.name}_group)")

    def bulk_load(self, tx: Sender, jobs: Table, rows: Rows, now: int | None) -> list[int]:
        ids: list[int] = []
        columns, values = self.dated(tx, rows, now)
        parts = _parts(values)
        insert_part = self._insert_returning if is_mariadb(tx.connection.dialect) else self._insert_and_read
        # A part with a key that another transaction inserted meanwhile must undo the parts before it too.
        with savepoint(tx.connection) if len(parts) > 1 else nullcontext():
            for part in parts:
                ids += insert_part(tx, jobs, columns, part)
        return ids

    def _insert_returning(self, tx: Sender, jobs: Table, columns: Columns, rows: Sequence[tuple[Any, ...]]) -> list[int]:
        """Insert ``rows`` in one statement, which returns their ids in their order."""
        if len(rows) == 1:
            return [self.load(tx, jobs, columns, rows)]
        sql = tx.connection.dialect
        one = direct.written(statements.on(self, jobs, sql).made(statements.insert_into, columns=columns, returns=True), sql)
        into, _, row = one.text.removesuffix(_RETURNING).partition(" VALUES ")
        statement = f"{into} VALUES {', '.join([row] * len(rows))}{_RETURNING}"
        return [job_id for (job_id,) in tx.rows(statement, tuple(chain.from_iterable(rows)))]

    def _insert_and_read(self, tx: Sender, jobs: Table, columns: Columns, rows: Sequence[tuple[Any, ...]]) -> list[int]:
        """Insert ``rows`` in one statement, and read where their ids end.

        The driver gives the first id. The step from one to the next is the same within a statement; but it is a setting that a
        cluster changes in open sessions. If as many jobs as were inserted have their time, these are the jobs.
        """
        first, number = self.load(tx, jobs, columns, rows), len(rows)
        if number == 1:
            return [first]
        texts, now = statements.on(self, jobs, tx.connection.dialect), rows[0][-1]
        ((there, last),) = tx.fetch(texts.made(_inserted), {"of_id": first, "now": now})
        step, uneven = divmod((last or 0) - first, number - 1)
        if there != number or uneven:
            # Another transaction has inserted jobs at the same time, to the microsecond.
            step = int(tx.connection.execute(text("SELECT @@auto_increment_increment")).scalar_one())
        ids = range(first, first + step * number, step)
        if there != number:
            same = tx.fetch(texts.made(_among), {"of_ids": list(ids), "now": now})
            if len(same) < number:
                raise TransientStorageError(
                    "the new jobs have other ids than the server has announced", statement_name="insert_new"
                )
        return list(ids)

    def code(self, error: DBAPIError) -> str | None:
        args = getattr(error.orig, "args", ())
        if not args or not isinstance(args[0], int):
            return None
        number = _NUMBER.search(str(args[1])) if args[0] in _NUMBERED and len(args) > 1 else None
        return f"{args[0]}-{number[0]}" if number else str(args[0])

    def detail(self, error: DBAPIError) -> str:
        args: tuple[Any, ...] = getattr(error.orig, "args", ())
        return str(args[1]) if len(args) > 1 else str(error.orig)


# ruff: noqa: S608 - the texts are made of constants and of table names that SQLAlchemy has quoted; values are bound.

# Seconds for a statement of minutes.
LONG = 1800

# Errors of COMMIT and of a statement that pass on the error number of a storage engine, which is only in their texts.
_NUMBERED = frozenset({1180, 1030})
_NUMBER = re.compile(r"\d+")

# Options that some drivers do not have.
_LACKING: Mapping[str, tuple[str, ...]] = {"aiomysql": ("read_timeout", "write_timeout"), "asyncmy": ("write_timeout",)}


FORCE = "FORCE INDEX (PRIMARY)"

# SERVER_STATUS_IN_TRANS: in each reply that is not an error.
_IN_TRANSACTION = 1

# Versions that are known to find the first row of a dependent subquery in the order of its index. MariaDB 10.11 reads and sorts all
# rows of the group.
_ORDERED_MARIADB = (11, 8)
_ORDERED_MYSQL = (8, 4)

# MariaDB takes hints in a DELETE from one table, the only form that can return rows.
_HINTS_IN_DELETE = (11, 8)


# PyMySQL's limit for joining rows into one statement is 1,024,000 bytes after escaping, which may double a text.
_STATEMENT_BYTES = 1_000_000


def _parts(rows: Sequence[tuple[Any, ...]]) -> list[list[tuple[Any, ...]]]:
    """Cut ``rows`` so that each part is one statement for the driver."""
    parts: list[list[tuple[Any, ...]]] = [[]]
    room = _STATEMENT_BYTES
    for row in rows:
        # Four bytes for a character at most, and an escape for each.
        size = 200 + 2 * sum([len(value) * (1 if value.isascii() else 4) for value in row if type(value) is str])
        if size > room and parts[-1]:
            parts.append([])
            room = _STATEMENT_BYTES
        parts[-1].append(row)
        room -= size
    return parts


_RETURNING = " RETURNING id"


def _inserted(jobs: JobsText) -> Executable:
    """How many jobs from the id ``of_id`` on were inserted at this time, and the last of them."""
    rows = f"FROM {jobs.by_id} WHERE id >= :of_id AND created_at = :now"
    return kept(f"SELECT count(*) AS inserted, max(id) AS last_inserted {rows}", "inserted", "last_inserted")


def _among(jobs: JobsText) -> Executable:
    """Those of ``of_ids`` that were inserted at this time."""
    return jobs.kept(f"SELECT id FROM {jobs.by_id} WHERE id IN :of_ids AND created_at = :now", "id")


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
