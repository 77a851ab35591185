"""Room in each job's row for what a claim writes into it."""

import sqlalchemy as sa
from alembic import context, op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None
additive = True  # rows that code without this column claims get longer, as before
loses = "the column padding of {jobs}"


def names() -> tuple[str, str | None]:
    """The user's choice of names; all else is written out here and does not follow later changes of queue_db.store.schema."""
    tables = context.config.attributes["tables"]
    return tables.jobs.name, tables.schema


def has(table: str, column: str, schema: str | None) -> bool | None:
    """Whether the table has it: where DDL is no transaction, a run may have been cut off. None: there is no server to ask."""
    if context.is_offline_mode():
        return None
    return column in {one["name"] for one in sa.inspect(op.get_bind()).get_columns(table, schema=schema)}


def upgrade() -> None:
    jobs, schema = names()
    if not has(jobs, "padding", schema):
        padding = sa.Column("padding", sa.String(80).with_variant(sa.CHAR(80), "mysql", "mariadb"), server_default=sa.text("''"))
        op.add_column(jobs, padding, schema=schema)
    dialect = op.get_context().dialect
    if dialect.name in ("mysql", "mariadb"):
        # A column that is added at once is no part of the rows, on MariaDB not of new ones either while they have its default.
        op.execute(f"ALTER TABLE {dialect.identifier_preparer.format_table(sa.table(jobs, schema=schema))} FORCE")


def downgrade() -> None:
    jobs, schema = names()
    if has(jobs, "padding", schema) is not False:
        op.drop_column(jobs, "padding", schema=schema)
