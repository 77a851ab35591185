"""Counters of routes with a row for each key; an index of the cursors of one name in all feeds."""

import sqlalchemy as sa
from alembic import context, op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None
additive = True
loses = "the table {jobs}_keyed_counts, with what routes have counted by key"

mysql = {
    f"{family}_{name}": value
    for family in ("mysql", "mariadb")
    for name, value in (("engine", "InnoDB"), ("charset", "utf8mb4"), ("collate", "utf8mb4_bin"))
}


def names() -> tuple[str, str | None]:
    """The user's choice of names; all else is written out here and does not follow later changes of queue_db.store.schema."""
    tables = context.config.attributes["tables"]
    return tables.jobs.name, tables.schema


def has(table: str, index: str, schema: str | None) -> bool | None:
    """Whether the table has it: where DDL is no transaction, a run may have been cut off. None: there is no server to ask."""
    if context.is_offline_mode():
        return None
    return index in {one["name"] for one in sa.inspect(op.get_bind()).get_indexes(table, schema=schema)}


def upgrade() -> None:
    jobs, schema = names()
    op.create_table(
        f"{jobs}_keyed_counts",
        sa.Column("name", sa.String(100), primary_key=True),
        sa.Column("counted_key", sa.String(255), primary_key=True),
        sa.Column("slot", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("messages", sa.BigInteger, nullable=False),
        schema=schema,
        if_not_exists=True,
        **mysql,
    )
    # SELECT … FROM jobs_cursors WHERE name = ? ORDER BY feed
    if not has(f"{jobs}_cursors", f"{jobs}_cursors_name", schema):
        op.create_index(f"{jobs}_cursors_name", f"{jobs}_cursors", ["name", "feed"], schema=schema)


def downgrade() -> None:
    jobs, schema = names()
    if has(f"{jobs}_cursors", f"{jobs}_cursors_name", schema) is not False:
        op.drop_index(f"{jobs}_cursors_name", f"{jobs}_cursors", schema=schema)
    op.drop_table(f"{jobs}_keyed_counts", schema=schema, if_exists=True)
