"""PostgreSQL servers: connections, error codes, and diagnosis."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from sqlalchemy import URL, Connection, Engine, Table, event, func, select, text
from sqlalchemy.engine.interfaces import Dialect as SQLAlchemyDialect
from sqlalchemy.exc import DBAPIError

from queue_db.dialects import pgbouncer, raw_cursor, server_probe
from queue_db.dialects.listening import AsyncpgListener, PostgreSQLListener
from queue_db.dialects.server import GONE_AFTER, MOST, OpenTransaction, Server, limit_waits
from queue_db.dialects.transactions import Sender
from queue_db.errors import StorageError
from queue_db.model import Capability, Fault

# Error codes of a prepared statement that does not exist, or exists already.
_NOT_MY_SESSION = frozenset({"26000", "42P05"})

# asyncpg prepares all statements and keeps them with the connection. Each execution gets its own plan, because a generic plan that
# was made for an empty table would stay.
_ASYNCPG: dict[str, Any] = {
    "timeout": 10,
    "server_settings": {
        "application_name": "queue_db",
        "lock_timeout": "10000",
        "default_transaction_isolation": "read committed",
        "plan_cache_mode": "force_custom_plan",
        "enable_seqscan": "off",
        "jit": "off",
    },
}

# TRANSACTION_STATUS_IDLE of psycopg2. While a reply is outstanding, the status is another number.
_IDLE = 0

# A transaction that has written nothing and keeps no snapshot delays nothing. For a user without the right to see transactions of
# other users, their times are NULL.
_OPEN = text(
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


class PostgreSQLServer(Server):
    """Makes engines at READ COMMITTED that notice a broken network within seconds; checks rights on schemas and sequences."""

    names: ClassVar[tuple[str, ...]] = ("postgresql",)
    title: ClassVar[str] = "PostgreSQL"
    default_driver: ClassVar[str | None] = "psycopg2"
    extra: ClassVar[str] = "postgresql"
    async_driver: ClassVar[str | None] = "asyncpg"
    async_extra: ClassVar[str] = "async-postgresql"
    autocommits: ClassVar[bool] = True
    minimum: ClassVar[tuple[int, ...]] = (13,)
    # Serialization failure, deadlock, lock not available, too many connections, shutting down, cannot connect now.
    # Also the errors of a statement that was prepared in another session.
    transient: ClassVar[frozenset[str]] = (
        frozenset({"40001", "40P01", "55P03", "53300", "57P01", "57P02", "57P03"}) | _NOT_MY_SESSION
    )

    read_only: ClassVar[frozenset[str]] = frozenset({"25006"})
    full: ClassVar[frozenset[str]] = frozenset({"53100"})
    # statement_timeout has ended the statement, or an administrator has cancelled it.
    expired: ClassVar[frozenset[str]] = frozenset({"57014"})

    faults: ClassVar[Mapping[str, Fault]] = {
        "40P01": Fault.DEADLOCK,
        "40001": Fault.SERIALIZATION,
        "55P03": Fault.LOCK_TIMEOUT,
    }

    async_options: ClassVar[Mapping[str, str | None]] = {
        "sslmode": "ssl",
        **dict.fromkeys(("connect_timeout", "keepalives", "keepalives_idle", "keepalives_interval", "keepalives_count")),
        **dict.fromkeys(("tcp_user_timeout", "application_name")),
    }

    _prepares = False

    def __init__(self) -> None:
        self._pooler = pgbouncer.PoolerDetection(self)

    def capabilities(self, sql: SQLAlchemyDialect) -> frozenset[Capability]:
        return frozenset(Capability)

    # --- opening ----------------------------------------------------------------------------------------------------

    def engine_options(self, url: URL) -> dict[str, Any]:
        # Without these options, a query hung for 25 s and more after its network was cut. With them, the limit is 15 s.
        # Options in the URL take precedence.
        if url.get_driver_name() == "asyncpg":
            return {"connect_args": {name: value for name, value in _ASYNCPG.items() if name not in url.query}}
        waits = {
            "connect_timeout": 10,
            "keepalives": 1,
            "keepalives_idle": 9,
            "keepalives_interval": 2,
            "keepalives_count": 3,
            "tcp_user_timeout": GONE_AFTER * 1000,
            "application_name": "queue_db",
            # lock_timeout, in milliseconds, limits the wait for a row or a table that a forgotten transaction has locked.
            # Isolation: at REPEATABLE READ a lost version check is an error instead of an empty result.
            # plan_cache_mode: the prepared statements need no new plan for each set of values.
            # enable_seqscan: a plan that is made while the table is small must not read all of it when it has grown.
            # jit: a query that must read a whole table now looks so expensive that servers before 18 would compile it first.
            "options": r"-c lock_timeout=10000 -c default_transaction_isolation=read\ committed "
            f"-c plan_cache_mode=force_generic_plan -c enable_seqscan=off -c jit=off -c {pgbouncer.MARK}=1",
        }
        if "options" in url.query:
            given = url.query["options"]
            waits["options"] = " ".join([str(waits["options"]), *([given] if isinstance(given, str) else given)])
        return {"connect_args": {name: value for name, value in waits.items() if name == "options" or name not in url.query}}

    def prepare(self, engine: Engine, *, made_here: bool) -> Engine:
        self._prepares = made_here and engine.dialect.driver == "psycopg2"
        if not made_here:
            return engine.execution_options(isolation_level="READ COMMITTED")
        if engine.dialect.driver == "psycopg2":
            self._pooler.watch(engine)
        if engine.dialect.driver == "asyncpg":
            event.listen(engine, "do_connect", pgbouncer.refuse_pooler)
            event.listen(engine, "connect", limit_waits)
        return engine

    def is_idle(self, driver: Any) -> bool:
        status = getattr(driver, "get_transaction_status", None)
        if status is not None:
            return bool(status() == _IDLE)
        transaction = getattr(driver, "is_in_transaction", None)  # asyncpg's
        return transaction is None or not transaction()

    def database_of(self, connection: Connection) -> str | None:
        return str(connection.execute(select(func.current_database())).scalar_one())

    def takes_raw_cursor(self, sql: SQLAlchemyDialect) -> bool:
        return self._prepares and sql.driver == "psycopg2" and not self._pooler.pooled

    def known_alive(self, tx: Sender) -> bool:
        # Only for the library's own connections with psycopg2. A caller's connection may have any driver, and has a transaction.
        # asyncpg reads from its socket all the time. Poolers need a transaction anyway.
        return tx.sends_raw and raw_cursor.lively(tx.info, tx._driver)  # noqa: SLF001 - a dialect knows the driver

    def listen(self, engine: Engine, channel: str) -> PostgreSQLListener | None:
        # Through a pooler no notification arrives.
        receives = engine.dialect.driver == "psycopg2" and not self._pooler.pooled
        return PostgreSQLListener(engine, channel) if receives else None

    def listen_on_loop(self, engine: Engine, broken: Callable[[], None]) -> AsyncpgListener | None:
        receives = engine.dialect.driver == "asyncpg" and not self._pooler.pooled
        return AsyncpgListener(engine, broken) if receives else None

    # --- errors -----------------------------------------------------------------------------------------------------

    def code(self, error: DBAPIError) -> str | None:
        return getattr(error.orig, "pgcode", None) or getattr(error.orig, "sqlstate", None)

    def is_down(self, engine: Engine) -> bool:
        _, options = engine.dialect.create_connect_args(engine.url)
        return server_probe.none_accepts(server_probe.targets(options), options)

    def translate(self, error: DBAPIError, statement_name: str) -> StorageError:
        # Behind a pooler that gives each transaction another session, prepared statements are missing. The transaction runs again.
        # From then on, no statement is prepared.
        if self.code(error) in _NOT_MY_SESSION:
            self._prepares = self.uses_raw_cursor = False
        return super().translate(error, statement_name)

    def is_transient(self, code: str) -> bool:
        return super().is_transient(code) or code.startswith("08")

    def is_away(self, code: str) -> bool:
        return super().is_away(code) and code not in _NOT_MY_SESSION

    # --- diagnosis --------------------------------------------------------------------------------------------------

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
        rows = connection.execute(_OPEN, {"age": age, "most": MOST})
        return [OpenTransaction(row.state, row.name, float(row.age), f"SELECT pg_terminate_backend({row.pid})") for row in rows]

    def hidden_transactions(self, connection: Connection) -> str | None:
        sees_all = connection.execute(text("SELECT pg_has_role(current_user, 'pg_read_all_stats', 'USAGE')")).scalar_one()
        return None if sees_all else f"GRANT pg_read_all_stats TO {self.grantee(connection)}"
