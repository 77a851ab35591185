"""How PostgreSQL is opened: driver options, facts about the server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from sqlalchemy import URL, Connection, Table, func, select, text

from queue_db.dialects import asynchronous, pooled
from queue_db.dialects.opening import Opening

# asyncpg prepares all statements and keeps them with the connection, so each execution gets a plan of its own: a generic plan made
# while the table was empty would stay.
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


class PostgreSQLOpening(Opening):
    """Engines that fail within seconds when the network does, at READ COMMITTED."""

    async_options: ClassVar[Mapping[str, str | None]] = {
        "sslmode": "ssl",
        **dict.fromkeys(("connect_timeout", "keepalives", "keepalives_idle", "keepalives_interval", "keepalives_count")),
        **dict.fromkeys(("tcp_user_timeout", "application_name")),
    }

    def facts(self, connection: Connection, jobs: Table) -> dict[str, str]:
        # As people write it, with a unit: shared_buffers is counted in pages.
        settings = text(
            "SELECT name, current_setting(name) AS setting FROM pg_settings WHERE name IN ('autovacuum', 'fsync', "
            "'full_page_writes', 'max_connections', 'shared_buffers', 'synchronous_commit', 'transaction_isolation')"
        )
        facts = {row.name: row.setting for row in connection.execute(settings)}
        # A table created without the migration has none of these.
        options = text(
            "SELECT unnest(c.reloptions) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
            "WHERE c.relname = :name AND (n.nspname = :schema OR CAST(:schema AS text) IS NULL AND pg_table_is_visible(c.oid))"
        )
        for option in connection.execute(options, {"name": jobs.name, "schema": jobs.schema}).scalars():
            name, _, value = option.partition("=")
            if name in ("fillfactor", "autovacuum_vacuum_threshold"):
                facts[f"{name} of {jobs.name}"] = f"{value} %" if name == "fillfactor" else f"{value} rows"
        return dict(sorted(facts.items()))

    def database_of(self, connection: Connection) -> str | None:
        return str(connection.execute(select(func.current_database())).scalar_one())

    def engine_options(self, url: URL) -> dict[str, Any]:
        # Without these a query on a connection whose network was cut hung for 25 s and more; with them 15 s is the limit.
        # They give way to what the URL says.
        if url.get_driver_name() == "asyncpg":
            return {"connect_args": {name: value for name, value in _ASYNCPG.items() if name not in url.query}}
        waits = {
            "connect_timeout": 10,
            "keepalives": 1,
            "keepalives_idle": 9,
            "keepalives_interval": 2,
            "keepalives_count": 3,
            "tcp_user_timeout": asynchronous.GONE_AFTER * 1000,
            "application_name": "queue_db",
            # Milliseconds: a bound on the wait for a row or a table that a forgotten transaction has locked. At REPEATABLE READ a
            # lost version check is an error instead of no row. What is prepared here needs no plan for each set of values; and one
            # that is made while the table is small must not read all of it when it has grown. What must be read all the same
            # looks so expensive then that servers before 18 would compile it first.
            "options": r"-c lock_timeout=10000 -c default_transaction_isolation=read\ committed "
            f"-c plan_cache_mode=force_generic_plan -c enable_seqscan=off -c jit=off -c {pooled.MARK}=1",
        }
        if "options" in url.query:
            given = url.query["options"]
            waits["options"] = " ".join([str(waits["options"]), *([given] if isinstance(given, str) else given)])
        return {"connect_args": {name: value for name, value in waits.items() if name == "options" or name not in url.query}}
