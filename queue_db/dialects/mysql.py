"""MySQL 8.0 and MariaDB 10.6 and later, through PyMySQL, and aiomysql or asyncmy for asyncio."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import nullcontext
from functools import lru_cache
from itertools import chain
from typing import Any, ClassVar, cast

from sqlalchemy import (
    ColumnElement,
    Executable,
    Integer,
    Select,
    String,
    Table,
    Text,
    Update,
    bindparam,
    column,
    func,
    literal_column,
    select,
    text,
)
from sqlalchemy.ext.compiler import compiles

from queue_db.dialects import raw_cursor, statements
from queue_db.dialects.base import Dialect, Member, Rows, Statement
from queue_db.dialects.clock import column_text, instant, length, now_us
from queue_db.dialects.mysql_server import MySQLServer, is_mariadb
from queue_db.dialects.statements import Columns, JobsText, Pairs, kept
from queue_db.dialects.transactions import Sender, savepoint
from queue_db.errors import TransientStorageError


@compiles(now_us, "mysql", "mariadb")
def _now(element: now_us, compiler: Any, **kw: Any) -> str:
    # UTC_TIMESTAMP does not follow the session's time zone, and the number does not end in 2038.
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


class MySQL(MySQLServer, Dialect):
    """Neither server has UPDATE … RETURNING. MariaDB has DELETE … RETURNING."""

    returns_new_id: ClassVar[bool] = False  # MariaDB could; without RETURNING, both servers get the same statement
    # InnoDB stores rows in the order of the primary key. A range scan or a full scan by this key reads and locks them in id order.
    updates_in_order: ClassVar[bool] = True

    by_id_hint: ClassVar[str] = " FORCE INDEX (PRIMARY)"

    def by_id(self, statement: Statement, jobs: Table) -> Statement:
        # While the table is small, the planner prefers to read all of it. Such a read waits for rows that other transactions have
        # locked, and two workers with different jobs can deadlock.
        if isinstance(statement, Select):
            return statement.with_hint(jobs, FORCE)
        return statement.with_hint(FORCE) if isinstance(statement, Update) else statement

    def delete_returning(self, tx: Sender, jobs: Table, pairs: Pairs) -> set[int]:
        sql: Any = tx.connection.dialect
        returns = sql.is_mariadb and (len(pairs) == 1 or (sql.server_version_info or ()) >= _HINTS_IN_DELETE)
        if len(pairs) > 1 and not returns:
            tx.begin()
            pairs = self.hold(tx, jobs, pairs)
        if not pairs:
            return set()
        # In id order, so that two settles cannot deadlock. A single row needs no hint: the planner uses its primary key anyway.
        one, values, texts = len(pairs) == 1, self.wanted(sorted(pairs)), statements.on(self, jobs, sql)
        if returns:
            gone = tx.fetch(texts.made(statements.delete, one=one, returns=True, hint="" if one else self.by_id_hint), values)
            return {job_id for (job_id,) in gone}
        # If a DELETE from one table takes no hint, the form of DELETE for several tables does.
        delete = texts.made(statements.delete, one=one, hint="" if one else f" USING {texts.by_id}")
        return {job_id for job_id, _ in pairs} if tx.execute(delete, values) else set()

    def by_claim(self, rows: Select[Any], jobs: Table) -> Select[Any]:
        # With few keyed jobs the planner prefers the index of the unique keys. It would lock the whole queue and then sort it.
        return rows.with_hint(jobs, f"FORCE INDEX ({jobs.name}_claim)")

    def first_in_groups(self, tx: Sender, jobs: Table, queue: str, keys: Sequence[str], most: int, *, locks: bool) -> list[Member]:
        sql = tx.connection.dialect
        ordered = (sql.server_version_info or ()) >= (_ORDERED_MARIADB if is_mariadb(sql) else _ORDERED_MYSQL)
        if most > 1 or locks or len(keys) == 1 or not ordered:
            return super().first_in_groups(tx, jobs, queue, keys, most, locks=locks)
        # One query for all groups: the server needs five times as long to parse and plan one query for each group.
        values = {"of_queue": queue, "keys": json.dumps(list(keys), ensure_ascii=False)}
        rows = tx.fetch(_first_of_each(jobs, f"FORCE INDEX ({jobs.name}_group)"), values)
        return [(place, job_id, version, due) for place, job_id, version, due in rows]

    def by_group(self, rows: Select[Any], jobs: Table, key: str, above: int) -> Select[Any]:
        # The hint is for a queue with few keyed jobs, as in by_claim.
        return super().by_group(rows, jobs, key, above).with_hint(jobs, f"FORCE INDEX ({jobs.name}_group)")

    def bulk_load(self, tx: Sender, jobs: Table, rows: Rows, now: int | None) -> list[int]:
        ids: list[int] = []
        columns, values = self.dated(tx, rows, now)
        parts = _parts(values)
        insert_part = self._insert_returning if is_mariadb(tx.connection.dialect) else self._insert_and_read
        # If a part fails because another transaction has inserted one of its keys, the savepoint also undoes the parts before it.
        with savepoint(tx.connection) if len(parts) > 1 else nullcontext():
            for part in parts:
                ids += insert_part(tx, jobs, columns, part)
        return ids

    def _insert_returning(self, tx: Sender, jobs: Table, columns: Columns, rows: Sequence[tuple[Any, ...]]) -> list[int]:
        """Insert ``rows`` in one statement and return their ids in the same order."""
        if len(rows) == 1:
            return [self.load(tx, jobs, columns, rows)]
        sql = tx.connection.dialect
        one = raw_cursor.written(statements.on(self, jobs, sql).made(statements.insert_into, columns=columns, returns=True), sql)
        into, _, row = one.text.removesuffix(_RETURNING).partition(" VALUES ")
        statement = f"{into} VALUES {', '.join([row] * len(rows))}{_RETURNING}"
        return [job_id for (job_id,) in tx.fetch(statement, tuple(chain.from_iterable(rows)))]

    def _insert_and_read(self, tx: Sender, jobs: Table, columns: Columns, rows: Sequence[tuple[Any, ...]]) -> list[int]:
        """Insert ``rows`` in one statement, and calculate their ids from the first id and the last one.

        The driver knows the first id. The step between ids is the same within one statement, but a cluster can change this setting
        in open sessions. So the last id is read: the highest one among the jobs with the same creation time. It is reliable if the
        number of these jobs is the number of ``rows``.
        """
        first, number = self.load(tx, jobs, columns, rows), len(rows)
        if number == 1:
            return [first]
        texts, now = statements.on(self, jobs, tx.connection.dialect), rows[0][-1]
        ((there, last),) = tx.fetch(texts.made(_inserted), {"of_id": first, "now": now})
        step, uneven = divmod((last or 0) - first, number - 1)
        if there != number or uneven:
            # Another transaction has inserted jobs in the same microsecond, so the last id is unknown. Read the step instead.
            step = int(tx.connection.execute(text("SELECT @@auto_increment_increment")).scalar_one())
        ids = range(first, first + step * number, step)
        if there != number:
            same = tx.fetch(texts.made(_among), {"of_ids": list(ids), "now": now})
            if len(same) < number:
                raise TransientStorageError(
                    "the new jobs have other ids than the server has announced", statement_name="insert_new"
                )
        return list(ids)


FORCE = "FORCE INDEX (PRIMARY)"

# The first tested versions that read only the first row of a dependent subquery, in the order of its index. MariaDB 10.11 reads and
# sorts all rows of the group.
_ORDERED_MARIADB = (11, 8)
_ORDERED_MYSQL = (8, 4)

# The first version of MariaDB that takes hints in a DELETE from one table. Only this form of DELETE can return rows.
_HINTS_IN_DELETE = (11, 8)


# ruff: noqa: S608 - the texts are made of constants and of table names that SQLAlchemy has quoted; values are bound.

# PyMySQL joins rows into one statement of at most 1,024,000 bytes. Escaping, which may double a text, comes before this limit.
_STATEMENT_BYTES = 1_000_000


def _parts(rows: Sequence[tuple[Any, ...]]) -> list[list[tuple[Any, ...]]]:
    """Divide ``rows`` into parts that the driver sends as one statement each."""
    parts: list[list[tuple[Any, ...]]] = [[]]
    room = _STATEMENT_BYTES
    for row in rows:
        # A character has at most four bytes. Escaping may double them.
        size = 200 + 2 * sum([len(value) * (1 if value.isascii() else 4) for value in row if type(value) is str])
        if size > room and parts[-1]:
            parts.append([])
            room = _STATEMENT_BYTES
        parts[-1].append(row)
        room -= size
    return parts


_RETURNING = " RETURNING id"


def _inserted(jobs: JobsText) -> Executable:
    """The number of jobs with an id from ``of_id`` on that were created at the time ``now``, and their highest id."""
    rows = f"FROM {jobs.by_id} WHERE id >= :of_id AND created_at = :now"
    return kept(f"SELECT count(*) AS inserted, max(id) AS last_inserted {rows}", "inserted", "last_inserted")


def _among(jobs: JobsText) -> Executable:
    """Those ids of ``of_ids`` whose jobs were created at the time ``now``."""
    return jobs.kept(f"SELECT id FROM {jobs.by_id} WHERE id IN :of_ids AND created_at = :now", "id")


@lru_cache(maxsize=64)
def _first_of_each(jobs: Table, hint: str) -> Any:
    """Read the first job of each group. The parameter ``keys`` is a JSON array of group keys; ``place`` is the group's index in it.

    :param hint: a hint to use the index of groups.
    """
    group, keys = cast("String", jobs.c.group_key.type), bindparam("keys", type_=Text())
    # Without CHARACTER SET, the column has the database's character set. Characters that it lacks would become question marks.
    columns = f"nth FOR ORDINALITY, name VARCHAR({group.length}) CHARACTER SET utf8mb4 PATH '$'"
    array: ColumnElement[Any] = literal_column(f"'$[*]' COLUMNS ({columns})")
    given = func.json_table(keys, array).table_valued(column("nth", Integer()), column("name", group), name="given")
    member = jobs.alias("member")
    mine = (member.c.queue == bindparam("of_queue"), member.c.group_key == column_text(given.c.name, type_=group))
    # Order by all columns of the index; otherwise MySQL would read the whole group and sort it.
    first = select(member.c.id).where(*mine).order_by(member.c.queue, member.c.group_key, member.c.id).limit(1)
    found = select((given.c.nth - 1).label("place"), first.with_hint(member, hint).scalar_subquery().label("id")).subquery("found")
    rows = select(found.c.place, jobs.c.id, jobs.c.version, jobs.c.available_at).prefix_with("STRAIGHT_JOIN")
    return rows.join_from(found, jobs, jobs.c.id == found.c.id)
