"""New jobs on PostgreSQL: one statement, or COPY."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from functools import lru_cache
from io import StringIO
from typing import Any, ClassVar

from sqlalchemy import Connection, Integer, Select, Table, Text, bindparam, case, cast, func, literal_column, select
from sqlalchemy.dialects.postgresql import REGCLASS
from sqlalchemy.exc import DBAPIError

from queue_db.dialects import postgresql_sql as shapes
from queue_db.dialects import raw_cursor, statements
from queue_db.dialects.clock import now_us
from queue_db.dialects.copy_stream import COLUMNS, TIED_COLUMNS, Lines, check_loaded, copy_in, written
from queue_db.dialects.inserts import Inserts, Rows
from queue_db.dialects.statements import ONE_NEW, copied
from queue_db.dialects.transactions import Sender
from queue_db.model import NewJob, Notice


class PostgreSQLInserts(Inserts):
    """Inserts any number of jobs with one statement, which also sends the notification. Loads many jobs with COPY."""

    loaded_at_once: ClassVar[int] = 10_000
    loaded_from_memory: ClassVar[int] = 100_000

    def insert_new(self, tx: Sender, jobs: Table, rows: Rows, now: int | None, notice: Notice | None = None) -> list[int | None]:
        names = copied(rows)
        values: dict[str, Any] = {} if notice is None else notice._asdict()
        texts = statements.on(tx.dialect, jobs, tx.connection.dialect, settable=now is not None)
        if len(rows) == 1 and rows[0].unique_key is None and now is None:
            values.update(zip(ONE_NEW, rows[0], strict=True))
            one = texts.made(shapes.insert_one, columns=names, notifies=notice is not None)
            return [row[0] for row in tx.fetch(one, values)]
        keyed = any(row.unique_key is not None for row in rows)
        columns = dict(zip(NewJob._fields, zip(*rows, strict=True), strict=True))
        given = {name: columns[name] for name in (*names, "after", "not_before")}
        same = frozenset([name for name, all_ in given.items() if name != "payload" and all_.count(all_[0]) == len(all_)])
        values |= {f"new_{name}": given[name][0] for name in same}
        values |= {f"all_{name}": list(all_) for name, all_ in given.items() if name not in same}
        if now is not None:
            values["now"] = now
        many = texts.made(shapes.insert_many, columns=names, same=same, keyed=keyed, notifies=notice is not None)
        inserted = tx.fetch(many, values)
        # The sequence gives ids in the order of ``rows``, and no row without a key is skipped. So the sorted ids match these rows.
        if not keyed:
            return sorted([row[0] for row in inserted])
        keyless = iter(sorted([job_id for job_id, _, key in inserted if key is None]))
        by_key = {(queue, key): job_id for job_id, queue, key in inserted if key is not None}
        return [next(keyless) if row.unique_key is None else by_key.get((row.queue, row.unique_key)) for row in rows]

    def load_new(
        self, tx: Sender, jobs: Table, chunks: Iterable[Rows], number: int, now: int | None, *, ids: bool, tied: bool = False
    ) -> tuple[int, Sequence[int]] | None:
        if not _copies(tx):
            return None
        # COPY returns no ids, so the ids are taken from the sequence first.
        values = {"name": _name(tx, jobs), "rows": number if ids else 0}
        ((first, last, scattered, clock, secured),) = tx.fetch(_ids_and_clock(jobs), values)
        if secured or (ids and first is None):
            return None  # the table has row-level security, with which COPY fails, or no sequence of its own
        reserved = () if not ids else range(first, last + 1) if scattered is None else sorted(scattered)
        columns = TIED_COLUMNS if tied else COLUMNS
        lines = Lines(chunks, reserved, clock if now is None else now, columns)
        columns = (*columns, "id") if ids else columns
        with closing(lines):
            while not lines.ended:
                before = lines.jobs
                loaded = _copy_lines(tx.connection, jobs, columns, lines)
                check_loaded(loaded, lines.jobs - before, jobs)
        return lines.jobs, reserved[: lines.jobs]


def copy_rows(tx: Sender, table: Table, columns: Mapping[str, Sequence[Any]]) -> bool:
    """Load rows with these values by column into a table beside that of the jobs.

    :return: False: COPY cannot do it, so nothing was loaded.
    """
    if not _copies(tx) or tx.fetch(_secured(), {"name": _name(tx, table)})[0][0]:
        return False
    number, at_once = len(next(iter(columns.values()))), PostgreSQLInserts.loaded_at_once
    for start in range(0, number, at_once):
        part = {name: values[start : start + at_once] for name, values in columns.items()}
        loaded = copy_in(tx.connection, table, columns, StringIO(written(part, {})))
        check_loaded(loaded, min(at_once, number - start), table)
    return True


def _copies(tx: Sender) -> bool:
    """Whether the driver can COPY. Listeners of the engine cannot see a COPY, so with listeners INSERT is used."""
    return tx.connection.dialect.driver == "psycopg2" and not raw_cursor.observed(tx.connection.engine)


def _name(tx: Sender, table: Table) -> str:
    return str(tx.connection.dialect.identifier_preparer.format_table(table))


@lru_cache(maxsize=1)
def _secured() -> Select[Any]:
    """Whether a table has row-level security, with which COPY fails."""
    return select(func.row_security_active(bindparam("name", type_=Text())).label("secured"))


def _copy_lines(connection: Connection, jobs: Table, columns: Iterable[str], lines: Lines) -> int:
    try:
        return copy_in(connection, jobs, columns, lines)
    except DBAPIError:
        if lines.error is None:
            raise
    # Raise the exception of the chunks outside the except block, so that it keeps its own cause and context.
    error, lines.error = lines.error, None
    raise error


@lru_cache(maxsize=64)
def _ids_and_clock(jobs: Table) -> Select[Any]:
    """Take ids for ``rows`` jobs in the table ``name``. Also read the time, and whether the table has row-level security.

    ``first`` and ``last`` are the lowest and the highest id. ``scattered`` has all ids if they are not consecutive, otherwise NULL.
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
