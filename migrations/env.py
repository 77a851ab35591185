"""Alembic's environment. ``queue_db.database.migrate`` hands over the tables and the connection or dialect in ``attributes``."""

from typing import Any

from alembic import context
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import String, column, table

from queue_db.database.migrate import works_since
from queue_db.store.schema import tables as describe

attributes = context.config.attributes
tables = attributes.get("tables") or describe()

#: The migration that makes the column for it.
NOTED_SINCE = "0008"


def include_name(name: str | None, type_: str, parent_names: dict[str, str | None]) -> bool:
    """Only our tables, and only in our schema: the queue is a guest in somebody's database."""
    if type_ == "schema":
        return name == tables.schema
    if type_ == "table":
        return name in {table.name for table in tables.metadata.tables.values()}
    return True


def note_works_since(ctx: MigrationContext, heads: set[str], **_: Any) -> None:
    """After each step, in its transaction: write down which code works with the tables now."""
    for revision in heads:
        if revision >= NOTED_SINCE:
            oldest = works_since(ScriptDirectory.from_config(context.config), revision)
            version = table(tables.version, column("works_since", String), schema=tables.schema)
            ctx.execute(version.update().values(works_since=oldest))


options = {
    "target_metadata": tables.metadata,
    "version_table": tables.version,
    "version_table_schema": tables.schema,
    "include_schemas": tables.schema is not None,
    "include_name": include_name,
    "on_version_apply": note_works_since,
}

if context.is_offline_mode():
    context.configure(dialect_name=attributes["sql_dialect"].name, literal_binds=True, **options)
else:
    # The transaction is the caller's: it commits. Where DDL commits by itself (MySQL), so do we after each step.
    context.configure(connection=attributes["connection"], **options)

with context.begin_transaction():
    context.run_migrations()
