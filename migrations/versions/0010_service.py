"""Metrics over time, an action log, API tokens and sessions; the queue and kind of failed attempts."""

import sqlalchemy as sa
from alembic import context, op
from sqlalchemy.dialects.mysql import LONGTEXT

from queue_db.dialects.clock import now_us

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None
additive = True
loses = (
    "the tables {jobs}_metrics, {jobs}_actions, {jobs}_tokens and {jobs}_sessions, with what they hold; "
    "the columns queue and kind of {jobs}_errors"
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


def lacks_column(table: str, column: str, schema: str | None) -> bool:
    """Whether the column is still to be made: where DDL is no transaction, an earlier run may have been cut off."""
    if context.is_offline_mode():
        return True
    return column not in {found["name"] for found in sa.inspect(op.get_bind()).get_columns(table, schema=schema)}


def upgrade() -> None:
    jobs, schema = names()
    made = {"schema": schema, "if_not_exists": True, **mysql}
    # Nullable: code that does not know these columns goes on working.
    for column in (sa.Column("queue", sa.String(100)), sa.Column("kind", sa.String(100))):
        if lacks_column(f"{jobs}_errors", column.name, schema):
            op.add_column(f"{jobs}_errors", column, schema=schema)
    depths = ("available", "scheduled", "blocked", "running", "dead", "held", "oldest")
    counts = ("completed", "failed", "died", "lost", "missed")
    op.create_table(
        f"{jobs}_metrics",
        sa.Column("queue", sa.String(100), primary_key=True),
        sa.Column("width", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("at", sa.BigInteger, primary_key=True, autoincrement=False),
        *(sa.Column(name, sa.BigInteger) for name in depths),
        *(sa.Column(name, sa.BigInteger, nullable=False, server_default=sa.text("0")) for name in counts),
        **made,
    )
    # DELETE FROM jobs_metrics WHERE width = ? AND at < ?
    if lacks(f"{jobs}_metrics", f"{jobs}_metrics_age", schema):
        op.create_index(f"{jobs}_metrics_age", f"{jobs}_metrics", ["width", "at"], schema=schema)
    op.create_table(
        f"{jobs}_actions",
        sa.Column("id", big_id, primary_key=True, autoincrement=True),
        sa.Column("at", sa.BigInteger, nullable=False, server_default=now_us()),
        sa.Column("who", sa.String(100), nullable=False),
        sa.Column("action", sa.String(40), nullable=False),
        sa.Column("target", sa.String(250), nullable=False),
        sa.Column("number", sa.BigInteger),
        sa.Column("detail", long_text),
        sqlite_autoincrement=True,
        **made,
    )
    # DELETE FROM jobs_actions WHERE at < ?
    if lacks(f"{jobs}_actions", f"{jobs}_actions_age", schema):
        op.create_index(f"{jobs}_actions_age", f"{jobs}_actions", ["at"], schema=schema)
    op.create_table(
        f"{jobs}_tokens",
        sa.Column("name", sa.String(100), primary_key=True),
        sa.Column("sha256", sa.String(64), nullable=False),
        sa.Column("scopes", sa.String(100), nullable=False),
        sa.Column("queues", long_text, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False, server_default=now_us()),
        sa.Column("expires_at", sa.BigInteger),
        sa.Column("used_at", sa.BigInteger),
        sa.Column("revoked_at", sa.BigInteger),
        **made,
    )
    # SELECT … FROM jobs_tokens WHERE sha256 = ?
    if lacks(f"{jobs}_tokens", f"{jobs}_tokens_sha256", schema):
        op.create_index(f"{jobs}_tokens_sha256", f"{jobs}_tokens", ["sha256"], unique=True, schema=schema)
    op.create_table(
        f"{jobs}_sessions",
        sa.Column("sha256", sa.String(64), primary_key=True),
        sa.Column("token", sa.String(100), nullable=False),
        sa.Column("csrf", sa.String(64), nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False, server_default=now_us()),
        sa.Column("expires_at", sa.BigInteger, nullable=False),
        **made,
    )


def downgrade() -> None:
    jobs, schema = names()
    for table in ("sessions", "tokens", "actions", "metrics"):
        op.drop_table(f"{jobs}_{table}", schema=schema, if_exists=True)
    for column in ("kind", "queue"):
        if context.is_offline_mode() or not lacks_column(f"{jobs}_errors", column, schema):
            op.drop_column(f"{jobs}_errors", column, schema=schema)
