"""On MySQL and MariaDB a unique index in which jobs without a key have nothing but NULL."""

import sqlalchemy as sa
from alembic import context, op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None
additive = True  # the index refuses the same keys as the one before, and finds a job by its key too

UP = ("unique_key", "unique_queue")
DOWN = ("queue", "unique_key")


def names() -> tuple[str, str | None]:
    """The user's choice of names; all else is written out here and does not follow later changes of queue_db.store.schema."""
    tables = context.config.attributes["tables"]
    return tables.jobs.name, tables.schema


def has_column(table: str, schema: str | None) -> bool | None:
    """Whether the table has the column: where DDL is no transaction, a run may have been cut off. None: no server to ask."""
    if context.is_offline_mode():
        return None
    return "unique_queue" in {one["name"] for one in sa.inspect(op.get_bind()).get_columns(table, schema=schema)}


def reindex(table: str, schema: str | None, columns: tuple[str, str]) -> None:
    """Make the index of unique keys one of these columns. At no time there is none. Writers wait meanwhile.

    From changes during the statement, MariaDB would make entries in which the virtual column is NULL: the index would be corrupt.
    """
    index = f"{table}_unique_key"
    if not context.is_offline_mode():
        found = sa.inspect(op.get_bind()).get_indexes(table, schema=schema)
        if columns in {tuple(one["column_names"]) for one in found if one["name"] == index}:
            return
    name = op.get_context().dialect.identifier_preparer.format_table(sa.table(table, schema=schema))
    op.execute(f"ALTER TABLE {name} DROP INDEX {index}, ADD UNIQUE INDEX {index} ({', '.join(columns)}), LOCK=SHARED")


def upgrade() -> None:
    if op.get_context().dialect.name not in ("mysql", "mariadb"):
        return  # the index has a condition
    jobs, schema = names()
    # A statement of its own: a virtual column is added without a copy of the table, but not together with anything else.
    if not has_column(jobs, schema):
        computed = sa.Computed("CASE WHEN unique_key IS NOT NULL THEN queue END", persisted=False)
        op.add_column(jobs, sa.Column("unique_queue", sa.String(100), computed), schema=schema)
    reindex(jobs, schema, UP)


def downgrade() -> None:
    if op.get_context().dialect.name not in ("mysql", "mariadb"):
        return
    jobs, schema = names()
    reindex(jobs, schema, DOWN)
    if has_column(jobs, schema) is not False:
        op.drop_column(jobs, "unique_queue", schema=schema)
