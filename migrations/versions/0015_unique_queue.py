"""On MySQL and MariaDB a unique index in which jobs without a key have nothing but NULL."""

import sqlalchemy as sa
from alembic import context, op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None
additive = True  # the index refuses the same keys as the one before, and finds a job by its key too

COLUMN = "unique_queue VARCHAR(100) GENERATED ALWAYS AS (CASE WHEN unique_key IS NOT NULL THEN queue END) STORED"


def changed(has_column: bool) -> tuple[str, str] | None:
    """Return the table and its index of unique keys; None: there is nothing to do.

    :param has_column: what the table has if there is something to do. Where DDL is no transaction, a run may have ended just before
        it was recorded.
    """
    if op.get_context().dialect.name not in ("mysql", "mariadb"):
        return None  # the index has a condition
    tables = context.config.attributes["tables"]
    table, schema = tables.jobs.name, tables.schema
    if not context.is_offline_mode():
        found = {one["name"] for one in sa.inspect(op.get_bind()).get_columns(table, schema=schema)}
        if ("unique_queue" in found) is not has_column:
            return None
    return op.get_context().dialect.identifier_preparer.format_table(sa.table(table, schema=schema)), f"{table}_unique_key"


# Each is one statement, so that there is a unique index at all times. It copies the table, and writers wait meanwhile: from changes
# during an online one MariaDB makes wrong entries in an index of a column that it computes.


def upgrade() -> None:
    if found := changed(has_column=False):
        table, index = found
        change = f"ADD COLUMN {COLUMN}, DROP INDEX {index}, ADD UNIQUE INDEX {index} (unique_key, unique_queue)"
        op.execute(f"ALTER TABLE {table} {change}, LOCK=SHARED")


def downgrade() -> None:
    if found := changed(has_column=True):
        table, index = found
        change = f"DROP INDEX {index}, DROP COLUMN unique_queue, ADD UNIQUE INDEX {index} (queue, unique_key)"
        op.execute(f"ALTER TABLE {table} {change}, LOCK=SHARED")
