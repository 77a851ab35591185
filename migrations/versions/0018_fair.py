"""Fair queues, and limits of groups: an index of the due jobs of each group, and the tables of limits and permits."""

import sqlalchemy as sa
from alembic import context, op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None
additive = True  # code without the fair claims takes the jobs of all queues in the order of their due times
loses = "the column fair of {jobs}_queues, and the tables {jobs}_group_limits, {jobs}_group_spent and {jobs}_permits"

_IF_GROUPED = "GENERATED ALWAYS AS (CASE WHEN group_key IS NOT NULL THEN {of} END) STORED"
COLUMNS = {
    "grouped_queue": f"VARCHAR(100) {_IF_GROUPED.format(of='queue')}",
    "grouped_at": f"BIGINT {_IF_GROUPED.format(of='available_at')}",
}

mysql = {
    f"{family}_{name}": value
    for family in ("mysql", "mariadb")
    for name, value in (("engine", "InnoDB"), ("charset", "utf8mb4"), ("collate", "utf8mb4_bin"))
}


def names() -> tuple[str, str | None]:
    """The user's choice of names; all else is written out here and does not follow later changes of queue_db.store.schema."""
    tables = context.config.attributes["tables"]
    return tables.jobs.name, tables.schema


def has(table: str, name: str, schema: str | None, what: str = "columns") -> bool | None:
    """Whether the table has it: where DDL is no transaction, a run may have been cut off. None: there is no server to ask."""
    if context.is_offline_mode():
        return None
    return name in {one["name"] for one in getattr(sa.inspect(op.get_bind()), f"get_{what}")(table, schema=schema)}


def upgrade() -> None:
    jobs, schema = names()
    dialect = op.get_context().dialect
    index = f"{jobs}_fair"
    if dialect.name in ("mysql", "mariadb"):
        if not has(jobs, "grouped_at", schema):
            table = dialect.identifier_preparer.format_table(sa.table(jobs, schema=schema))
            # One statement, since it copies the table; writers wait meanwhile (see 0015).
            added = ", ".join(f"ADD COLUMN {name} {kind}" for name, kind in COLUMNS.items())
            keys = "grouped_queue, priority, group_key, grouped_at, id"
            op.execute(f"ALTER TABLE {table} {added}, ADD INDEX {index} ({keys}), LOCK=SHARED")
    elif not has(jobs, index, schema, "indexes"):
        grouped = sa.text("group_key IS NOT NULL")
        op.create_index(
            index,
            jobs,
            ["queue", "priority", "group_key", "available_at", "id"],
            schema=schema,
            postgresql_where=grouped,
            sqlite_where=grouped,
            postgresql_ops={"group_key": "varchar_pattern_ops"},
        )
    if not has(f"{jobs}_queues", "fair", schema):
        op.add_column(f"{jobs}_queues", sa.Column("fair", sa.Integer, nullable=False, server_default=sa.text("0")), schema=schema)
    create_tables(jobs, schema)


def create_tables(jobs: str, schema: str | None) -> None:
    def table(name: str, *columns: sa.Column[object]) -> None:
        key = [
            sa.Column(name, sa.String(length), primary_key=True) for name, length in (("queue", 100), ("scope", 10), ("name", 200))
        ]
        op.create_table(f"{jobs}_{name}", *key, *columns, schema=schema, if_not_exists=True, **mysql)

    numbers = [sa.Column(name, sa.Integer) for name in ("weight", "concurrency", "rate")]
    table("group_limits", *numbers, sa.Column("per", sa.BigInteger))
    table("group_spent", sa.Column("spent_until", sa.BigInteger, nullable=False, server_default=sa.text("0")))
    job = sa.Column("job_id", sa.BigInteger, primary_key=True, autoincrement=False)
    table(
        "permits", job, sa.Column("claim_token", sa.String(36), nullable=False), sa.Column("until", sa.BigInteger, nullable=False)
    )


def downgrade() -> None:
    jobs, schema = names()
    for name in ("permits", "group_spent", "group_limits"):
        op.drop_table(f"{jobs}_{name}", schema=schema, if_exists=True)
    if has(f"{jobs}_queues", "fair", schema) is not False:
        queues = sa.table(f"{jobs}_queues", sa.column("fair"), sa.column("per_group"), schema=schema)
        op.execute(sa.update(queues).where(queues.c.fair != 0).values(per_group=None))
        op.drop_column(f"{jobs}_queues", "fair", schema=schema)
    dialect = op.get_context().dialect
    if dialect.name in ("mysql", "mariadb"):
        if has(jobs, "grouped_at", schema) is not False:
            table = dialect.identifier_preparer.format_table(sa.table(jobs, schema=schema))
            dropped = ", ".join(f"DROP COLUMN {name}" for name in COLUMNS)
            op.execute(f"ALTER TABLE {table} DROP INDEX {jobs}_fair, {dropped}, LOCK=SHARED")
    elif has(jobs, f"{jobs}_fair", schema, "indexes") is not False:
        op.drop_index(f"{jobs}_fair", jobs, schema=schema)
