"""MySQL 8.0 and MariaDB 10.6 and later, through PyMySQL, and aiomysql or asyncmy for asyncio."""

from __future__ import annotations

from typing import Any, ClassVar

from sqlalchemy import (
    Connection,
    Select,
    Table,
    Update,
)
from sqlalchemy.engine.interfaces import Dialect as SQLAlchemyDialect
from sqlalchemy.ext.compiler import compiles

from queue_db.dialects import statements
from queue_db.dialects.base import Dialect, Statement
from queue_db.dialects.clock import column_text, instant, length, now_us
from queue_db.dialects.error_codes import ErrorCodes
from queue_db.dialects.inserts import Inserts
from queue_db.dialects.mysql_inserts import MySQLInserts
from queue_db.dialects.mysql_server import ERRORS, MySQLServer, has_several_writers, is_mariadb
from queue_db.dialects.server import Drivers, Product, Server
from queue_db.dialects.statements import Pairs
from queue_db.dialects.transactions import Sender
from queue_db.model import Capability


@compiles(now_us, "mysql", "mariadb")
def _now(element: now_us, compiler: Any, **kw: Any) -> str:
    # UTC_TIMESTAMP does not follow the session's time zone, and TIMESTAMPDIFF still works after 2038.
    return "(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)))"


@compiles(column_text, "mysql", "mariadb")
def _binary(element: column_text, compiler: Any, **kw: Any) -> str:
    # Without the CAST, a parameter has the collation of the connection, in which "Mail" and "mail" are equal.
    text = compiler.process(element.clauses.clauses[0], **kw)
    return f"CAST({text} AS CHAR({length(element)}) CHARACTER SET utf8mb4) COLLATE utf8mb4_bin"


@compiles(instant, "mysql", "mariadb")
def _instant(element: instant, compiler: Any, **kw: Any) -> str:
    micros = compiler.process(next(iter(element.clauses)), **kw)
    return f"TIMESTAMPADD(MICROSECOND, {micros}, TIMESTAMP'1970-01-01 00:00:00')"


class MySQL(Dialect):
    """MySQL and MariaDB. Neither has UPDATE … RETURNING. Only MariaDB has DELETE … RETURNING."""

    names: ClassVar[tuple[str, ...]] = ("mysql", "mariadb")
    title: ClassVar[str] = "MySQL"
    minimum: ClassVar[tuple[int, ...]] = (8, 0, 13)
    capabilities: ClassVar[frozenset[Capability]] = frozenset(
        {Capability.SKIP_LOCKED, Capability.ROW_LOCKS, Capability.CONCURRENT_WRITERS}
    )
    drivers: ClassVar[Drivers] = Drivers(
        "pymysql",
        "mysql",
        "aiomysql",
        "async-mysql",
        dict.fromkeys(("ssl_disabled", "read_timeout", "write_timeout")),
        3306,
    )
    errors: ClassVar[ErrorCodes] = ERRORS
    inserts: ClassVar[Inserts] = MySQLInserts()
    server_type: ClassVar[type[Server]] = MySQLServer
    autocommits: ClassVar[bool] = True
    unique_queue: ClassVar[bool] = True

    def product(self, sql: SQLAlchemyDialect, connection: Connection | None = None) -> Product:
        can = self.capabilities
        if connection is not None and has_several_writers(connection):
            can |= {Capability.SEVERAL_WRITERS}
        if is_mariadb(sql):
            return Product("MariaDB", (10, 6), can | {Capability.DELETE_RETURNING})
        return Product(self.title, self.minimum, can)

    by_id_hint: ClassVar[str] = " FORCE INDEX (PRIMARY)"

    def by_id(self, statement: Statement, jobs: Table) -> Statement:
        # While the table is small, the planner prefers to read the whole table. Such a read waits for rows that other transactions
        # have locked, and two workers with different jobs can deadlock.
        if isinstance(statement, Select):
            return statement.with_hint(jobs, FORCE)
        return statement.with_hint(FORCE) if isinstance(statement, Update) else statement

    def delete_returning(self, tx: Sender, jobs: Table, pairs: Pairs) -> set[int]:
        sql: Any = tx.connection.dialect
        returns = sql.is_mariadb and (sql.server_version_info or ()) >= _HINTS_IN_DELETE
        if not returns:
            pairs = self.hold(tx, jobs, pairs)
        if not pairs:
            return set()
        # Delete in id order, so that two settles cannot deadlock. For a single row the planner uses the primary key without a hint.
        one, values, texts = len(pairs) == 1, self.wanted(sorted(pairs)), statements.on(self, jobs, sql)
        if returns:
            gone = tx.fetch(texts.made(statements.delete, one=one, returns=True, hint="" if one else self.by_id_hint), values)
            return {job_id for (job_id,) in gone}
        # Not every DELETE from one table takes a hint, so use the form of DELETE for several tables, which always takes one.
        delete = texts.made(statements.delete, one=one, hint="" if one else f" USING {texts.by_id}")
        return {job_id for job_id, _ in pairs} if tx.execute(delete, values) else set()

    def by_claim(self, rows: Select[Any], jobs: Table) -> Select[Any]:
        # If few jobs have unique keys, the planner prefers the index of the unique keys. The query would then lock and sort the
        # whole queue.
        return rows.with_hint(jobs, f"FORCE INDEX ({jobs.name}_claim)")

    def by_group(self, rows: Select[Any], jobs: Table, key: str, above: int) -> Select[Any]:
        # Without the hint, the planner might prefer the index of the unique keys, as in by_claim.
        return super().by_group(rows, jobs, key, above).with_hint(jobs, f"FORCE INDEX ({jobs.name}_group)")


FORCE = "FORCE INDEX (PRIMARY)"

# The first version of MariaDB that takes hints in a DELETE from one table. Only this form of DELETE can return rows.
_HINTS_IN_DELETE = (11, 8)
