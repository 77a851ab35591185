"""Feeds: ordered messages, the inbox of those that have no number yet, cursors, spans, and claims."""

import sqlalchemy as sa
from alembic import context, op
from sqlalchemy.dialects.mysql import LONGTEXT

from queue_db.dialects.clock import now_us

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None
additive = True
loses = (
    "the tables {jobs}_feeds, {jobs}_inbox, {jobs}_messages, {jobs}_cursors, {jobs}_spans, {jobs}_claims, {jobs}_definitions, "
    "{jobs}_routes, {jobs}_subscriptions, {jobs}_counts, {jobs}_ticked and {jobs}_ticks, with what they hold"
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


def content() -> list[sa.Column]:
    return [
        sa.Column("kind", sa.String(100), nullable=False),
        sa.Column("payload", long_text, nullable=False),
        sa.Column("headers", long_text),
        sa.Column("message_key", sa.String(200)),
        sa.Column("client", sa.String(100)),
        sa.Column("created_at", sa.BigInteger, nullable=False, server_default=now_us()),
        sa.Column("delay", sa.BigInteger),
        sa.Column("lifetime", sa.BigInteger),
    ]


def upgrade() -> None:
    jobs, schema = names()
    made = {"schema": schema, "if_not_exists": True, **mysql}
    op.create_table(
        f"{jobs}_feeds",
        sa.Column("id", big_id, primary_key=True, autoincrement=True),
        sa.Column("name", sa.String(100), nullable=False),
        sa.Column("ordering", sa.String(20), nullable=False),
        sa.Column("next_seq", sa.BigInteger, nullable=False, server_default=sa.text("1")),
        sa.Column("first_seq", sa.BigInteger, nullable=False, server_default=sa.text("1")),
        sa.Column("epoch", sa.BigInteger, nullable=False, server_default=sa.text("1")),
        sa.Column("token", sa.String(8), nullable=False),
        sa.Column("keep_rows", sa.BigInteger),
        sa.Column("keep_for", sa.BigInteger),
        sa.Column("keep_unread", sa.BigInteger, nullable=False, server_default=sa.text("0")),
        sa.Column("created_at", sa.BigInteger, nullable=False, server_default=now_us()),
        sa.Column("max_attempts", sa.BigInteger),
        sa.Column("delay", sa.BigInteger),
        sa.Column("lifetime", sa.BigInteger),
        sa.Column("tick_state", long_text),
        sqlite_autoincrement=True,
        **made,
    )
    # SELECT … FROM jobs_feeds WHERE name = ?
    if lacks(f"{jobs}_feeds", f"{jobs}_feeds_name", schema):
        op.create_index(f"{jobs}_feeds_name", f"{jobs}_feeds", ["name"], unique=True, schema=schema)
    op.create_table(
        f"{jobs}_inbox",
        sa.Column("id", big_id, primary_key=True, autoincrement=True),
        sa.Column("feed", sa.BigInteger, nullable=False),
        *content(),
        sqlite_autoincrement=True,
        postgresql_with={
            "autovacuum_vacuum_scale_factor": 0,
            "autovacuum_vacuum_threshold": 5000,
            "autovacuum_vacuum_cost_delay": 0,
        },
        **made,
    )
    # SELECT id FROM jobs_inbox WHERE feed = ? ORDER BY id LIMIT ?
    if lacks(f"{jobs}_inbox", f"{jobs}_inbox_feed", schema):
        op.create_index(f"{jobs}_inbox_feed", f"{jobs}_inbox", ["feed", "id"], schema=schema)
    op.create_table(
        f"{jobs}_messages",
        sa.Column("feed", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("seq", sa.BigInteger, primary_key=True, autoincrement=False),
        *content(),
        postgresql_with={"autovacuum_vacuum_insert_scale_factor": 0.2},
        **made,
    )
    op.create_table(
        f"{jobs}_cursors",
        sa.Column("feed", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("name", sa.String(100), primary_key=True),
        sa.Column("acked", sa.BigInteger, nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False, server_default=sa.text("0")),
        sa.Column("holder", sa.String(100)),
        sa.Column("until", sa.BigInteger, nullable=False, server_default=sa.text("0")),
        sa.Column("seen_at", sa.BigInteger, nullable=False, server_default=now_us()),
        sa.Column("created_at", sa.BigInteger, nullable=False, server_default=now_us()),
        sa.Column("handed", sa.BigInteger),
        **made,
    )
    op.create_table(
        f"{jobs}_spans",
        sa.Column("id", big_id, primary_key=True, autoincrement=True),
        sa.Column("feed", sa.BigInteger, nullable=False),
        sa.Column("cursor_name", sa.String(100), nullable=False),
        sa.Column("low", sa.BigInteger, nullable=False),
        sa.Column("high", sa.BigInteger, nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("worker", sa.String(100)),
        sa.Column("until", sa.BigInteger, nullable=False),
        sa.Column("done", long_text),
        sqlite_autoincrement=True,
        postgresql_with={
            "autovacuum_vacuum_scale_factor": 0,
            "autovacuum_vacuum_threshold": 5000,
            "autovacuum_vacuum_cost_delay": 0,
        },
        **made,
    )
    # SELECT … FROM jobs_spans WHERE feed = ? AND cursor_name = ? AND until <= ? ORDER BY until LIMIT 1
    if lacks(f"{jobs}_spans", f"{jobs}_spans_cursor", schema):
        op.create_index(f"{jobs}_spans_cursor", f"{jobs}_spans", ["feed", "cursor_name", "until"], schema=schema)
    op.create_table(
        f"{jobs}_claims",
        sa.Column("feed", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("seq", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("token", sa.String(36)),
        sa.Column("until", sa.BigInteger, nullable=False, server_default=sa.text("0")),
        sa.Column("attempts", sa.Integer, nullable=False, server_default=sa.text("0")),
        sa.Column("expires_at", sa.BigInteger),
        postgresql_with={
            "autovacuum_vacuum_scale_factor": 0,
            "autovacuum_vacuum_threshold": 5000,
            "autovacuum_vacuum_cost_delay": 0,
        },
        **made,
    )
    # SELECT … FROM jobs_claims WHERE feed = ? AND token = ?
    if lacks(f"{jobs}_claims", f"{jobs}_claims_token", schema):
        op.create_index(f"{jobs}_claims_token", f"{jobs}_claims", ["token", "feed"], schema=schema)
    # Trimming: SELECT seq FROM jobs_claims WHERE feed = ? AND expires_at <= ? ORDER BY expires_at LIMIT ?
    if lacks(f"{jobs}_claims", f"{jobs}_claims_expires", schema):
        op.create_index(f"{jobs}_claims_expires", f"{jobs}_claims", ["expires_at", "feed"], schema=schema)
    upgrade_routes()


def upgrade_routes() -> None:
    jobs, schema = names()
    made = {"schema": schema, "if_not_exists": True, **mysql}
    op.create_table(
        f"{jobs}_definitions",
        sa.Column("id", big_id, primary_key=True, autoincrement=True),
        sa.Column("sha", sa.String(64), nullable=False),
        sa.Column("action", sa.String(10), nullable=False),
        sa.Column("target", sa.String(250), nullable=False),
        sa.Column("kind", sa.String(100)),
        sa.Column("options", long_text),
        sa.Column("created_at", sa.BigInteger, nullable=False, server_default=now_us()),
        **made,
    )
    # SELECT … FROM jobs_definitions WHERE sha = ?
    if lacks(f"{jobs}_definitions", f"{jobs}_definitions_sha", schema):
        op.create_index(f"{jobs}_definitions_sha", f"{jobs}_definitions", ["sha"], unique=True, schema=schema)
    op.create_table(
        f"{jobs}_routes",
        sa.Column("name", sa.String(100), primary_key=True),
        sa.Column("definition", sa.BigInteger, nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False, server_default=sa.text("1")),
        sa.Column("paused", sa.Integer, nullable=False, server_default=sa.text("0")),
        sa.Column("changed_at", sa.BigInteger, nullable=False, server_default=now_us()),
        **made,
    )
    op.create_table(
        f"{jobs}_subscriptions",
        sa.Column("id", big_id, primary_key=True, autoincrement=True),
        sa.Column("form", sa.String(10), nullable=False),
        sa.Column("pattern", sa.String(200), nullable=False),
        sa.Column("topic", sa.String(250), nullable=False),
        sa.Column("like_pattern", sa.String(400), nullable=False),
        sa.Column("route", sa.String(100), nullable=False),
        **made,
    )
    # INSERT of the same subscription; DELETE … WHERE form = ? AND pattern = ? AND route = ?
    if lacks(f"{jobs}_subscriptions", f"{jobs}_subscriptions_pattern", schema):
        columns = ["form", "pattern", "route"]
        op.create_index(f"{jobs}_subscriptions_pattern", f"{jobs}_subscriptions", columns, unique=True, schema=schema)
    # A publish: … WHERE topic IN (?, '')
    if lacks(f"{jobs}_subscriptions", f"{jobs}_subscriptions_topic", schema):
        op.create_index(f"{jobs}_subscriptions_topic", f"{jobs}_subscriptions", ["topic"], schema=schema)
    op.create_table(
        f"{jobs}_counts",
        sa.Column("name", sa.String(100), primary_key=True),
        sa.Column("slot", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("messages", sa.BigInteger, nullable=False),
        **made,
    )
    upgrade_ticks()


def upgrade_ticks() -> None:
    """Messages that are numbered by ticks (PostgreSQL)."""
    jobs, schema = names()
    made = {"schema": schema, "if_not_exists": True, **mysql}
    op.create_table(
        f"{jobs}_ticked",
        sa.Column("feed", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("id", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("xid", sa.BigInteger, nullable=False),
        *content(),
        postgresql_with={"autovacuum_vacuum_insert_scale_factor": 0.2},
        **made,
    )
    # A tick: SELECT id FROM jobs_ticked WHERE feed = ? AND xid = ? AND id > ? ORDER BY id LIMIT ?
    if lacks(f"{jobs}_ticked", f"{jobs}_ticked_xid", schema):
        op.create_index(f"{jobs}_ticked_xid", f"{jobs}_ticked", ["feed", "xid", "id"], schema=schema)
    op.create_table(
        f"{jobs}_ticks",
        sa.Column("feed", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("last_seq", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("first_seq", sa.BigInteger, nullable=False),
        sa.Column("low_id", sa.BigInteger, nullable=False),
        sa.Column("high_id", sa.BigInteger, nullable=False),
        sa.Column("snapshot", long_text, nullable=False),
        sa.Column("previous", long_text, nullable=False),
        postgresql_with={
            "autovacuum_vacuum_scale_factor": 0,
            "autovacuum_vacuum_threshold": 5000,
            "autovacuum_vacuum_cost_delay": 0,
        },
        **made,
    )


def downgrade() -> None:
    jobs, schema = names()
    ours = ["ticks", "ticked", "counts", "subscriptions", "routes", "definitions"]
    ours += ["claims", "spans", "cursors", "messages", "inbox", "feeds"]
    for table in ours:
        op.drop_table(f"{jobs}_{table}", schema=schema, if_exists=True)
