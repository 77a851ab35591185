"""Without the ordering ``ticks`` of feeds: its tables and its column."""

import sqlalchemy as sa
from alembic import context, op
from sqlalchemy.dialects.mysql import LONGTEXT

from queue_db.dialects.clock import now_us
from queue_db.errors import ConfigurationError

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None
additive = False  # code that has the ordering reads its tables

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


def has(table: str, of: str, name: str, schema: str | None) -> bool | None:
    """Whether the table has this column or index: where DDL is no transaction, a run may have been cut off.

    None: there is no server to ask.
    """
    if context.is_offline_mode():
        return None
    inspector = sa.inspect(op.get_bind())
    found = inspector.get_columns(table, schema=schema) if of == "column" else inspector.get_indexes(table, schema=schema)
    return name in {one["name"] for one in found}


def refuse_feeds(jobs: str, schema: str | None) -> None:
    """Let the server refuse to drop messages that somebody may still want."""
    if op.get_context().dialect.name == "postgresql":  # only PostgreSQL has had the ordering
        # The server refuses it in plain SQL too, and waits for a transaction that makes such a feed.
        name = f"delete_the_feeds_with_the_ordering_ticks_of_{jobs}"[:63]
        op.create_check_constraint(name, f"{jobs}_feeds", "ordering <> 'ticks'", schema=schema)
        op.drop_constraint(name, f"{jobs}_feeds", schema=schema)


def told_feeds(jobs: str, schema: str | None) -> None:
    """Refuse it with the names of the feeds, where they can be read.

    :raises ConfigurationError: a feed has the ordering.
    """
    if context.is_offline_mode():
        return
    feeds = sa.table(f"{jobs}_feeds", sa.column("name"), sa.column("ordering"), schema=schema)
    query = sa.select(feeds.c.name).where(feeds.c.ordering == "ticks").order_by(feeds.c.name)
    found = [repr(name) for name in op.get_bind().execute(query).scalars()]
    if found:
        raise ConfigurationError(
            f"feeds with the ordering 'ticks', which this version no longer has: {', '.join(found)}. With the version that made "
            "them read what is still wanted and delete them (queue-db feeds remove NAME), then migrate again. A feed that is made "
            "anew has the ordering 'ranked'"
        )


def upgrade() -> None:
    jobs, schema = names()
    told_feeds(jobs, schema)
    refuse_feeds(jobs, schema)
    for table in ("ticks", "ticked"):
        op.drop_table(f"{jobs}_{table}", schema=schema, if_exists=True)
    if has(f"{jobs}_feeds", "column", "tick_state", schema) is not False:
        op.drop_column(f"{jobs}_feeds", "tick_state", schema=schema)


def downgrade() -> None:
    jobs, schema = names()
    made = {"schema": schema, "if_not_exists": True, **mysql}
    if not has(f"{jobs}_feeds", "column", "tick_state", schema):
        op.add_column(f"{jobs}_feeds", sa.Column("tick_state", long_text), schema=schema)
    op.create_table(
        f"{jobs}_ticked",
        sa.Column("feed", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("id", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("xid", sa.BigInteger, nullable=False),
        sa.Column("kind", sa.String(100), nullable=False),
        sa.Column("payload", long_text, nullable=False),
        sa.Column("headers", long_text),
        sa.Column("message_key", sa.String(200)),
        sa.Column("client", sa.String(100)),
        sa.Column("created_at", sa.BigInteger, nullable=False, server_default=now_us()),
        sa.Column("delay", sa.BigInteger),
        sa.Column("lifetime", sa.BigInteger),
        sa.Column("uid", sa.BigInteger),
        postgresql_with={"autovacuum_vacuum_insert_scale_factor": 0.2},
        **made,
    )
    # A tick: SELECT id FROM jobs_ticked WHERE feed = ? AND xid = ? AND id > ? ORDER BY id LIMIT ?
    if not has(f"{jobs}_ticked", "index", f"{jobs}_ticked_xid", schema):
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
