"""What a comparison needs of each database: a scratch schema, statistics, and the process of the server."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from sqlalchemy import URL, Connection, Table, func, select, text
from sqlalchemy.schema import CreateSchema, DropSchema

from queue_db.dialects.base import Companion

# Of Galera and of Group Replication: with it a session reads all that was committed on other nodes before. The latter waits for as
# long as an idle session may live; Galera's own limit is half a minute.
_READ_ALL = {"wsrep_sync_wait": "1", "group_replication_consistency": "'BEFORE'", "wait_timeout": "60"}


class Laboratory(Companion):
    """Defaults that work on most databases. ``Laboratory.of(dialect)`` is the one for a dialect of the queue."""

    def process(self, connection: Connection) -> int | None:
        """The process id of the server or of one of its processes; None: unknown."""
        return None

    def scratch_schema(self, url: URL, name: str) -> tuple[URL, str | None]:
        """The URL and the schema of tables apart from all others. Default: a schema of that name."""
        return url, name

    def make_scratch_schema(self, connection: Connection, name: str) -> None:
        """Create the scratch schema."""
        connection.execute(CreateSchema(name))

    def drop_scratch_schema(self, connection: Connection, name: str) -> None:
        """Drop the scratch schema with its tables, if it exists."""
        connection.execute(DropSchema(name, cascade=True, if_exists=True))

    def analyze(self, connection: Connection, table: Table) -> None:
        """Update the planner's statistics of the table. Default: not needed."""

    def catch_up(self, connection: Connection) -> None:
        """Return when this node of a cluster has what the others have committed. Default: not needed."""


class PostgreSQLLaboratory(Laboratory):
    """Finds the server by its connection's process."""

    names: ClassVar[tuple[str, ...]] = ("postgresql",)

    def process(self, connection: Connection) -> int | None:
        # This connection's own; its parent is the postmaster.
        return int(connection.execute(select(func.pg_backend_pid())).scalar_one())

    def analyze(self, connection: Connection, table: Table) -> None:
        connection.exec_driver_sql(f"ANALYZE {connection.dialect.identifier_preparer.format_table(table)}")


class MySQLLaboratory(Laboratory):
    """A schema is a database here."""

    names: ClassVar[tuple[str, ...]] = ("mysql", "mariadb")

    def process(self, connection: Connection) -> int | None:
        path = Path(str(connection.execute(text("SELECT @@pid_file")).scalar_one()))
        if not path.is_absolute():
            path = Path(str(connection.execute(text("SELECT @@datadir")).scalar_one())) / path
        try:
            return int(path.read_text())
        except (OSError, ValueError):
            return None  # on another machine, or not for our eyes

    def make_scratch_schema(self, connection: Connection, name: str) -> None:
        quoted = connection.dialect.identifier_preparer.quote(name)
        connection.exec_driver_sql(f"CREATE DATABASE {quoted} CHARACTER SET utf8mb4 COLLATE utf8mb4_bin")

    def drop_scratch_schema(self, connection: Connection, name: str) -> None:
        connection.exec_driver_sql(f"DROP DATABASE IF EXISTS {connection.dialect.identifier_preparer.quote(name)}")

    def analyze(self, connection: Connection, table: Table) -> None:
        connection.exec_driver_sql(f"ANALYZE TABLE {connection.dialect.identifier_preparer.format_table(table)}").all()

    def catch_up(self, connection: Connection) -> None:
        for name, value in _READ_ALL.items():
            if connection.exec_driver_sql(f"SHOW VARIABLES LIKE '{name}'").all():
                connection.exec_driver_sql(f"SET SESSION {name} = {value}")
        connection.exec_driver_sql("SELECT 1 FROM information_schema.tables LIMIT 1").all()


class SQLiteLaboratory(Laboratory):
    """A scratch schema is a file beside the user's."""

    names: ClassVar[tuple[str, ...]] = ("sqlite",)

    def scratch_schema(self, url: URL, name: str) -> tuple[URL, str | None]:
        # A file beside the user's, on the same disk.
        place = Path(url.database or "").absolute().parent if url.database not in (None, "", ":memory:") else Path.cwd()
        return url.set(database=str(place / f"{name}.db")), None

    def make_scratch_schema(self, connection: Connection, name: str) -> None:
        """Nothing to do: the file makes itself."""

    def drop_scratch_schema(self, connection: Connection, name: str) -> None:
        file = Path(connection.engine.url.database or "")
        connection.close()
        connection.engine.dispose()
        for suffix in ("", "-wal", "-shm", "-journal"):
            file.with_name(file.name + suffix).unlink(missing_ok=True)
