"""A ledger of bulk loads for each queue, counts of the deliveries of stream batches, and the view jobs_state."""

from typing import Any

import sqlalchemy as sa
from alembic import context, op

from queue_db.dialects.clock import instant, now_us

revision = "0007"
down_revision = "0005"
branch_labels = None
depends_on = None
additive = False  # another primary key
loses = (
    "the view {jobs}_state; the columns deliveries and delivered_epoch of {jobs}_batches; all rows but one in "
    "{jobs}_published of a bulk load into several queues"
)


def names() -> tuple[str, str | None]:
    """The user's choice of names; all else is written out here and does not follow later changes of queue_db.store.schema."""
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
    elif dialect.name in ("mysql", "mariadb"):
        op.execute(f"ALTER TABLE {quoted} DROP PRIMARY KEY, ADD {new}")
    else:
        rebuild(table, schema, columns)


def rebuild(table: str, schema: str | None, key: list[str]) -> None:
    """Make the table anew: SQLite cannot change the key of a table, and of an unknown database nobody knows how."""
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


# The due time of jobs that a stream holds, and of those that wait for others of their group.
NEVER = 253_355_317_443_020_109
BLOCKED = NEVER + 1

YEAR_1 = -62_135_596_800_000_000


def view(jobs: str, schema: str | None) -> str:
    """The view's name as it is written in SQL."""
    preparer = op.get_context().dialect.identifier_preparer
    return str(preparer.format_table(sa.table(f"{jobs}_state", schema=schema)))


def make_view(jobs: str, schema: str | None) -> None:
    """``jobs_state``: every job that there is, with its state, and with times that people can read."""
    same = ("id", "queue", "kind", "priority", "attempts", "max_attempts", "unique_key", "group_key", "worker")
    same = (*same, "last_error", "payload")

    def table(name: str, *columns: str) -> sa.TableClause:
        return sa.table(name, *map(sa.column, columns), schema=schema)

    live = table(jobs, *same, "available_at", "due_at", "claim_token", "delete_mark", "created_at")
    held = table(f"{jobs}_held", *same, "stream", "available_at", "created_at")
    streams = table(f"{jobs}_streams", "id", "queue", "name")
    dead = table(f"{jobs}_dead", *same, "died_at", "created_at")
    never = sa.cast(sa.null(), sa.BigInteger)

    def row(
        state: Any, source: sa.TableClause, *, due: Any = never, until: Any = never, died: Any = never, **other: Any
    ) -> sa.Select:
        columns = {name: source.c[name] for name in same} | other
        times = {"created_at": source.c.created_at, "due_at": due, "leased_until": until, "died_at": died}
        return sa.select(
            columns["id"],
            columns["queue"].label("queue"),
            columns["kind"],
            state.label("state"),
            *(columns[name].label(name) for name in same[3:]),
            # Before the year 1 and after 9998, which no calendar has, is what a client wrote by mistake.
            *(instant(sa.case((at.between(YEAR_1, NEVER), at))).label(name) for name, at in times.items()),
        )

    due = live.c.available_at <= now_us()
    running = sa.and_(live.c.claim_token.is_not(None), sa.not_(due))
    state = sa.case((live.c.available_at == BLOCKED, "blocked"), (due, "available"), (running, "running"), else_="scheduled")
    waits = sa.case((running, live.c.due_at), (live.c.available_at == BLOCKED, live.c.due_at), else_=live.c.available_at)
    until = sa.case((running, live.c.available_at))
    stream = sa.literal("stream ", sa.String).concat(streams.c.name)
    every = sa.union_all(
        row(state, live, due=waits, until=until).where(live.c.delete_mark == 0, live.c.available_at != NEVER),
        row(sa.literal("running"), held, due=held.c.available_at, queue=streams.c.queue, worker=stream).join_from(
            held, streams, streams.c.id == held.c.stream
        ),
        row(sa.literal("dead"), dead, died=dead.c.died_at),
    )
    query = every.compile(dialect=op.get_context().dialect, compile_kwargs={"literal_binds": True})
    if not context.is_offline_mode():
        # From an earlier run that was cut off: it was looked at, and is ours. A script cannot look, and stops where there is one.
        op.execute(f"DROP VIEW IF EXISTS {view(jobs, schema)}")
    # The driver's escapes of % are for parameters, which there are none of.
    op.execute(sa.text(f"CREATE VIEW {view(jobs, schema)} AS {str(query).replace('%%', '%')}".replace(":", "\\:")))


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
    make_view(jobs, schema)


def downgrade() -> None:
    jobs, schema = names()
    op.execute(f"DROP VIEW IF EXISTS {view(jobs, schema)}")
    for column in ("delivered_epoch", "deliveries"):
        if context.is_offline_mode() or not lacks_column(f"{jobs}_batches", column, schema):
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
