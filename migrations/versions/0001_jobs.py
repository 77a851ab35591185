"""Jobs and dead jobs."""

import sqlalchemy as sa
from alembic import context, op
from sqlalchemy.dialects.mysql import LONGTEXT

from queue_db.dialects.clock import now_us

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None
additive = False
loses = "the tables {jobs} and {jobs}_dead, with the jobs in them"

big_id = sa.BigInteger().with_variant(sa.Integer, "sqlite")
long_text = sa.Text().with_variant(LONGTEXT, "mysql", "mariadb")
mysql = {
    f"{family}_{name}": value
    for family in ("mysql", "mariadb")
    for name, value in (("engine", "InnoDB"), ("charset", "utf8mb4"), ("collate", "utf8mb4_bin"))
}
churn = {
    "fillfactor": 50,
    "autovacuum_vacuum_scale_factor": 0,
    "autovacuum_vacuum_threshold": 5000,
    "autovacuum_vacuum_insert_scale_factor": 0.2,
    "autovacuum_analyze_scale_factor": 0.1,
    "autovacuum_analyze_threshold": 5000,
    "autovacuum_vacuum_cost_delay": 0,
}


def names() -> tuple[str, str, str | None]:
    """The user's choice of names; all else is written out here and does not follow later changes of queue_db.store.schema."""
    tables = context.config.attributes["tables"]
    return tables.jobs.name, tables.dead.name, tables.schema


def lacks(table: str, index: str, schema: str | None) -> bool:
    """Whether the index is still to be made: where DDL is no transaction, an earlier run may have been cut off."""
    if context.is_offline_mode():
        return True
    return index not in {found["name"] for found in sa.inspect(op.get_bind()).get_indexes(table, schema=schema)}


def upgrade() -> None:
    jobs, dead, schema = names()
    op.create_table(
        jobs,
        sa.Column("id", big_id, primary_key=True, autoincrement=True),
        sa.Column("queue", sa.String(100), nullable=False),
        sa.Column("kind", sa.String(100), nullable=False, server_default="default"),
        sa.Column("payload", long_text, nullable=False),
        sa.Column("headers", long_text),
        sa.Column("priority", sa.Integer, nullable=False, server_default=sa.text("0")),
        sa.Column("available_at", sa.BigInteger, nullable=False, server_default=now_us()),
        sa.Column("due_at", sa.BigInteger),
        sa.Column("version", sa.BigInteger, nullable=False, server_default=sa.text("0")),
        sa.Column("attempts", sa.Integer, nullable=False, server_default=sa.text("0")),
        sa.Column("max_attempts", sa.Integer, nullable=False, server_default=sa.text("25")),
        sa.Column("unique_key", sa.String(200)),
        sa.Column("claim_token", sa.String(36)),
        sa.Column("worker", sa.String(100)),
        sa.Column("created_at", sa.BigInteger, nullable=False, server_default=now_us()),
        sa.Column("last_error", long_text),
        sa.Column("delete_mark", sa.Integer, nullable=False, server_default=sa.text("0")),
        schema=schema,
        if_not_exists=True,
        sqlite_autoincrement=True,
        postgresql_with=churn,
        **mysql,
    )
    # SELECT id, version FROM jobs WHERE queue = ? AND priority = ? AND available_at BETWEEN ? AND now
    # ORDER BY available_at, id LIMIT ?
    if lacks(jobs, f"{jobs}_claim", schema):
        op.create_index(f"{jobs}_claim", jobs, ["queue", "priority", "available_at", "id"], schema=schema)
    # INSERT … ON CONFLICT (queue, unique_key) …;  SELECT id FROM jobs WHERE queue = ? AND unique_key IN (…)
    if lacks(jobs, f"{jobs}_unique_key", schema):
        op.create_index(
            f"{jobs}_unique_key",
            jobs,
            ["queue", "unique_key"],
            unique=True,
            schema=schema,
            postgresql_where=sa.text("unique_key IS NOT NULL"),
            sqlite_where=sa.text("unique_key IS NOT NULL"),
        )
    op.create_table(
        dead,
        sa.Column("id", big_id, primary_key=True, autoincrement=False),
        sa.Column("queue", sa.String(100), nullable=False),
        sa.Column("kind", sa.String(100), nullable=False),
        sa.Column("payload", long_text, nullable=False),
        sa.Column("headers", long_text),
        sa.Column("priority", sa.Integer, nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("max_attempts", sa.Integer, nullable=False),
        sa.Column("unique_key", sa.String(200)),
        sa.Column("worker", sa.String(100)),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("died_at", sa.BigInteger, nullable=False, server_default=now_us()),
        sa.Column("last_error", long_text),
        schema=schema,
        if_not_exists=True,
        **mysql,
    )
    # SELECT … FROM jobs_dead WHERE queue = ? ORDER BY died_at, id LIMIT ?
    if lacks(dead, f"{dead}_queue", schema):
        op.create_index(f"{dead}_queue", dead, ["queue", "died_at", "id"], schema=schema)


def downgrade() -> None:
    jobs, dead, schema = names()
    op.drop_table(dead, schema=schema)
    op.drop_table(jobs, schema=schema)
