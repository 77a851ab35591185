"""PostgreSQL loads many new jobs by COPY."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import closing
from functools import lru_cache
from typing import Any, ClassVar

from sqlalchemy import (
    Connection,
    Integer,
    Select,
    Table,
    Text,
    bindparam,
    case,
    cast,
    func,
    literal_column,
    select,
)
from sqlalchemy.dialects.postgresql import REGCLASS
from sqlalchemy.exc import DBAPIError

from queue_db.dialects import direct
from queue_db.dialects.bulk import Bulk
from queue_db.dialects.clock import now_us
from queue_db.dialects.loading import COLUMNS, Lines
from queue_db.dialects.seam import Rows
from queue_db.dialects.transactions import Sender
from queue_db.errors import PermanentStorageError


class PostgreSQLBulk(Bulk):
    """COPY."""

    loaded_at_once: ClassVar[int] = 10_000
    loaded_from_memory: ClassVar[int] = 100_000

    def load_new(
        self, tx: Sender, jobs: Table, chunks: Iterable[Rows], number: int, now: int | None, *, ids: bool
    ) -> tuple[int, Sequence[int]] | None:
        # COPY returns no ids, so they are taken from the sequence first. On an engine whose statements are observed, INSERT is.
        if tx.connection.dialect.driver != "psycopg2" or direct.observed(tx.connection):
            return None
        name = tx.connection.dialect.identifier_preparer.format_table(jobs)
        values = {"name": name, "rows": number if ids else 0}
        ((first, last, scattered, clock, secured),) = tx.fetch(_ids_and_clock(jobs), values)
        if secured or (ids and first is None):
            return None  # the table has policies for its rows, with which COPY is refused, or another sequence
        reserved = () if not ids else range(first, last + 1) if scattered is None else sorted(scattered)
        lines = Lines(chunks, reserved, clock if now is None else now)
        columns = (*COLUMNS, "id") if ids else COLUMNS
        with closing(lines):
            while not lines.ended:
                before = lines.jobs
                loaded = _copy_lines(tx.connection, jobs, columns, lines)
                check_loaded(loaded, lines.jobs - before, jobs)
        return lines.jobs, reserved[: lines.jobs]


def _copy_lines(connection: Connection, jobs: Table, columns: Iterable[str], lines: Lines) -> int:
    try:
        return copy_in(connection, jobs, columns, lines)
    except DBAPIError:
        if lines.error is None:
            raise
    # Here it keeps its own cause.
    error, lines.error = lines.error, None
    raise error


def copy_in(connection: Connection, table: Table, columns: Iterable[str], file: Any) -> int:
    """COPY the lines of ``file`` into ``columns`` of ``table``; return how many rows the server has loaded."""
    preparer = connection.dialect.identifier_preparer
    names = ", ".join(map(preparer.quote, columns))
    return direct.copy(connection, f"COPY {preparer.format_table(table)} ({names}) FROM STDIN", file)


def check_loaded(loaded: int, expected: int, table: Table) -> None:
    """Refuse a load of fewer rows than were sent.

    :raises PermanentStorageError: not all were loaded.
    """
    if loaded != expected:
        raise PermanentStorageError(f"{loaded} of {expected} rows were loaded into {table.name}", statement_name="COPY")


@lru_cache(maxsize=64)
def _ids_and_clock(jobs: Table) -> Select[Any]:
    """Takes ids for ``rows`` jobs in the table of this ``name``: the first, the last, and all of them if others are in between.

    The row also has the time and whether the table's rows are secured. Most often the ids follow each other, and two numbers for
    thousands of them cost both sides less.
    """
    sequence = select(
        cast(func.pg_get_serial_sequence(bindparam("name", type_=Text()), literal_column("'id'")), REGCLASS)
    ).scalar_subquery()
    places = func.generate_series(literal_column("1"), bindparam("rows", type_=Integer)).table_valued(name="places")
    taken = select(func.nextval(sequence).label("id")).select_from(places).subquery("taken")
    first, last = func.min(taken.c.id), func.max(taken.c.id)
    scattered = case((last - first >= func.count(), func.array_agg(taken.c.id))).label("scattered")
    secured = func.row_security_active(bindparam("name", type_=Text())).label("secured")
    return select(first.label("first"), last.label("last"), scattered, now_us().label("now"), secured)
