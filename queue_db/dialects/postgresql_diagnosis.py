"""What PostgreSQL shows of itself: rights, and transactions that are open for long."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from sqlalchemy import Connection, Table, text

from queue_db.dialects.diagnosis import MOST, Diagnosis, OpenTransaction

# One that has neither written nor keeps a snapshot holds up nothing. Of other users' the server shows no times without a right.
_OPEN = text(
    "SELECT pid, usename AS name, state, EXTRACT(EPOCH FROM clock_timestamp() - xact_start) AS age FROM pg_stat_activity "
    "WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid() "
    "AND (backend_xid IS NOT NULL OR backend_xmin IS NOT NULL) "
    "AND xact_start <= clock_timestamp() - :age * INTERVAL '1 second' ORDER BY xact_start LIMIT :most"
)

# The catalog can be read without a right to the schema. A name without a schema is looked for in those of the search path.
_CLOSED = text(
    "SELECT quote_ident(n.nspname) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
    "WHERE c.relname = :name AND NOT has_schema_privilege(n.oid, 'USAGE') "
    "AND (n.nspname = :schema OR CAST(:schema AS text) IS NULL AND n.nspname = ANY "
    "(string_to_array(translate(replace(current_setting('search_path'), '$user', current_user), '\" ', ''), ',')) "
    "AND NOT EXISTS (SELECT FROM pg_class v WHERE v.relname = :name AND pg_table_is_visible(v.oid)))"
)


class PostgreSQLDiagnosis(Diagnosis):
    """Rights on schemas and sequences, and ``pg_stat_activity``."""

    when_read_only: ClassVar[str] = (
        "connect to the primary (with several hosts in the URL: target_session_attrs=read-write), or switch "
        "default_transaction_read_only off"
    )

    def grantee(self, connection: Connection) -> str:
        return str(connection.execute(text("SELECT quote_ident(current_user)")).scalar_one())

    def closed_schema(self, connection: Connection, jobs: Table) -> str | None:
        return connection.execute(_CLOSED, {"name": jobs.name, "schema": jobs.schema}).scalars().first()

    def closed_sequences(self, connection: Connection, tables: Sequence[Table]) -> list[str]:
        quoted = connection.dialect.identifier_preparer.format_table
        named = [
            {"place": quoted(one), "id": one.autoincrement_column.name} for one in tables if one.autoincrement_column is not None
        ]
        query = text("SELECT pg_get_serial_sequence(:place, :id)")
        found = [connection.execute(query, one).scalar_one() for one in named]
        allowed = text("SELECT has_sequence_privilege(:sequence, 'USAGE')")
        return [one for one in found if one is not None and not connection.execute(allowed, {"sequence": one}).scalar_one()]

    def open_transactions(self, connection: Connection, age: float) -> list[OpenTransaction]:
        rows = connection.execute(_OPEN, {"age": age, "most": MOST})
        return [OpenTransaction(row.state, row.name, float(row.age), f"SELECT pg_terminate_backend({row.pid})") for row in rows]

    def hidden_transactions(self, connection: Connection) -> str | None:
        sees_all = connection.execute(text("SELECT pg_has_role(current_user, 'pg_read_all_stats', 'USAGE')")).scalar_one()
        return None if sees_all else f"GRANT pg_read_all_stats TO {self.grantee(connection)}"
