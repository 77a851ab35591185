"""A table of what jobs have done, so that a job that runs again goes on where it was."""

import sqlalchemy as sa
from alembic import context, op
from sqlalchemy.dialects.mysql import LONGTEXT

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None
additive = True
loses = "the table {jobs}_steps: jobs that run again repeat their steps, and jobs that wait for a signal do not get it"

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


def upgrade() -> None:
    jobs, schema = names()
    op.create_table(
        f"{jobs}_steps",
        sa.Column("job_id", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("what", sa.String(10), primary_key=True),
        sa.Column("name", sa.String(100), primary_key=True),
        sa.Column("since", sa.BigInteger, nullable=False),
        sa.Column("phase", sa.Integer, nullable=False),
        sa.Column("value", long_text),
        sa.Column("ends_at", sa.BigInteger),
        sa.Column("changed_at", sa.BigInteger, nullable=False),
        schema=schema,
        if_not_exists=True,
        **mysql,
    )


def downgrade() -> None:
    jobs, schema = names()
    op.drop_table(f"{jobs}_steps", schema=schema, if_exists=True)
