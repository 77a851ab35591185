"""TiDB 7.5 and later. NOT RUN HERE: run the conformance suite on yours before you trust it. Never use mysql:// for TiDB.

URL: tidb://user:password@a,b,c/shop?nodes=all of a database with TiDB's default collation, utf8mb4_bin

Known from https://docs.pingcap.com/tidb/stable/ and from issues of pingcap/tidb:
- issue 69720: SKIP LOCKED is read and ignored WITH the lock: two transactions "lock" the same row. The dialect never sends it.
- data-type-default-values: a default calls few functions, and no clock: each INSERT brings the time with it.
- auto-increment: ids come from a step of each server; with AUTO_ID_CACHE=1, which MySQL takes for a comment, from one place.
- mysql-compatibility, generated-columns: a clustered primary key is not changed, a stored column not added: hence a name of its own
  for SQLAlchemy, for which the migrations do neither. json-functions: no JSON_TABLE.
- error-codes: 8002, 8005, 8022, 8028, 9007: a conflict: run the transaction again. 9001 to 9005 without 9004: the storage is away.
- The version is 8.0.11-TiDB-…, which the queue would refuse as too old a MySQL.

Guessed: hints (FORCE INDEX) in UPDATE and DELETE; the clock is that of the server that one is connected to. What TiDB says when a
COMMIT may have taken effect is not documented: such an error counts as permanent.
"""

from dataclasses import replace
from typing import Any, ClassVar

from alembic.ddl.mysql import MySQLImpl
from sqlalchemy import Column, Insert, Select, Table, Text
from sqlalchemy.dialects import registry
from sqlalchemy.dialects.mysql.base import MySQLDDLCompiler
from sqlalchemy.dialects.mysql.pymysql import MySQLDialect_pymysql
from sqlalchemy.ext.compiler import compiles

from queue_db.dialects.clock import now_us, write_as
from queue_db.dialects.error_codes import ErrorCodes
from queue_db.dialects.mysql import MySQL
from queue_db.dialects.server import Drivers
from queue_db.feeds.dialects import FeedDialect
from queue_db.groups.dialects import GroupDialect
from queue_db.model import Capability, Fault

write_as("tidb", like="mysql")


def _is_time(column: Any) -> bool:
    return isinstance(getattr(getattr(column, "server_default", None), "arg", None), now_us)


class _Tables(MySQLDDLCompiler):
    def get_column_default_string(self, column: Column[Any]) -> str | None:
        return None if _is_time(column) else super().get_column_default_string(column)

    def post_create_table(self, table: Table) -> str:
        return f"{super().post_create_table(table)} /*T![auto_id_cache] AUTO_ID_CACHE=1 */"


@compiles(Insert, "tidb")
def _with_times(statement: Any, compiler: Any, **kw: Any) -> str:
    values, many = statement._values, statement._multi_values  # noqa: SLF001 - SQLAlchemy has no public way
    if statement.select is None and not many:
        given = {*(compiler.column_keys or ()), *(getattr(column, "key", column) for column in values or ())}
        times = {column.key: now_us() for column in statement.table.columns if _is_time(column) and column.key not in given}
        statement = statement.values(times) if times else statement
    return str(compiler.visit_insert(statement, **kw))


@compiles(Text, "tidb")
def _long(element: Text, compiler: Any, **kw: Any) -> str:
    return "LONGTEXT"


class SQLAlchemyDialect(MySQLDialect_pymysql):
    """MySQL's under another name."""

    name = "tidb"
    ddl_compiler = _Tables
    supports_statement_cache = True


for _name in ("tidb", "tidb.pymysql"):
    registry.register(_name, __name__, "SQLAlchemyDialect")


class _Alembic(MySQLImpl):
    __dialect__ = "tidb"


_E = MySQL.errors
_CONFLICTS = frozenset({"8002", "8005", "8022", "8028", "9007"})
_AWAY = frozenset({"9001", "9002", "9003", "9005"})


class TiDB(MySQL):
    """MySQL without SKIP LOCKED."""

    names: ClassVar[tuple[str, ...]] = ("tidb",)
    title: ClassVar[str] = "TiDB"
    minimum: ClassVar[tuple[int, ...]] = ()
    capabilities: ClassVar[frozenset[Capability]] = MySQL.capabilities - {Capability.SKIP_LOCKED}
    drivers: ClassVar[Drivers] = Drivers("pymysql", "mysql", port=4000)
    errors: ClassVar[ErrorCodes] = replace(
        _E, transient=_E.transient | _CONFLICTS | _AWAY, faults={**_E.faults, **dict.fromkeys(_CONFLICTS, Fault.SERIALIZATION)}
    )
    unique_queue: ClassVar[bool] = False

    def lock_rows(self, rows: Select[Any], *, skip: bool, pinned: bool = False) -> Select[Any]:
        return super().lock_rows(rows, skip=False, pinned=pinned)


class TiDBForGroups(GroupDialect):
    """Without JSON_TABLE."""

    names: ClassVar[tuple[str, ...]] = ("tidb",)


class TiDBForFeeds(FeedDialect):
    """Without JSON_TABLE."""

    names: ClassVar[tuple[str, ...]] = ("tidb",)
