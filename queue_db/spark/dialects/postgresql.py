"""PostgreSQL for Spark: COPY, JSON in SQL, and the claim of a stream in one statement."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar
from urllib.parse import quote

from sqlalchemy import (
    URL,
    ColumnElement,
    Connection,
    Engine,
    Select,
    Table,
    any_,
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
from sqlalchemy.dialects.postgresql import JSONB

from queue_db.database.addresses import several
from queue_db.dialects import raw_cursor
from queue_db.dialects.copy_stream import Value, check_loaded, copy_in, written
from queue_db.dialects.transactions import Sender
from queue_db.spark.dialects import jdbc
from queue_db.spark.dialects.base import Move, SparkDialect, keeps_row
from queue_db.spark.staging.chunks import FIELDS, Unpacked

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

# What libpq's target_session_attrs are called in JDBC.
_TARGETS = {
    "any": "any",
    "read-write": "primary",
    "primary": "primary",
    "read-only": "secondary",
    "standby": "secondary",
    "prefer-standby": "preferSecondary",
}


class PostgreSQLForSpark(SparkDialect):
    """COPY in and out, and one statement that moves jobs."""

    names: ClassVar[tuple[str, ...]] = ("postgresql",)

    def short_lived_options(self, url: URL, *, local_infile: bool = False) -> dict[str, Any]:
        # Poolers refuse settings at the start of a session, or hand them on to the wrong client.
        arguments = self.dialect.server.engine_options(url)["connect_args"]
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
        if several(url):
            properties["targetServerType"] = _TARGETS[str(url.query.get("target_session_attrs", "read-write"))]
            properties["loadBalanceHosts"] = str(url.query.get("nodes") == "all").lower()
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
        gone = delete(jobs).where(among, *due, ~keeps_row(jobs)).returning(*(values[name].label(name) for name in names))
        moved = [gone.cte("gone")]
        if move.reserved is not None:
            same = {"available_at": jobs.c.due_at, "version": jobs.c.version, "attempts": jobs.c.attempts}
            kept = update(jobs).where(among, *due, keeps_row(jobs)).values(move.reserved)
            moved.append(kept.returning(*(same.get(name, jobs.c[name]).label(name) for name in names)).cte("kept"))
        arms = [select(values["stream"], values["batch"], *(arm.c[name] for name in names)) for arm in moved]
        source = arms[0] if len(arms) == 1 else union_all(*arms)
        return tx.connection.execute(insert(move.held).from_select(["stream", "batch", *names], source), parameters).rowcount

    def append(
        self, tx: Sender, table: Table, columns: Mapping[str, Sequence[Value]], same: Mapping[str, Value] | None = None
    ) -> None:
        if tx.connection.dialect.driver != "psycopg2":
            super().append(tx, table, columns, same)
            return
        loaded = copy_in(tx.connection, table, (*(same or {}), *columns), io.StringIO(written(columns, same or {})))
        check_loaded(loaded, len(next(iter(columns.values()))), table)

    def as_csv(self, tx: Sender, query: Select[Any]) -> bytes | None:
        if tx.connection.dialect.driver != "psycopg2":
            return None
        # COPY takes no parameters; these are numbers and checked names, and SQLAlchemy writes them.
        sql = query.compile(dialect=tx.connection.dialect, compile_kwargs={"literal_binds": True})
        rows = io.BytesIO()
        # Its own escapes of % are for parameters, which there are none of.
        raw_cursor.copy(tx.connection, f"COPY ({sql.string.replace('%%', '%')}) TO STDOUT (FORMAT csv)", rows)
        return rows.getvalue()

    def unpacked(self, chunk: ColumnElement[str], fields: Sequence[str]) -> Unpacked:
        # jsonb is taken apart twice as fast as json; texts come out as they went in.
        rows = func.jsonb_array_elements(cast(chunk, JSONB)).table_valued(column("job", JSONB), name="given").render_derived()
        texts = {name: rows.c.job.op("->>")(literal_column(str(place))) for place, name in enumerate(fields)}
        return Unpacked(rows, {name: cast(value, FIELDS[name]) for name, value in texts.items()})


def _limit_waits(connection: Connection) -> None:
    # Of this transaction alone. The last two are for tables that were small when their statistics were made, and because the tasks
    # are parallel already: to start helpers for each page takes longer than to read it.
    connection.exec_driver_sql(
        "SELECT set_config('lock_timeout', '60s', true), set_config('statement_timeout', '30min', true), "
        "set_config('idle_in_transaction_session_timeout', '5min', true), set_config('enable_seqscan', 'off', true), "
        "set_config('max_parallel_workers_per_gather', '0', true), set_config('jit', 'off', true)"
    )
