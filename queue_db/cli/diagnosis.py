"""What ``queue-db doctor`` and a comparison ask each database: settings, missing rights, and open transactions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from sqlalchemy import Connection, Table, text
from sqlalchemy.exc import DBAPIError

from queue_db.dialects.base import Companion

# The maximum number of open transactions in one diagnosis. The oldest ones come first.
_MOST = 10


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction of another connection that delays the queue."""

    #: The state of its connection, in the server's words.
    state: str
    #: The user of its connection; None: the server shows none.
    user: str | None
    #: The seconds for which it has been open.
    age: float
    #: The statement that ends the transaction.
    end: str


class Diagnosis(Companion):
    """Defaults that work on most databases. ``Diagnosis.of(dialect)`` is the one for a dialect of the queue."""

    #: The advice if the database refuses changes.
    when_read_only: ClassVar[str] = "connect to a server that takes changes"

    def facts(self, connection: Connection, jobs: Table) -> dict[str, str]:
        """Settings of the server and of the table that matter for performance."""
        return {}

    def grantee(self, connection: Connection) -> str:
        """The user of this connection in the syntax of GRANT. Default: there are no users."""
        return "…"

    def closed_schema(self, connection: Connection, jobs: Table) -> str | None:
        """The quoted schema of the tables if the user has no right to use it. Default: None, schemas need no right."""
        return None

    def closed_sequences(self, connection: Connection, tables: Sequence[Table]) -> list[str]:
        """The id sequences of these tables that the user has no right to use. Default: ids need no right of their own."""
        return []

    def open_transactions(self, connection: Connection, age: float) -> list[OpenTransaction]:
        """The transactions of other connections that delay the queue and are open for more than ``age`` seconds.

        Only those that the user may see. Default: none, they are unknown.
        """
        return []

    def hidden_transactions(self, connection: Connection) -> str | None:
        """The GRANT that the user needs to see the transactions of other users. Default: None, the user sees them."""
        return None


# Times in innodb_trx are in the server's time zone, and NOW() is in the session's. A transaction at READ COMMITTED that has locked
# nothing delays nothing. Thread 0 stands for a transaction without a connection.
_OPEN_MYSQL = text(
    "SELECT t.trx_mysql_thread_id AS thread, p.user AS name, p.command AS state, "
    "TIMESTAMPDIFF(SECOND, t.trx_started, CONVERT_TZ(NOW(), @@session.time_zone, 'SYSTEM')) AS age "
    "FROM information_schema.innodb_trx t LEFT JOIN information_schema.processlist p ON p.id = t.trx_mysql_thread_id "
    "WHERE t.trx_mysql_thread_id NOT IN (0, CONNECTION_ID()) "
    "AND (t.trx_isolation_level IN ('REPEATABLE READ', 'SERIALIZABLE') OR t.trx_rows_locked + t.trx_rows_modified > 0) "
    "HAVING age >= :age ORDER BY age DESC LIMIT :most"
)

# The error number if the user lacks the privilege PROCESS.
_NOT_ALLOWED = 1227


class MySQLDiagnosis(Diagnosis):
    """Names accounts with their hosts."""

    names: ClassVar[tuple[str, ...]] = ("mysql", "mariadb")
    when_read_only: ClassVar[str] = "connect to the primary, or switch read_only off"

    def facts(self, connection: Connection, jobs: Table) -> dict[str, str]:
        # Not every server has all of these variables.
        query = text(
            "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('innodb_snapshot_isolation', 'innodb_lock_wait_timeout', "
            "'innodb_flush_log_at_trx_commit', 'innodb_doublewrite', 'innodb_buffer_pool_size', 'sync_binlog', 'binlog_format', "
            "'log_bin', 'max_allowed_packet', 'max_connections', 'transaction_isolation', 'tx_isolation')"
        )
        units = {"innodb_lock_wait_timeout": " s", "innodb_buffer_pool_size": " bytes", "max_allowed_packet": " bytes"}
        return {str(name): f"{value}{units.get(name, '')}" for name, value in connection.execute(query)}

    def grantee(self, connection: Connection) -> str:
        # CURRENT_USER() is the account with which the server has authenticated this user. A GRANT to a name without a host is for
        # the account 'name'@'%', which might not exist.
        name, _, host = str(connection.execute(text("SELECT CURRENT_USER()")).scalar_one()).rpartition("@")
        return "@".join("'" + part.replace("'", "''") + "'" for part in (name, host))

    def open_transactions(self, connection: Connection, age: float) -> list[OpenTransaction]:
        if self.hidden_transactions(connection):
            return []
        rows = connection.execute(_OPEN_MYSQL, {"age": age, "most": _MOST})
        return [OpenTransaction(row.state or "unknown", row.name, float(row.age), f"KILL {row.thread}") for row in rows]

    def hidden_transactions(self, connection: Connection) -> str | None:
        try:
            connection.execute(text("SELECT 1 FROM information_schema.innodb_trx LIMIT 1")).close()
        except DBAPIError as error:
            if getattr(error.orig, "args", (None,))[0] != _NOT_ALLOWED:
                raise
            return f"GRANT PROCESS ON *.* TO {self.grantee(connection)}"
        return None


