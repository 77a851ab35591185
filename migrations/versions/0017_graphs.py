"""Graphs of jobs: their nodes, what waits for what, and the results of nodes; dead jobs know their graph."""

import sqlalchemy as sa
from alembic import context, op
from sqlalchemy.dialects.mysql import LONGTEXT

from queue_db.dialects.clock import now_us

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None
# Code without graphs would complete a node and leave those that wait for it behind. It only meets one after a graph was enqueued.
additive = True
loses = (
    "the tables {jobs}_graphs, {jobs}_nodes, {jobs}_edges and {jobs}_results, with what they hold; the column callback_id of "
    "{jobs}_dead; and the jobs of nodes that wait for others"
)

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


def names() -> tuple[str, str | None]:
    """The user's choice of names; all else is written out here and does not follow later changes of queue_db.store.schema."""
    tables = context.config.attributes["tables"]
    return tables.jobs.name, tables.schema


def has_column(table: str, column: str, schema: str | None) -> bool | None:
    """Whether the table has it: where DDL is no transaction, a run may have been cut off. None: there is no server to ask."""
    if context.is_offline_mode():
        return None
    return column in {one["name"] for one in sa.inspect(op.get_bind()).get_columns(table, schema=schema)}


def has_index(table: str, index: str, schema: str | None) -> bool | None:
    """The same of an index."""
    if context.is_offline_mode():
        return None
    return index in {one["name"] for one in sa.inspect(op.get_bind()).get_indexes(table, schema=schema)}


def upgrade() -> None:
    jobs, schema = names()
    made = {"schema": schema, "if_not_exists": True, **mysql}
    if not has_column(f"{jobs}_dead", "callback_id", schema):
        op.add_column(f"{jobs}_dead", sa.Column("callback_id", sa.BigInteger), schema=schema)
    op.create_table(
        f"{jobs}_graphs",
        sa.Column("id", big_id, primary_key=True, autoincrement=True),
        sa.Column("name", sa.String(200)),
        sa.Column("lasts", sa.BigInteger, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False, server_default=now_us()),
        sa.Column("expires_at", sa.BigInteger),
        sqlite_autoincrement=True,
        **made,
    )
    # SELECT id FROM jobs_graphs WHERE expires_at < ? ORDER BY expires_at LIMIT ?
    if not has_index(f"{jobs}_graphs", f"{jobs}_graphs_age", schema):
        op.create_index(f"{jobs}_graphs_age", f"{jobs}_graphs", ["expires_at"], schema=schema)
    op.create_table(
        f"{jobs}_nodes",
        sa.Column("id", big_id, primary_key=True, autoincrement=False),
        sa.Column("graph_id", sa.BigInteger, nullable=False),
        sa.Column("name", sa.String(200), nullable=False),
        sa.Column("queue", sa.String(100), nullable=False),
        sa.Column("kind", sa.String(100), nullable=False),
        sa.Column("layer", sa.Integer, nullable=False, server_default=sa.text("0")),
        sa.Column("if_failed", sa.String(6), nullable=False),
        sa.Column("state", sa.String(9), nullable=False),
        sa.Column("pending", sa.Integer, nullable=False),
        sa.Column("finished_at", sa.BigInteger),
        sa.Column("stored", long_text),
        # SELECT … FROM jobs_nodes WHERE graph_id = ? AND name = ?
        sa.UniqueConstraint("graph_id", "name", name=f"{jobs}_nodes_name"),
        postgresql_with=churn,
        **made,
    )
    op.create_table(
        f"{jobs}_edges",
        sa.Column("parent", big_id, primary_key=True, autoincrement=False),
        sa.Column("child", big_id, primary_key=True, autoincrement=False),
        sqlite_with_rowid=False,
        **made,
    )
    # SELECT parent FROM jobs_edges WHERE child = ?
    if not has_index(f"{jobs}_edges", f"{jobs}_edges_child", schema):
        op.create_index(f"{jobs}_edges_child", f"{jobs}_edges", ["child"], schema=schema)
    op.create_table(
        f"{jobs}_results",
        sa.Column("id", big_id, primary_key=True, autoincrement=False),
        sa.Column("result", long_text, nullable=False),
        **made,
    )


def downgrade() -> None:
    jobs, schema = names()
    # Nothing would ever bring the jobs that wait for others back from the year 9998, and code without graphs takes the number of a
    # graph for that of a batch.
    of_graphs = sa.table(jobs, sa.column("callback_id"), sa.column("available_at"), sa.column("group_key"), schema=schema)
    waits = (of_graphs.c.callback_id < 0) & (of_graphs.c.available_at == 253_355_317_443_020_110) & of_graphs.c.group_key.is_(None)
    op.execute(sa.delete(of_graphs).where(waits))
    op.execute(sa.update(of_graphs).where(of_graphs.c.callback_id < 0).values(callback_id=None))
    for table in ("results", "edges", "nodes", "graphs"):
        op.drop_table(f"{jobs}_{table}", schema=schema, if_exists=True)
    if has_column(f"{jobs}_dead", "callback_id", schema) is not False:
        op.drop_column(f"{jobs}_dead", "callback_id", schema=schema)
