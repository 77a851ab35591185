"""Idempotency keys of publishes; a number in each message that finds it before it has its place in the feed."""

import sqlalchemy as sa
from alembic import context, op
from sqlalchemy.dialects.mysql import LONGTEXT

from queue_db.dialects.clock import now_us

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None
additive = True
loses = (
    "the table {jobs}_publishes, with the idempotency keys of a day; "
    "the column uid of {jobs}_inbox, {jobs}_messages and {jobs}_ticked"
)

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
    # Nullable: code that does not know the column goes on working.
    for table in ("inbox", "messages", "ticked"):
        if lacks_column(f"{jobs}_{table}", "uid", schema):
            op.add_column(f"{jobs}_{table}", sa.Column("uid", sa.BigInteger), schema=schema)
    op.create_table(
        f"{jobs}_publishes",
        sa.Column("digest", sa.String(64), primary_key=True),
        sa.Column("request", sa.String(64), nullable=False),
        sa.Column("answer", long_text, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False, server_default=now_us()),
        schema=schema,
        if_not_exists=True,
        **mysql,
    )
    # SELECT digest FROM jobs_publishes WHERE created_at < ? LIMIT ?
    found = [] if context.is_offline_mode() else sa.inspect(op.get_bind()).get_indexes(f"{jobs}_publishes", schema=schema)
    if f"{jobs}_publishes_age" not in {one["name"] for one in found}:
        op.create_index(f"{jobs}_publishes_age", f"{jobs}_publishes", ["created_at"], schema=schema)


def downgrade() -> None:
    jobs, schema = names()
    op.drop_table(f"{jobs}_publishes", schema=schema, if_exists=True)
    for table in ("inbox", "messages", "ticked"):
        if context.is_offline_mode() or not lacks_column(f"{jobs}_{table}", "uid", schema):
            op.drop_column(f"{jobs}_{table}", "uid", schema=schema)
