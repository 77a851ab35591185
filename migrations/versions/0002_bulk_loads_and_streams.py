"""Bulk loads that publish all jobs or none, and streams that hold the jobs that they have claimed."""

import sqlalchemy as sa
from alembic import context, op
from sqlalchemy.dialects.mysql import LONGTEXT

from queue_db.dialects.clock import now_us

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None
additive = False
loses = (
    "the tables {jobs}_staged, {jobs}_published, {jobs}_streams, {jobs}_batches and {jobs}_held, with the jobs that are "
    "staged or held by streams"
)

big_id = sa.BigInteger().with_variant(sa.Integer, "sqlite")
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


def lacks(table: str, index: str, schema: str | None) -> bool:
    """Whether the index is still to be made: where DDL is no transaction, an earlier run may have been cut off."""
    if context.is_offline_mode():
        return True
    return index not in {found["name"] for found in sa.inspect(op.get_bind()).get_indexes(table, schema=schema)}


def upgrade() -> None:
    jobs, schema = names()
    op.create_table(
        f"{jobs}_staged",
        sa.Column("attempt", big_id, primary_key=True, autoincrement=False),
        sa.Column("place", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("size", sa.Integer, nullable=False),
        sa.Column("chunk", long_text, nullable=False),
        schema=schema,
        if_not_exists=True,
        # Written once, read once, and empty after a crash does no harm: PostgreSQL need not log it.
        prefixes=["UNLOGGED"] if op.get_context().dialect.name == "postgresql" else [],
        **mysql,
    )
    op.create_table(
        f"{jobs}_published",
        sa.Column("app", sa.String(200), primary_key=True),
        sa.Column("version", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("queue", sa.String(100), nullable=False),
        sa.Column("size", sa.BigInteger, nullable=False),
        sa.Column("skipped", sa.BigInteger, nullable=False, server_default=sa.text("0")),
        sa.Column("kept", sa.Integer, nullable=False, server_default=sa.text("1")),
        sa.Column("published_at", sa.BigInteger, nullable=False, server_default=now_us()),
        schema=schema,
        if_not_exists=True,
        **mysql,
    )
    # DELETE FROM jobs_published WHERE kept = 0 AND published_at < ?
    if lacks(f"{jobs}_published", f"{jobs}_published_age", schema):
        op.create_index(f"{jobs}_published_age", f"{jobs}_published", ["kept", "published_at"], schema=schema)
    op.create_table(
        f"{jobs}_streams",
        sa.Column("id", big_id, primary_key=True, autoincrement=True),
        sa.Column("name", sa.String(100), nullable=False, unique=True),
        sa.Column("queue", sa.String(100), nullable=False),
        sa.Column("epoch", sa.BigInteger, nullable=False, server_default=sa.text("0")),
        sa.Column("allocated", sa.BigInteger, nullable=False, server_default=sa.text("0")),
        sa.Column("acked", sa.BigInteger, nullable=False, server_default=sa.text("0")),
        sa.Column("acked_claim", sa.String(36), nullable=False),
        sa.Column("holder", sa.String(100)),
        sa.Column("retention", sa.BigInteger, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False, server_default=now_us()),
        sa.Column("seen_at", sa.BigInteger, nullable=False, server_default=now_us()),
        schema=schema,
        if_not_exists=True,
        sqlite_autoincrement=True,
        **mysql,
    )
    op.create_table(
        f"{jobs}_batches",
        sa.Column("stream", big_id, primary_key=True, autoincrement=False),
        sa.Column("batch", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("claim", sa.String(36), nullable=False),
        sa.Column("size", sa.Integer, nullable=False),
        sa.Column("keyed", sa.Integer, nullable=False),
        sa.Column("parts", long_text, nullable=False),
        sa.Column("oldest_at", sa.BigInteger, nullable=False),
        sa.Column("claimed_at", sa.BigInteger, nullable=False, server_default=now_us()),
        schema=schema,
        if_not_exists=True,
        **mysql,
    )
    op.create_table(
        f"{jobs}_held",
        sa.Column("stream", big_id, primary_key=True, autoincrement=False),
        sa.Column("batch", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("id", big_id, primary_key=True, autoincrement=False),
        sa.Column("kind", sa.String(100), nullable=False),
        sa.Column("payload", long_text, nullable=False),
        sa.Column("headers", long_text),
        sa.Column("priority", sa.Integer, nullable=False),
        sa.Column("available_at", sa.BigInteger, nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("max_attempts", sa.Integer, nullable=False),
        sa.Column("unique_key", sa.String(200)),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("last_error", long_text),
        sa.Column("dead_reason", long_text),
        schema=schema,
        if_not_exists=True,
        **mysql,
    )


def downgrade() -> None:
    jobs, schema = names()
    for table in ("held", "batches", "streams", "published", "staged"):
        op.drop_table(f"{jobs}_{table}", schema=schema)
