"""PostgreSQL's bulk verbs: COPY, JSON in SQL, and the claim of a stream in one statement."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from functools import lru_cache
from typing import Any, ClassVar
from urllib.parse import quote

from sqlalchemy import (
    URL,
    ColumnElement,
    Connection,
    Engine,
    Integer,
    Select,
    Table,
    Text,
    any_,
    bindparam,
    case,
    cast,
    column,
    delete,
    event,
    func,
    insert,
    literal_column,
    select,
    union_all,
    update,
)
from sqlalchemy.dialects.postgresql import JSONB, REGCLASS
from sqlalchemy.exc import DBAPIError

from queue_db.dialects import direct, jdbc, numbering
from queue_db.dialects.bulk import Bulk, Move
from queue_db.dialects.chunks import FIELDS, Unpacked
from queue_db.dialects.clock import now_us
from queue_db.dialects.loading import COLUMNS, Lines
from queue_db.dialects.numbering import NumberedMove
from queue_db.dialects.seam import Rows
from queue_db.dialects.statements import stays
from queue_db.dialects.tabbed import Value, written
from queue_db.dialects.transactions import Sender
from queue_db.errors import PermanentStorageError

# What libpq's options are called in JDBC; the driver speaks UTF-8, and keeps connections alive as the system does.
_JDBC_NAMES: dict[str, str | None] = {
    "application_name": "ApplicationName",
    "channel_binding": "channelBinding",
    "connect_timeout": "connectTimeout",  # seconds there too
    "gssencmode": "gssEncMode",
    "krbsrvname": "kerberosServerName",
    "options": "options",
    "sslcert": "sslcert",
    "sslkey": "sslkey",
    "sslmode": "sslmode",
    "sslnegotiation": "sslNegotiation",
    "sslpassword": "sslpassword",
    "sslrootcert": "sslrootcert",
    "client_encoding": None,
    "keepalives": None,
    "keepalives_count": None,
    "keepalives_idle": None,
    "keepalives_interval": None,
    "tcp_user_timeout": None,
}


class PostgreSQLBulk(Bulk):
    """COPY in and out, and one statement that moves jobs."""

    loaded_at_once: ClassVar[int] = 10_000
    loaded_from_memory: ClassVar[int] = 100_000

    def short_lived_options(self, url: URL, *, local_infile: bool = False) -> dict[str, Any]:
        # Poolers refuse settings at the start of a session, or hand them on to the wrong client.
        arguments = self.engine_options(url)["connect_args"]
        arguments.pop("options")
        return {"connect_args": arguments | ({} if "application_name" in url.query else {"application_name": "queue_db spark"})}

    def limit_waits(self, engine: Engine) -> None:
        event.listen(engine, "begin", _limit_waits)

    def jdbc(self, url: URL, driver: str | None) -> tuple[str, str, dict[str, str]]:
        properties = {
            "reWriteBatchedInserts": "true",  # many rows in one statement: measured, 60,000 jobs in 0.8 s and not in 1.3 s
            "logServerErrorDetail": "false",  # or the error of a batch shows its payloads, thousands of them
            "connectTimeout": "10",
            "tcpKeepAlive": "true",
        } | jdbc.properties_of(url, _JDBC_NAMES)
        if "sslrootcert" in properties and properties.get("sslmode") == "require":
            properties["sslmode"] = "verify-ca"  # as libpq does; this driver would not check the certificate
        if properties.get("sslrootcert") == "system":
            # libpq's word for the authorities that the system trusts; Java has its own list of them.
            properties |= {"sslfactory": "org.postgresql.ssl.DefaultJavaSSLFactory", "sslmode": "verify-full"}
            del properties["sslrootcert"]
        address = jdbc.address("jdbc:postgresql", url, 5432, quote(url.database or "", safe=""))
        return address, jdbc.driver_for(driver, ["org.postgresql.Driver"]), properties

    def move_to_held(self, tx: Sender, move: Move, parameters: Mapping[str, Any]) -> int:
        # By the position of the rows (ctid), which needs no index; a row that changes meanwhile is waited for and checked again.
        jobs, due, values = move.jobs, move.due, move.values
        place: ColumnElement[Any] = literal_column("ctid")
        first = select(place.label("place")).select_from(jobs).where(*due)
        first = first.order_by(jobs.c.priority, jobs.c.available_at, jobs.c.id).limit(move.limit)
        found = (first.with_for_update(skip_locked=True) if move.skip else first).cte("found")
        among = place == any_(func.array(select(found.c.place).scalar_subquery()))
        names = [name for name in values if name not in ("stream", "batch")]
        # DELETE returns the row as it was, UPDATE as it is.
        gone = delete(jobs).where(among, *due, ~stays(jobs)).returning(*(values[name].label(name) for name in names))
        moved = [gone.cte("gone")]
        if move.reserved is not None:
            same = {"available_at": jobs.c.due_at, "version": jobs.c.version, "attempts": jobs.c.attempts}
            kept = update(jobs).where(among, *due, stays(jobs)).values(move.reserved)
            moved.append(kept.returning(*(same.get(name, jobs.c[name]).label(name) for name in names)).cte("kept"))
        arms = [select(values["stream"], values["batch"], *(arm.c[name] for name in names)) for arm in moved]
        source = arms[0] if len(arms) == 1 else union_all(*arms)
        return tx.connection.execute(insert(move.held).from_select(["stream", "batch", *names], source), parameters).rowcount

    def move_numbered(self, tx: Sender, move: NumberedMove, *, feed: int, first: int, most: int, largest: int) -> int:
        values = {"of_feed": feed, "first": first, "most": most, "largest": largest}
        ((moved,),) = tx.fetch(numbering.in_one_statement(move), values)
        return int(moved)

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
                _check_loaded(loaded, lines.jobs - before, jobs)
        return lines.jobs, reserved[: lines.jobs]

    def append(
        self, tx: Sender, table: Table, columns: Mapping[str, Sequence[Value]], same: Mapping[str, Value] | None = None
    ) -> None:
        if tx.connection.dialect.driver != "psycopg2":
            super().append(tx, table, columns, same)
            return
        loaded = _copy_in(tx.connection, table, (*(same or {}), *columns), io.StringIO(written(columns, same or {})))
        _check_loaded(loaded, len(next(iter(columns.values()))), table)

    def as_csv(self, tx: Sender, query: Select[Any]) -> bytes | None:
        if tx.connection.dialect.driver != "psycopg2":
            return None
        # COPY takes no parameters; these are numbers and checked names, and SQLAlchemy writes them.
        sql = query.compile(dialect=tx.connection.dialect, compile_kwargs={"literal_binds": True})
        rows = io.BytesIO()
        # Its own escapes of % are for parameters, which there are none of.
        direct.copy(tx.connection, f"COPY ({sql.string.replace('%%', '%')}) TO STDOUT (FORMAT csv)", rows)
        return rows.getvalue()

    def unpacked(self, chunk: ColumnElement[str], fields: Sequence[str]) -> Unpacked:
        # jsonb is taken apart twice as fast as json; texts come out as they went in.
        rows = func.jsonb_array_elements(cast(chunk, JSONB)).table_valued(column("job", JSONB), name="given").render_derived()
        texts = {name: rows.c.job.op("->>")(literal_column(str(place))) for place, name in enumerate(fields)}
        return Unpacked(rows, {name: cast(value, FIELDS[name]) for name, value in texts.items()})


def _copy_lines(connection: Connection, jobs: Table, columns: Iterable[str], lines: Lines) -> int:
    try:
        return _copy_in(connection, jobs, columns, lines)
    except DBAPIError:
        if lines.error is None:
            raise
    # Here it keeps its own cause.
    error, lines.error = lines.error, None
    raise error


def _copy_in(connection: Connection, table: Table, columns: Iterable[str], file: Any) -> int:
    preparer = connection.dialect.identifier_preparer
    names = ", ".join(map(preparer.quote, columns))
    return direct.copy(connection, f"COPY {preparer.format_table(table)} ({names}) FROM STDIN", file)


def _check_loaded(loaded: int, expected: int, table: Table) -> None:
    if loaded != expected:
        raise PermanentStorageError(f"{loaded} of {expected} rows were loaded into {table.name}", statement_name="COPY")


def _limit_waits(connection: Connection) -> None:
    # Of this transaction alone. The last two are for tables that were small when their statistics were made, and because the tasks
    # are parallel already: to start helpers for each page takes longer than to read it.
    connection.exec_driver_sql(
        "SELECT set_config('lock_timeout', '60s', true), set_config('statement_timeout', '30min', true), "
        "set_config('idle_in_transaction_session_timeout', '5min', true), set_config('enable_seqscan', 'off', true), "
        "set_config('max_parallel_workers_per_gather', '0', true), set_config('jit', 'off', true)"
    )


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