# A transaction that has written nothing and keeps no snapshot delays nothing. For a user without the right to see transactions of
# other users, their times are NULL.
_OPEN_POSTGRESQL = text(
    "SELECT pid, usename AS name, state, EXTRACT(EPOCH FROM clock_timestamp() - xact_start) AS age FROM pg_stat_activity "
    "WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid() "
    "AND (backend_xid IS NOT NULL OR backend_xmin IS NOT NULL) "
    "AND xact_start <= clock_timestamp() - :age * INTERVAL '1 second' ORDER BY xact_start LIMIT :most"
)

# A user without a right to the schema can still read the catalog. If no schema is given, this looks for the table in the schemas of
# the search path.
_CLOSED = text(
    "SELECT quote_ident(n.nspname) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
    "WHERE c.relname = :name AND NOT has_schema_privilege(n.oid, 'USAGE') "
    "AND (n.nspname = :schema OR CAST(:schema AS text) IS NULL AND n.nspname = ANY "
    "(string_to_array(translate(replace(current_setting('search_path'), '$user', current_user), '\" ', ''), ',')) "
    "AND NOT EXISTS (SELECT FROM pg_class v WHERE v.relname = :name AND pg_table_is_visible(v.oid)))"
)


class PostgreSQLDiagnosis(Diagnosis):
    """Checks rights on schemas and sequences."""

    names: ClassVar[tuple[str, ...]] = ("postgresql",)
    when_read_only: ClassVar[str] = (
        "connect to the primary (with several hosts in the URL: target_session_attrs=read-write), or switch "
        "default_transaction_read_only off"
    )

    def facts(self, connection: Connection, jobs: Table) -> dict[str, str]:
        # current_setting has a unit; the column ``setting`` counts shared_buffers in pages.
        settings = text(
            "SELECT name, current_setting(name) AS setting FROM pg_settings WHERE name IN ('autovacuum', 'fsync', "
            "'full_page_writes', 'max_connections', 'shared_buffers', 'synchronous_commit', 'transaction_isolation')"
        )
        facts = {row.name: row.setting for row in connection.execute(settings)}
        # A table that was created without the migration has none of these options.
        options = text(
            "SELECT unnest(c.reloptions) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
            "WHERE c.relname = :name AND (n.nspname = :schema OR CAST(:schema AS text) IS NULL AND pg_table_is_visible(c.oid))"
        )
        for option in connection.execute(options, {"name": jobs.name, "schema": jobs.schema}).scalars():
            name, _, value = option.partition("=")
            if name in ("fillfactor", "autovacuum_vacuum_threshold"):
                facts[f"{name} of {jobs.name}"] = f"{value} %" if name == "fillfactor" else f"{value} rows"
        return dict(sorted(facts.items()))

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
        rows = connection.execute(_OPEN_POSTGRESQL, {"age": age, "most": _MOST})
        return [OpenTransaction(row.state, row.name, float(row.age), f"SELECT pg_terminate_backend({row.pid})") for row in rows]

    def hidden_transactions(self, connection: Connection) -> str | None:
        sees_all = connection.execute(text("SELECT pg_has_role(current_user, 'pg_read_all_stats', 'USAGE')")).scalar_one()
        return None if sees_all else f"GRANT pg_read_all_stats TO {self.grantee(connection)}"


class SQLiteDiagnosis(Diagnosis):
    """Has no users and shows no transactions."""

    names: ClassVar[tuple[str, ...]] = ("sqlite",)
    when_read_only: ClassVar[str] = "let this user write to the file and to its folder, and leave out mode=ro in the URL"

    def facts(self, connection: Connection, jobs: Table) -> dict[str, str]:
        units = {"journal_mode": "", "synchronous": "", "busy_timeout": " ms", "page_size": " bytes"}
        return {name: f"{connection.exec_driver_sql(f'PRAGMA {name}').scalar()}{unit}" for name, unit in units.items()}
