"""Alembic's environment.

``queue_db.administration.migrate`` hands over the tables, and the connection or dialect, in ``attributes``. The command ``alembic``
does not: then ``-x url=`` is the database, or the environment variable QUEUE_DB_URL, or ``sqlalchemy.url`` in the configuration;
``-x table=`` and ``-x schema=`` are as for ``QueueDB``.
"""

import logging
import os
from typing import Any

from alembic import context
from alembic.runtime.migration import MigrationContext
from alembic.util.exc import CommandError
from sqlalchemy import Connection, String, column, table

from queue_db.administration.migrate import prepare, works_since
from queue_db.database.database import Database
from queue_db.database.urls import URL_VARIABLE, parse_url
from queue_db.dialects import dialect_for
from queue_db.errors import QueueDBError
from queue_db.store.schema.tables import Tables
from queue_db.store.schema.tables import tables as describe

#: The migration that makes the column for it.
NOTED_SINCE = "0008"

#: What ``-x name=value`` may set.
SETTINGS = ("url", "table", "schema")

attributes = context.config.attributes


def include_name(name: str | None, type_: str, parent_names: dict[str, str | None]) -> bool:
    """Only our tables, and only in our schema: the queue is a guest in somebody's database."""
    tables = attributes["tables"]
    if type_ == "schema":
        return name == tables.schema
    if type_ == "table":
        return name in {table.name for table in tables.metadata.tables.values()}
    return True


def note_works_since(ctx: MigrationContext, heads: set[str], **_: Any) -> None:
    """After each step, in its transaction: write down which code works with the tables now."""
    tables = attributes["tables"]
    for revision in heads:
        if revision >= NOTED_SINCE:
            oldest = works_since(context.script, revision)
            version = table(tables.version, column("works_since", String), schema=tables.schema)
            ctx.execute(version.update().values(works_since=oldest))


def run(**how: Any) -> None:
    tables: Tables = attributes["tables"]
    context.configure(
        target_metadata=tables.metadata,
        version_table=tables.version,
        version_table_schema=tables.schema,
        include_schemas=tables.schema is not None,
        include_name=include_name,
        on_version_apply=note_works_since,
        **how,
    )
    with context.begin_transaction():
        context.run_migrations()


def run_offline(dialect: str) -> None:
    run(dialect_name=dialect, literal_binds=True, transactional_ddl=attributes.get("transactional_ddl"))


def run_for_command() -> None:
    """For the command ``alembic``, which only knows the settings."""
    settings = context.get_x_argument(as_dictionary=True)
    if unknown := sorted(set(settings) - set(SETTINGS)):
        raise CommandError(f"-x {unknown[0]}=…: known are {', '.join(SETTINGS)}")
    url = settings.get("url") or os.environ.get(URL_VARIABLE) or context.config.get_alembic_option("sqlalchemy.url")
    if not url:
        raise CommandError(
            f"no database given: set {URL_VARIABLE}, or use alembic -x url=postgresql://user:password@host/database …"
        )
    dialect = parse_url(url).get_dialect().name
    unique_queue = dialect_for(dialect).unique_queue
    attributes["tables"] = describe(settings.get("table", "jobs"), settings.get("schema"), unique_queue=unique_queue)
    if context.is_offline_mode():
        run_offline(dialect)
        return
    database = Database(url, pool_size=1, max_overflow=0)
    try:
        database.run(run_on, name="migrate", attempts=1)
    finally:
        database.close()


def run_on(connection: Connection) -> None:
    prepare(connection, attributes["tables"])
    run(connection=connection)


if "tables" not in attributes:
    # Alembic reports each step with a line of this logger.
    steps = logging.getLogger("alembic.runtime.migration")
    if not steps.handlers and not logging.getLogger().handlers:
        steps.addHandler(logging.StreamHandler())
        steps.setLevel(logging.INFO)
    try:
        run_for_command()
    except QueueDBError as error:
        raise CommandError(str(error)) from error
elif context.is_offline_mode():
    run_offline(attributes["sql_dialect"].name)
else:
    # The transaction is the caller's: it commits. Where DDL commits by itself (MySQL), so do we after each step.
    run(connection=attributes["connection"])
