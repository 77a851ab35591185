"""New jobs on MySQL and MariaDB: many rows in one statement, and their ids."""

# ruff: noqa: S608 - the texts are made of constants and of table names that SQLAlchemy has quoted; values are bound.

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from itertools import chain
from typing import Any, ClassVar

from sqlalchemy import Executable, Table, text

from queue_db.dialects import raw_cursor, statements
from queue_db.dialects.inserts import Inserts, Rows, dated, load
from queue_db.dialects.mysql_server import is_mariadb
from queue_db.dialects.statements import Columns, JobsText, kept
from queue_db.dialects.transactions import Sender, savepoint
from queue_db.errors import TransientStorageError


class MySQLInserts(Inserts):
    """Inserts several rows with each statement, as many as PyMySQL would join into one."""

    returns_new_id: ClassVar[bool] = False  # MariaDB can return ids, but both servers get the same statement

    def bulk_load(self, tx: Sender, jobs: Table, rows: Rows, now: int | None) -> list[int]:
        ids: list[int] = []
        columns, values = dated(tx, rows, now)
        parts = _parts(values)
        insert_part = self._insert_returning if is_mariadb(tx.connection.dialect) else self._insert_and_read
        # If a part fails because another transaction has inserted one of its keys, the savepoint also undoes the earlier parts.
        with savepoint(tx.connection) if len(parts) > 1 else nullcontext():
            for part in parts:
                ids += insert_part(tx, jobs, columns, part)
        return ids

    def _insert_returning(self, tx: Sender, jobs: Table, columns: Columns, rows: Sequence[tuple[Any, ...]]) -> list[int]:
        """Insert ``rows`` in one statement and return their ids in the same order."""
        if len(rows) == 1:
            return [load(tx, jobs, columns, rows)]
        sql = tx.connection.dialect
        one = raw_cursor.written(
            statements.on(tx.dialect, jobs, sql).made(statements.insert_into, columns=columns, returns=True), sql
        )
        into, _, row = one.text.removesuffix(_RETURNING).partition(" VALUES ")
        statement = f"{into} VALUES {', '.join([row] * len(rows))}{_RETURNING}"
        return [job_id for (job_id,) in tx.fetch(statement, tuple(chain.from_iterable(rows)))]

    def _insert_and_read(self, tx: Sender, jobs: Table, columns: Columns, rows: Sequence[tuple[Any, ...]]) -> list[int]:
        """Insert ``rows`` in one statement, and calculate their ids from the first id and the last one.

        The driver knows the first id. The step between the ids of one statement is constant, but unknown, because a cluster can
        change this setting in open sessions. So the last id is read: the highest id of the jobs with the same creation time. The
        last id is reliable if there are exactly as many of these jobs as ``rows``.
        """
        first, number = load(tx, jobs, columns, rows), len(rows)
        if number == 1:
            return [first]
        texts, now = statements.on(tx.dialect, jobs, tx.connection.dialect), rows[0][-1]
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


# The most bytes of one statement. PyMySQL joins rows into statements of at most 1,024,000 bytes, counted after escaping.
_STATEMENT_BYTES = 1_000_000


def _parts(rows: Sequence[tuple[Any, ...]]) -> list[list[tuple[Any, ...]]]:
    """Divide ``rows`` into parts that the driver sends as one statement each."""
    parts: list[list[tuple[Any, ...]]] = [[]]
    room = _STATEMENT_BYTES
    for row in rows:
        # A character has at most four bytes. Escaping may double the bytes of a text.
        size = 200 + 2 * sum([len(value) * (1 if value.isascii() else 4) for value in row if type(value) is str])
        if size > room and parts[-1]:
            parts.append([])
            room = _STATEMENT_BYTES
        parts[-1].append(row)
        room -= size
    return parts


_RETURNING = " RETURNING id"


def _inserted(jobs: JobsText) -> Executable:
    """Read the number and the highest id of the jobs that were created at ``now`` and have at least the id ``of_id``."""
    rows = f"FROM {jobs.by_id} WHERE id >= :of_id AND created_at = :now"
    return kept(f"SELECT count(*) AS inserted, max(id) AS last_inserted {rows}", "inserted", "last_inserted")


def _among(jobs: JobsText) -> Executable:
    """Read which of the ids ``of_ids`` belong to jobs that were created at the time ``now``."""
    return jobs.kept(f"SELECT id FROM {jobs.by_id} WHERE id IN :of_ids AND created_at = :now", "id")
