"""PostgreSQL 13 and later, through psycopg2, and asyncpg for asyncio."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from functools import lru_cache
from typing import Any, ClassVar

from sqlalchemy import (
    ARRAY,
    ColumnElement,
    Connection,
    Integer,
    Select,
    Table,
    Text,
    any_,
    bindparam,
    case,
    cast,
    func,
    literal_column,
    select,
    tuple_,
)
from sqlalchemy.dialects.postgresql import REGCLASS
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.compiler import compiles

from queue_db.dialects import postgresql_sql as shapes
from queue_db.dialects import prepared, raw_cursor, statements
from queue_db.dialects.base import Member, ReturningDialect, Rows
from queue_db.dialects.claim_sql import DUE, ID, PRIORITY, VERSION, ClaimText, result_of
from queue_db.dialects.clock import instant, now_us, now_us_after_waiting
from queue_db.dialects.copy_stream import COLUMNS, Lines, check_loaded, copy_in
from queue_db.dialects.postgresql_server import PostgreSQLServer
from queue_db.dialects.postgresql_sql import HEAD, TRIED
from queue_db.dialects.statements import ONE_NEW, copied
from queue_db.dialects.transactions import Sender
from queue_db.model import ClaimResult, Completion, Fault, NewJob, Notice, Seen


@compiles(now_us, "postgresql")
def _now(element: now_us, compiler: Any, **kw: Any) -> str:
    # statement_timestamp is stable within a statement, so it can limit an index range. clock_timestamp cannot.
    return "CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT)"


@compiles(instant, "postgresql")
def _instant(element: instant, compiler: Any, **kw: Any) -> str:
    micros = compiler.process(next(iter(element.clauses)), **kw)
    return f"(TIMESTAMPTZ '1970-01-01 00:00:00Z' + {micros} * INTERVAL '1 microsecond')"


@compiles(now_us_after_waiting, "postgresql")
def _now_after_waiting(element: now_us_after_waiting, compiler: Any, **kw: Any) -> str:
    # On PostgreSQL one statement locks and writes the rows.
    return "CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000 AS BIGINT)"


class PostgreSQL(PostgreSQLServer, ReturningDialect):
    """Claims and changes take one statement: UPDATE … RETURNING in a WITH clause, and arrays for many rows."""

    notifies: ClassVar[bool] = True
    deletes_on_claim: ClassVar[bool] = True
    skip_locked_pays: ClassVar[range] = range(8, 32)
    changes_in_with: ClassVar[bool] = True
    _full_until = 0.0  # the monotonic time before which claims do not use the fast path

    matching = staticmethod(shapes.matching)
    lists: ClassVar[Mapping[str, Any]] = shapes.LISTS
    wanted = staticmethod(shapes.wanted)

    def execute_claim(
        self,
        tx: Sender,
        claim: ClaimText,
        parameters: Mapping[str, Any],
        *,
        fast_path: bool = False,
        delete_on_claim: bool = False,
        completes: Completion | None = None,
    ) -> ClaimResult:
        if fast_path and time.monotonic() >= self._full_until:
            # One UPDATE … RETURNING or DELETE … RETURNING costs half as much as the full statement.
            one = parameters["limit"] == 1
            try:
                if completes is not None:
                    rows = self._complete_and_claim(tx, claim, parameters, completes, one=one)
                else:
                    statement = claim.made(shapes.fast_path, one=one, delete_on_claim=delete_on_claim)
                    rows = tx.fetch(statement, parameters)
            except DBAPIError as error:
                self._leave_fast_path(tx, error)
                rows = ()
            if not rows:
                return result_of(parameters, seen=Seen.SOME)
            # The first row of a slice is not the first due job of the queue, so there is no min_due.
            first = rows[0]
            min_due = {} if "start" in parameters else {first[PRIORITY]: first[DUE if one else HEAD]}
            seen = Seen.ALL if len(rows) == parameters["limit"] else Seen.SOME
            return result_of(parameters, rows, 1 if one else first[TRIED], min_due=min_due, seen=seen)
        if delete_on_claim or completes is not None:
            return result_of(parameters, seen=Seen.NOTHING)
        found = tx.fetch(claim.made(shapes.full_claim), parameters)
        new_priorities = sorted(row[PRIORITY] for row in found if row[ID] is None and row[TRIED] is None)
        # Candidates after a new priority were not tried.
        tried = [row for row in found if row[TRIED] is not None and not (new_priorities and new_priorities[0] < row[PRIORITY])]
        return result_of(
            parameters,
            [row for row in found if row[ID] is not None],
            sum(row[TRIED] for row in tried),
            min_due={row[PRIORITY]: row[HEAD] for row in tried},
            new_priorities=new_priorities,
        )

    def _complete_and_claim(
        self, tx: Sender, claim: ClaimText, parameters: Mapping[str, Any], completes: Completion, *, one: bool
    ) -> Sequence[Sequence[Any]]:
        """Delete completed jobs and claim other jobs; return the rows of the claimed jobs."""
        statement = claim.made(shapes.complete_and_claim, one=one, completes_one=len(completes.pairs) == 1)
        found = tx.fetch(statement, {**parameters, **self.wanted(completes.pairs)})
        completes.done = {row[ID] for row in found if row[VERSION] is None}
        return [row for row in found if row[VERSION] is not None]

    def _leave_fast_path(self, tx: Sender, error: DBAPIError) -> None:
        """After a lock timeout, use the full statement for a while, because it steps over locked jobs.

        :raises DBAPIError: ``error`` is no lock timeout, or it has rolled back a transaction.
        """
        if self.fault(error) is not Fault.LOCK_TIMEOUT:
            raise error
        self._full_until = time.monotonic() + _FULL_SECONDS
        if tx.begun or not tx.autocommits:
            raise error

    def one_of(self, column: ColumnElement[Any], name: str) -> ColumnElement[bool]:
        return column == any_(bindparam(name, type_=ARRAY(column.type)))

    def first_in_groups(self, tx: Sender, jobs: Table, queue: str, keys: Sequence[str], most: int, *, locks: bool) -> list[Member]:
        values = {"of_queue": queue, "keys": list(keys), "most": most}
        rows = tx.fetch(shapes.first_in_groups(jobs, locks=locks), values)
        return [(place, job_id, version, due) for place, job_id, version, due in rows]

    def by_group(self, rows: Select[Any], jobs: Table, key: str, above: int) -> Select[Any]:
        # With an equality on the key of a large group, the planner might read the primary key from its beginning for the order.
        # The condition on the id follows from the other conditions. With it, PostgreSQL 13 expects one row, so it does not read and
        # sort all rows of the group.
        place = tuple_(jobs.c.group_key, jobs.c.id)
        within = (place > tuple_(key, above), jobs.c.group_key <= key, jobs.c.id > above)
        return rows.where(*within).order_by(jobs.c.group_key, jobs.c.id)

    render = staticmethod(prepared.render)

    def notify(self, tx: Sender, channel: str, text: str) -> None:
        tx.fetch(shapes.NOTIFICATION, Notice(channel, text)._asdict())

    def insert_new(self, tx: Sender, jobs: Table, rows: Rows, now: int | None, notice: Notice | None = None) -> list[int | None]:
        names = copied(rows)
        values: dict[str, Any] = {} if notice is None else notice._asdict()
        texts = statements.on(self, jobs, tx.connection.dialect, settable=now is not None)
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
        # The sequence gives ids in the order of ``rows``. The statement skips no row without a key.
        if not keyed:
            return sorted([row[0] for row in inserted])
        keyless = iter(sorted([job_id for job_id, _, key in inserted if key is None]))
        by_key = {(queue, key): job_id for job_id, queue, key in inserted if key is not None}
        return [next(keyless) if row.unique_key is None else by_key.get((row.queue, row.unique_key)) for row in rows]

    # --- many new jobs ----------------------------------------------------------------------------------------------

    loaded_at_once: ClassVar[int] = 10_000
    loaded_from_memory: ClassVar[int] = 100_000

    def load_new(
        self, tx: Sender, jobs: Table, chunks: Iterable[Rows], number: int, now: int | None, *, ids: bool
    ) -> tuple[int, Sequence[int]] | None:
        # COPY returns no ids, so they are taken from the sequence first. An engine with listeners uses INSERT, which they can see.
        if tx.connection.dialect.driver != "psycopg2" or raw_cursor.observed(tx.connection):
            return None
        name = tx.connection.dialect.identifier_preparer.format_table(jobs)
        values = {"name": name, "rows": number if ids else 0}
        ((first, last, scattered, clock, secured),) = tx.fetch(_ids_and_clock(jobs), values)
        if secured or (ids and first is None):
            return None  # the table has row-level security, with which COPY fails, or no sequence of its own
        reserved = () if not ids else range(first, last + 1) if scattered is None else sorted(scattered)
        lines = Lines(chunks, reserved, clock if now is None else now)
        columns = (*COLUMNS, "id") if ids else COLUMNS
        with closing(lines):
            while not lines.ended:
                before = lines.jobs
                loaded = _copy_lines(tx.connection, jobs, columns, lines)
                check_loaded(loaded, lines.jobs - before, jobs)
        return lines.jobs, reserved[: lines.jobs]


# Seconds for which claims use the full statement after a lock timeout.
_FULL_SECONDS = 10.0


def _copy_lines(connection: Connection, jobs: Table, columns: Iterable[str], lines: Lines) -> int:
    try:
        return copy_in(connection, jobs, columns, lines)
    except DBAPIError:
        if lines.error is None:
            raise
    # It is raised outside the except block, so that it keeps its own cause and context.
    error, lines.error = lines.error, None
    raise error


@lru_cache(maxsize=64)
def _ids_and_clock(jobs: Table) -> Select[Any]:
    """Take ids for ``rows`` jobs in the table ``name``; read the database's time and whether the table has row-level security.

    The result has the first id and the last one. It has all ids only if they are not consecutive.
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
