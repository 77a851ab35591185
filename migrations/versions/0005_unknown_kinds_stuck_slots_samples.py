"""When a job's kind was first found without a handler, numbers of stuck slots, and counts of queues for metrics."""

import sqlalchemy as sa
from alembic import context, op
from sqlalchemy.dialects.mysql import LONGTEXT

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None
additive = True
loses = "the table {jobs}_samples, with what it holds; the columns unknown_since of {jobs} and stuck of {jobs}_workers"

long_text = sa.Text().with_variant(LONGTEXT, "mysql", "mariadb")
mysql = {
    f"{family}_{name}": value
    for family in ("mysql", "mariadb")
    for name, value in (("engine", "InnoDB"), ("charset", "utf8mb4"), ("collate", "utf8mb4_bin"))
}


def names() -> tuple[str, str | None]:
    """The user's choice of names; all else is written out here and does not follow later changes of queue_db.store.schema."""
    tables = context.config.attributes["tables"]
    return tables.jobs.name, tables.schema


def lacks_column(table: str, column: str, schema: str | None) -> bool:
    """Whether the column is still to be made: where DDL is no transaction, an earlier run may have been cut off."""
    if context.is_offline_mode():
        return True
    return column not in {found["name"] for found in sa.inspect(op.get_bind()).get_columns(table, schema=schema)}


def upgrade() -> None:
    jobs, schema = names()
    # Nullable or with a default: code that does not know these columns goes on working.
    added = {
        jobs: [sa.Column("unknown_since", sa.BigInteger)],
        f"{jobs}_workers": [sa.Column("stuck", sa.Integer, nullable=False, server_default=sa.text("0"))],
    }
    for table, columns in added.items():
        for column in columns:
            if lacks_column(table, column.name, schema):
                op.add_column(table, column, schema=schema)
    op.create_table(
        f"{jobs}_samples",
        sa.Column("name", sa.String(40), primary_key=True),
        sa.Column("version", sa.BigInteger, nullable=False, server_default=sa.text("0")),
        sa.Column("taken_at", sa.BigInteger),
        sa.Column("next_at", sa.BigInteger, nullable=False, server_default=sa.text("0")),
        sa.Column("data", long_text),
        schema=schema,
        if_not_exists=True,
        **mysql,
    )


def downgrade() -> None:
    jobs, schema = names()
    op.drop_table(f"{jobs}_samples", schema=schema)
    for table, column in ((f"{jobs}_workers", "stuck"), (jobs, "unknown_since")):
        op.drop_column(table, column, schema=schema)
