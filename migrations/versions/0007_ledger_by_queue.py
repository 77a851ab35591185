"""The ledger of bulk loads is kept for each queue, and a stream's batches count how often they were delivered."""

import sqlalchemy as sa
from alembic import context, op

from queue_db.clock import now_us

revision = "0007"
down_revision = "0005"
branch_labels = None
depends_on = None
additive = False  # another primary key


def names() -> tuple[str, str | None]:
    """The user's choice of names; all else is written out here and does not follow later changes of queue_db.schema."""
    tables = context.config.attributes["tables"]
    return tables.jobs.name, tables.schema


def lacks_column(table: str, column: str, schema: str | None) -> bool:
    """Whether the column is still to be added: where DDL is no transaction, an earlier run may have been cut off."""
    if context.is_offline_mode():
        return True
    return column not in {found["name"] for found in sa.inspect(op.get_bind()).get_columns(table, schema=schema)}


def change_key(table: str, schema: str | None, columns: list[str]) -> None:
    """Give the ledger another primary key: in one statement, so that no load is published twice in between."""
    if not context.is_offline_mode():
        key = sa.inspect(op.get_bind()).get_pk_constraint(table, schema=schema)["constrained_columns"]
        if key == columns:
            return
    dialect = op.get_context().dialect
    quoted = dialect.identifier_preparer.format_table(sa.table(table, schema=schema))
    new = f"PRIMARY KEY ({', '.join(columns)})"
    if dialect.name == "postgresql":
        op.execute(f"ALTER TABLE {quoted} DROP CONSTRAINT {table}_pkey, ADD CONSTRAINT {table}_pkey {new}")
    elif dialect.name == "sqlite":
        rebuild(table, schema, columns)
    else:
        op.execute(f"ALTER TABLE {quoted} DROP PRIMARY KEY, ADD {new}")


def rebuild(table: str, schema: str | None, key: list[str]) -> None:
    """SQLite keeps the key of a table for ever: make another one, in the transaction that all this runs in."""
    fields = [
        sa.Column("app", sa.String(200), nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("queue", sa.String(100), nullable=False),
        sa.Column("size", sa.BigInteger, nullable=False),
        sa.Column("skipped", sa.BigInteger, nullable=False, server_default=sa.text("0")),
        sa.Column("kept", sa.Integer, nullable=False, server_default=sa.text("1")),
        sa.Column("published_at", sa.BigInteger, nullable=False, server_default=now_us()),
    ]
    op.drop_table(f"{table}_new", schema=schema, if_exists=True)
    new = op.create_table(f"{table}_new", *fields, sa.PrimaryKeyConstraint(*key), schema=schema)
    old = sa.table(table, *(sa.column(field.name) for field in fields), schema=schema)
    op.execute(sa.insert(new).from_select([field.name for field in fields], sa.select(*old.c)))
    op.drop_table(table, schema=schema)
    op.rename_table(f"{table}_new", table, schema=schema)
    # DELETE FROM jobs_published WHERE kept = 0 AND published_at < ?
    op.create_index(f"{table}_age", table, ["kept", "published_at"], schema=schema)


def upgrade() -> None:
    jobs, schema = names()
    change_key(f"{jobs}_published", schema, ["app", "version", "queue"])
    # Nobody has counted how often the batches that are there were delivered: at least once, then nothing is promised too much.
    for column in (
        sa.Column("deliveries", sa.Integer, nullable=False, server_default=sa.text("1")),
        sa.Column("delivered_epoch", sa.BigInteger, nullable=False, server_default=sa.text("0")),
    ):
        if lacks_column(f"{jobs}_batches", column.name, schema):
            op.add_column(f"{jobs}_batches", column, schema=schema)


def downgrade() -> None:
    jobs, schema = names()
    for column in ("delivered_epoch", "deliveries"):
        op.drop_column(f"{jobs}_batches", column, schema=schema)
    forget_other_queues(f"{jobs}_published", schema)
    change_key(f"{jobs}_published", schema, ["app", "version"])


def forget_other_queues(table: str, schema: str | None) -> None:
    """Of a load that went to several queues the old key has room for one."""
    ledger = sa.table(table, *map(sa.column, ("app", "version", "queue")), schema=schema)
    first = sa.select(ledger.c.app, ledger.c.version, sa.func.min(ledger.c.queue).label("queue"))
    # A table of its own: MySQL does not delete from a table that the same statement reads.
    kept = first.group_by(ledger.c.app, ledger.c.version).subquery("kept")
    one = sa.tuple_(ledger.c.app, ledger.c.version, ledger.c.queue)
    op.execute(sa.delete(ledger).where(one.not_in(sa.select(kept.c.app, kept.c.version, kept.c.queue))))
