"""The schema's migrations: find the scripts, run them, check the version, print the DDL.

Alembic is imported only when something is migrated; looking at the version needs nothing but SQLAlchemy.
"""

from __future__ import annotations

import io
import random
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, column, inspect, select, table
from sqlalchemy.engine.interfaces import Dialect as SQLAlchemyDialect

from queue_db.database import Database
from queue_db.errors import ConfigurationError, SchemaOutOfDateError, StorageError
from queue_db.schema import HEAD, Tables

if TYPE_CHECKING:
    from alembic.config import Config

__all__ = ["HEAD", "configuration", "found", "offline_sql", "require", "run", "scripts"]


# Looks for tables that another process is making, and the pause between them (seconds).
_LOOKS = 20
_BETWEEN_LOOKS = 0.25


def scripts() -> Path:
    """The folder of the migration scripts: inside the package in a wheel, beside it in a checkout."""
    package = Path(__file__).resolve().parent
    for folder in (package / "migrations", package.parent / "migrations"):
        if (folder / "env.py").is_file():
            return folder
    raise ConfigurationError("the migration scripts are missing from this installation: reinstall queue-db")


def configuration(tables: Tables, connection: Connection | None = None, **attributes: Any) -> Config:
    """Alembic's configuration for one pair of tables.

    :raises ConfigurationError: when Alembic is not installed.
    """
    try:
        from alembic.config import Config
    except ImportError:
        raise ConfigurationError('Alembic runs the migrations and is not installed: pip install "queue-db[migrate]"') from None
    # Not Alembic's default, which is what stdout was when Alembic was imported.
    config = Config(stdout=sys.stdout)
    config.set_main_option("script_location", str(scripts()).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes.update(tables=tables, connection=connection, **attributes)
    return config


def found(database: Database, tables: Tables) -> str | None:
    """The revision that the database is at; None where the tables were never made."""
    return database.run(lambda connection: _found(connection, tables), name="schema version", write=False)


def _found(connection: Connection, tables: Tables) -> str | None:
    if not inspect(connection).has_table(tables.version, schema=tables.schema):
        return None
    version = table(tables.version, column("version_num"), schema=tables.schema)
    return connection.execute(select(version.c.version_num)).scalar()


def require(revision: str | None, tables: Tables, url: str) -> None:
    """Refuse any revision but the one that this package was written for.

    :raises SchemaOutOfDateError: with the command that fixes it.
    """
    if revision == HEAD:
        return
    options = "" if tables.name == "jobs" else f" --table {tables.name}"
    options += "" if tables.schema is None else f" --schema {tables.schema}"
    command = f"queue-db migrate --url '{url}'{options}  (or QueueDB.migrate())"
    if revision is None:
        message = f"the table {tables.name!r} of the queue is not there yet; make it with: {command}"
    elif revision > HEAD:
        message = (
            f"the tables {tables.name!r} are at revision {revision}, made by a newer queue-db; this one knows {HEAD}: "
            "upgrade the package (pip install -U queue-db)"
        )
    else:
        message = f"the tables {tables.name!r} are at revision {revision}, {HEAD} is required; run: {command}"
    raise SchemaOutOfDateError(message, found=revision, required=HEAD)


def run(database: Database, tables: Tables, connection: Connection | None, revision: str) -> None:
    """Migrate up or down to ``revision``; on ``connection`` in the caller's transaction.

    Several processes may do this at once when they start: one makes the tables, the others find them made.
    """
    if connection is not None:
        _to(connection, tables, revision)
        return
    try:
        database.run(lambda own: _to(own, tables, revision), name="migrate", attempts=1)
    except StorageError:
        if revision != "head" or not _made_by_another(database, tables):
            raise


def _made_by_another(database: Database, tables: Tables) -> bool:
    """Whether the tables reach the head within a few seconds although our own attempt failed."""
    for _ in range(_LOOKS):
        if found(database, tables) == HEAD:
            return True
        database.pause(random.uniform(0.5, 1.0) * _BETWEEN_LOOKS)
    return False


def _to(connection: Connection, tables: Tables, revision: str) -> None:
    config = configuration(tables, connection)
    from alembic import command
    from alembic.script import ScriptDirectory
    from alembic.util.exc import CommandError

    directory = ScriptDirectory.from_config(config)
    here = _found(connection, tables)
    if here is None:
        _refuse_foreign(connection, tables)
    try:
        order = [script.revision for script in reversed(list(directory.walk_revisions()))]
        wanted = order[-1] if revision == "head" else None if revision == "base" else directory.get_revision(revision).revision
        if here is not None and here not in order:
            raise SchemaOutOfDateError(
                f"the tables {tables.name!r} are at revision {here}, which this queue-db does not know: upgrade the package",
                found=here,
                required=HEAD,
            )
        place = {name: number for number, name in enumerate(order)}
        if wanted is None or (here is not None and place[wanted] < place[here]):
            command.downgrade(config, revision)
        else:
            command.upgrade(config, revision)
    except CommandError as error:
        raise ConfigurationError(f"migrate to {revision!r}: {error}") from error


def _refuse_foreign(connection: Connection, tables: Tables) -> None:
    """Do not take somebody else's ``jobs`` for ours; one of ours without a version is a migration that was cut off."""
    inspector = inspect(connection)
    for ours in (tables.jobs, tables.dead):
        if not inspector.has_table(ours.name, schema=ours.schema):
            continue
        if {found["name"] for found in inspector.get_columns(ours.name, schema=ours.schema)} != {column.name for column in ours.c}:
            raise ConfigurationError(
                f"there is a table {ours.name!r} in this database that is not queue_db's; choose another name: "
                "QueueDB(url, table=…) or queue-db --table …"
            )


def offline_sql(dialect: SQLAlchemyDialect, tables: Tables, revision: str) -> str:
    """The DDL from an empty database to ``revision``; needs no server.

    :raises ConfigurationError: there is no such revision.
    """
    config = configuration(tables, sql_dialect=dialect)
    from alembic import command
    from alembic.util.exc import CommandError

    output = io.StringIO()
    config.output_buffer = output
    try:
        command.upgrade(config, revision, sql=True)
    except CommandError as error:
        raise ConfigurationError(f"migrate to {revision!r}: {error}") from error
    return output.getvalue()
