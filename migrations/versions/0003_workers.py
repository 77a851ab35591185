"""Tables for workers: pauses and limits of queues, schedules, errors, results, and the workers themselves."""

import sqlalchemy as sa
from alembic import context, op
from sqlalchemy.dialects.mysql import LONGTEXT

from queue_db.dialects.clock import now_us

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None
additive = False
loses = (
    "the tables {jobs}_queues, {jobs}_shares, {jobs}_workers, {jobs}_schedules, {jobs}_errors and {jobs}_finished, with "
    "what they hold"
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
    made = {"schema": schema, "if_not_exists": True, **mysql}
    op.create_table(
        f"{jobs}_queues",
        sa.Column("name", sa.String(100), primary_key=True),
        sa.Column("paused", sa.Integer, nullable=False, server_default=sa.text("0")),
        sa.Column("concurrency", sa.Integer),
        sa.Column("rate", sa.Integer),
        sa.Column("per", sa.BigInteger),
        sa.Column("spent_until", sa.BigInteger, nullable=False, server_default=sa.text("0")),
        **made,
    )
    op.create_table(
        f"{jobs}_shares",
        sa.Column("queue", sa.String(100), primary_key=True),
        sa.Column("worker", sa.String(100), primary_key=True),
        sa.Column("slots", sa.Integer, nullable=False),
        sa.Column("until", sa.BigInteger, nullable=False),
        **made,
    )
    op.create_table(
        f"{jobs}_workers",
        sa.Column("name", sa.String(100), primary_key=True),
        sa.Column("host", sa.String(100), nullable=False),
        sa.Column("pid", sa.Integer, nullable=False),
        sa.Column("queues", long_text, nullable=False),
        sa.Column("state", sa.String(20), nullable=False),
        sa.Column("in_hand", sa.Integer, nullable=False, server_default=sa.text("0")),
        sa.Column("counters", long_text, nullable=False),
        sa.Column("started_at", sa.BigInteger, nullable=False, server_default=now_us()),
        sa.Column("seen_at", sa.BigInteger, nullable=False, server_default=now_us()),
        **made,
    )
    op.create_table(
        f"{jobs}_schedules",
        sa.Column("name", sa.String(100), primary_key=True),
        sa.Column("queue", sa.String(100), nullable=False),
        sa.Column("kind", sa.String(100), nullable=False),
        sa.Column("payload", long_text, nullable=False),
        sa.Column("headers", long_text),
        sa.Column("priority", sa.Integer, nullable=False, server_default=sa.text("0")),
        sa.Column("max_attempts", sa.Integer, nullable=False, server_default=sa.text("25")),
        sa.Column("rule", sa.String(200), nullable=False),
        sa.Column("zone", sa.String(64), nullable=False),
        sa.Column("catch_up", sa.String(10), nullable=False),
        sa.Column("paused", sa.Integer, nullable=False, server_default=sa.text("0")),
        sa.Column("next_at", sa.BigInteger, nullable=False),
        sa.Column("last_at", sa.BigInteger),
        sa.Column("version", sa.BigInteger, nullable=False, server_default=sa.text("0")),
        **made,
    )
    op.create_table(
        f"{jobs}_errors",
        sa.Column("job_id", big_id, primary_key=True, autoincrement=False),
        sa.Column("version", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("failed_at", sa.BigInteger, nullable=False, server_default=now_us()),
        sa.Column("worker", sa.String(100)),
        sa.Column("error_class", sa.String(200), nullable=False),
        sa.Column("message", long_text, nullable=False),
        sa.Column("trace", long_text),
        **made,
    )
    # DELETE FROM jobs_errors WHERE failed_at < ?
    if lacks(f"{jobs}_errors", f"{jobs}_errors_age", schema):
        op.create_index(f"{jobs}_errors_age", f"{jobs}_errors", ["failed_at"], schema=schema)
    op.create_table(
        f"{jobs}_finished",
        sa.Column("id", big_id, primary_key=True, autoincrement=False),
        sa.Column("queue", sa.String(100), nullable=False),
        sa.Column("kind", sa.String(100), nullable=False),
        sa.Column("payload", long_text),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("worker", sa.String(100)),
        sa.Column("result", long_text),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("finished_at", sa.BigInteger, nullable=False, server_default=now_us()),
        sa.Column("expires_at", sa.BigInteger, nullable=False),
        **made,
    )
    # DELETE FROM jobs_finished WHERE expires_at < ?
    if lacks(f"{jobs}_finished", f"{jobs}_finished_age", schema):
        op.create_index(f"{jobs}_finished_age", f"{jobs}_finished", ["expires_at"], schema=schema)


def downgrade() -> None:
    jobs, schema = names()
    for table in ("finished", "errors", "schedules", "workers", "shares", "queues"):
        op.drop_table(f"{jobs}_{table}", schema=schema)
