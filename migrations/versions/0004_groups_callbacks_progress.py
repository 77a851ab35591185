"""Groups of jobs that run one after the other, batches with a callback job, unique keys for a time, and progress."""

import sqlalchemy as sa
from alembic import context, op
from sqlalchemy.dialects.mysql import LONGTEXT

from queue_db.dialects.clock import now_us

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None
additive = False
loses = (
    "the tables {jobs}_stripes, {jobs}_callbacks and {jobs}_windows, with what they hold; the columns group_key, "
    "callback_id, progress and progress_note of {jobs}, group_key of {jobs}_dead, group_key and callback_id of {jobs}_held, "
    "and per_group of {jobs}_queues"
)

big_id = sa.BigInteger().with_variant(sa.Integer, "sqlite")
long_text = sa.Text().with_variant(LONGTEXT, "mysql", "mariadb")
mysql = {
    f"{family}_{name}": value
    for family in ("mysql", "mariadb")
    for name, value in (("engine", "InnoDB"), ("charset", "utf8mb4"), ("collate", "utf8mb4_bin"))
}

STRIPES = 64

BLOCKED = 253_355_317_443_020_110


def names() -> tuple[str, str | None]:
    """The user's choice of names; all else is written out here and does not follow later changes of queue_db.store.schema."""
    tables = context.config.attributes["tables"]
    return tables.jobs.name, tables.schema


def lacks_index(table: str, index: str, schema: str | None) -> bool:
    """Whether the index is still to be made: where DDL is no transaction, an earlier run may have been cut off."""
    if context.is_offline_mode():
        return True
    return index not in {found["name"] for found in sa.inspect(op.get_bind()).get_indexes(table, schema=schema)}


def lacks_column(table: str, column: str, schema: str | None) -> bool:
    """The same of a column."""
    if context.is_offline_mode():
        return True
    return column not in {found["name"] for found in sa.inspect(op.get_bind()).get_columns(table, schema=schema)}


def upgrade() -> None:
    jobs, schema = names()
    made = {"schema": schema, "if_not_exists": True, **mysql}
    added = {
        jobs: [
            sa.Column("group_key", sa.String(200)),
            sa.Column("callback_id", sa.BigInteger),
            sa.Column("progress", sa.Double),
            sa.Column("progress_note", sa.String(200)),
        ],
        f"{jobs}_dead": [sa.Column("group_key", sa.String(200))],
        f"{jobs}_held": [sa.Column("group_key", sa.String(200)), sa.Column("callback_id", sa.BigInteger)],
        f"{jobs}_queues": [sa.Column("per_group", sa.Integer)],
    }
    for table, columns in added.items():
        for column in columns:
            if lacks_column(table, column.name, schema):
                op.add_column(table, column, schema=schema)
    # SELECT id, version, available_at FROM jobs WHERE queue = ? AND group_key = ? ORDER BY id LIMIT ?
    if lacks_index(jobs, f"{jobs}_group", schema):
        grouped = sa.text("group_key IS NOT NULL")
        op.create_index(
            f"{jobs}_group",
            jobs,
            ["queue", "group_key", "id"],
            schema=schema,
            postgresql_where=grouped,
            sqlite_where=grouped,
        )
    # SELECT … FROM jobs_finished WHERE queue = ? AND id > ? ORDER BY id LIMIT ?
    if lacks_index(f"{jobs}_finished", f"{jobs}_finished_queue", schema):
        op.create_index(f"{jobs}_finished_queue", f"{jobs}_finished", ["queue", "id"], schema=schema)
    stripes = op.create_table(
        f"{jobs}_stripes",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("version", sa.BigInteger, nullable=False, server_default=sa.text("0")),
        **made,
    )
    known = set() if context.is_offline_mode() else set(op.get_bind().execute(sa.select(stripes.c.id)).scalars())
    op.bulk_insert(stripes, [{"id": number, "version": 0} for number in range(STRIPES) if number not in known])
    op.create_table(
        f"{jobs}_callbacks",
        sa.Column("id", big_id, primary_key=True, autoincrement=True),
        sa.Column("queue", sa.String(100), nullable=False),
        sa.Column("kind", sa.String(100), nullable=False),
        sa.Column("payload", long_text, nullable=False),
        sa.Column("headers", long_text),
        sa.Column("priority", sa.Integer, nullable=False, server_default=sa.text("0")),
        sa.Column("max_attempts", sa.Integer, nullable=False, server_default=sa.text("25")),
        sa.Column("size", sa.Integer, nullable=False),
        sa.Column("pending", sa.Integer, nullable=False),
        sa.Column("dead", sa.Integer, nullable=False, server_default=sa.text("0")),
        sa.Column("cancelled", sa.Integer, nullable=False, server_default=sa.text("0")),
        sa.Column("created_at", sa.BigInteger, nullable=False, server_default=now_us()),
        sqlite_autoincrement=True,
        **made,
    )
    op.create_table(
        f"{jobs}_windows",
        sa.Column("queue", sa.String(100), primary_key=True),
        sa.Column("unique_key", sa.String(200), primary_key=True),
        sa.Column("job_id", big_id, nullable=False),
        sa.Column("ends_at", sa.BigInteger, nullable=False),
        **made,
    )
    # DELETE FROM jobs_windows WHERE ends_at < ?
    if lacks_index(f"{jobs}_windows", f"{jobs}_windows_age", schema):
        op.create_index(f"{jobs}_windows_age", f"{jobs}_windows", ["ends_at"], schema=schema)


def downgrade() -> None:
    jobs, schema = names()
    for table in ("windows", "callbacks", "stripes"):
        op.drop_table(f"{jobs}_{table}", schema=schema)
    # What waits in a group stands in the year 9998: nothing would ever bring it back from there.
    table = sa.table(jobs, *map(sa.column, ("available_at", "due_at", "created_at")), schema=schema)
    due = sa.func.coalesce(table.c.due_at, table.c.created_at)
    op.execute(sa.update(table).where(table.c.available_at == BLOCKED).values(available_at=due))
    op.drop_index(f"{jobs}_finished_queue", f"{jobs}_finished", schema=schema)
    op.drop_index(f"{jobs}_group", jobs, schema=schema)
    for table, columns in (
        (f"{jobs}_queues", ["per_group"]),
        (f"{jobs}_held", ["callback_id", "group_key"]),
        (f"{jobs}_dead", ["group_key"]),
        (jobs, ["progress_note", "progress", "callback_id", "group_key"]),
    ):
        for column in columns:
            op.drop_column(table, column, schema=schema)
